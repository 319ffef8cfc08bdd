"""The `tailrace` command: its groups and the boundary where errors become sentences and exit statuses.

Each group of commands is one module, imported when it is asked for, so that a worker does not carry the others.
`failures` words errors, `invocation` holds the common options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

import click

from tailrace_cli.failures import ExitStatus, describe
from tailrace_cli.invocation import Invocation, command, common_options, pass_invocation

__all__ = ["main", "tailrace"]


_MODULES = {
    "controller": "controller",
    "dead-letters": "dead_letters",
    "dev": "dev",
    "dlq": "dead_letters",
    "doctor": "doctor",
    "enqueue": "enqueue",
    "jobs": "jobs",
    "leases": "leases",
    "maintain": "maintain",
    "migrate": "migrate",
    "queues": "queues",
    "schedules": "schedules",
    "tasks": "tasks",
    "worker": "worker",
    "workers": "workers",
}


class _ReaderGone(Exception):
    """Takes the place of BrokenPipeError, which click would turn into status 1."""


class _Groups(click.Group):
    """Imports the module of a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, imported or not."""
        return sorted({*_MODULES, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, after importing its module."""
        if cmd_name not in self.commands and cmd_name in _MODULES:
            import_module(f"tailrace_cli.{_MODULES[cmd_name]}").add_to(self)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGone from None


@click.group(
    cls=_Groups, params=common_options(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.pass_context
def tailrace(ctx: click.Context) -> None:
    """A job queue that lives in your PostgreSQL.

    Exit status: 0 done; 1 it failed or found a problem; 2 wrong usage; 3 the database cannot be reached; 130 interrupted.
    """
    ctx.ensure_object(Invocation)


@command(tailrace, "version", example="tailrace version")
@pass_invocation
def show_version(invocation: Invocation) -> None:
    """Print the version of this installation."""
    found = version("tailrace")
    if invocation.form in ("table", "wide", "name"):
        click.echo(found)
    else:
        invocation.show_one({"version": found}, key="version")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its status.

    Args:
        arguments: Default: those of the process.
    """
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its status.

    Args:
        arguments: Default: those of the process.
    """
    invocation = Invocation()
    try:
        status = tailrace.main(
            list(sys.argv[1:] if arguments is None else arguments), "tailrace", standalone_mode=False, obj=invocation
        )
        sys.stdout.flush()
    except (_ReaderGone, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.DONE
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitStatus.FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: everything becomes a sentence and a status
        text, status = describe(error, verbose=invocation.verbose)
        click.echo(f"tailrace: {text}", err=True)
        return status
    return status if isinstance(status, int) else ExitStatus.DONE
