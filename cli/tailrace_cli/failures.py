"""What a failed command says and with which status it ends.

One sentence on stderr with the remedy; a traceback only with -v. Whatever is said is scrubbed first, so that no secret
of a connection string leaves the process, whichever layer worded the error.
"""

from __future__ import annotations

import enum
import os
import re
import traceback

import click

from tailrace.db import DatabaseError
from tailrace.errors import DatabaseUnavailable, InvalidOption, InvalidPayload, TailraceError, UnknownTask

__all__ = ["ExitStatus", "describe", "scrubbed"]

_URL_PASSWORD = re.compile(r"(?P<head>postgres(?:ql)?://[^\s:/@]*):[^\s]*@")
_WORD_PASSWORD = re.compile(r"\b(?P<key>password|sslpassword|passfile)\s*=\s*('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE)
_URL_QUERY = re.compile(r"(?P<key>[?&](?:password|sslpassword))=[^&\s]*", re.IGNORECASE)
_WRONG_USAGE = (InvalidOption, InvalidPayload, UnknownTask)


class ExitStatus(enum.IntEnum):
    """The status a command ends with."""

    DONE = 0
    """It did what was asked."""
    FAILED = 1
    """It failed, in whole or for some rows, or it found a problem."""
    USAGE = 2
    """Arguments are wrong, or a question could not be asked."""
    UNREACHABLE = 3
    """The database cannot be reached."""
    INTERRUPTED = 130
    """Ctrl-C."""


def describe(error: BaseException, *, verbose: bool = False) -> tuple[str, ExitStatus]:
    """Return the text for stderr and the status for an error.

    Args:
        error: What ended the command.
        verbose: Add the traceback.
    """
    text, status = _sentence(error)
    if verbose and not isinstance(error, click.ClickException):
        text = "".join(traceback.format_exception(error)) + text
    return scrubbed(text), status


def scrubbed(text: str) -> str:
    """Return a text without the passwords of connection strings in it.

    Args:
        text: What is about to be shown.
    """
    for name in ("TAILRACE_DATABASE_URL", "TAILRACE_DIRECT_DATABASE_URL", "PGPASSWORD"):
        secret = os.environ.get(name)
        if secret and len(secret) > 3:
            text = text.replace(secret, "***")
    text = _URL_PASSWORD.sub(r"\g<head>:***@", text)
    text = _URL_QUERY.sub(r"\g<key>=***", text)
    return _WORD_PASSWORD.sub(r"\g<key>=***", text)


def _sentence(error: BaseException) -> tuple[str, ExitStatus]:
    if isinstance(error, click.ClickException):
        return _usage(error), ExitStatus.USAGE if isinstance(error, click.UsageError | click.FileError) else ExitStatus.FAILED
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted", ExitStatus.INTERRUPTED
    if isinstance(error, DatabaseUnavailable):
        return str(error), ExitStatus.UNREACHABLE
    if isinstance(error, _WRONG_USAGE):
        return str(error), ExitStatus.USAGE
    if isinstance(error, TailraceError):
        return str(error), ExitStatus.FAILED
    if isinstance(error, DatabaseError):
        return f"the database refused: {_first_line(error)}", ExitStatus.FAILED
    return f"unexpected {type(error).__name__}: {_first_line(error)} (run it again with -v for the traceback)", ExitStatus.FAILED


def _usage(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text += f" (try: {error.ctx.command_path} --help)"
    return text


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"
