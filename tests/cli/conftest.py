"""The command as a real process against the test's database, and rows for it to look at."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.nursery import Nursery
from tests.engine.rows import Rows
from tests.rig.processes import ROOT, clean_environment
from tests.rig.servers import Connection, RigDatabase

_SECONDS = 40


@dataclass(frozen=True)
class Result:
    """What a command left."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as JSON."""
        return json.loads(self.out)

    @property
    def everything(self) -> str:
        """Stdout and stderr."""
        return self.out + self.err


class Cli:
    """Runs `tailrace …` as a process of its own."""

    def __init__(self, dsn: str, nursery: Nursery, folder: Path) -> None:
        """Remember the database; it reaches the command by TAILRACE_DATABASE_URL."""
        self.dsn, self.nursery, self.folder = dsn, nursery, folder

    def at(self, dsn: str) -> Cli:
        """The command on another database."""
        return Cli(dsn, self.nursery, self.folder)

    def __call__(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None, status: int = 0) -> Result:
        """Run a command without a terminal and check its status."""
        environment = clean_environment({"TAILRACE_DATABASE_URL": self.dsn, **(env or {})})
        result = Result(*self.nursery.run(arguments, environment=environment, stdin=stdin, folder=self.folder))
        assert result.status == status, f"{arguments}: {result}"
        return result

    def on_terminal(
        self, *arguments: str, answer: str | signal.Signals = "", env: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Run a command on a terminal, type an answer at its question or send a signal, and return status and all it wrote."""
        outer, inner = pty.openpty()
        environment = clean_environment(
            {"TAILRACE_DATABASE_URL": self.dsn, "TERM": "xterm-256color", "COLUMNS": "160", **(env or {})}
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "tailrace_cli", *arguments], stdin=inner, stdout=inner, stderr=inner, env=environment, cwd=ROOT
        )
        os.close(inner)
        try:
            text = _converse(outer, answer, process.pid)
            return process.wait(_SECONDS), text
        finally:
            os.close(outer)
            process.kill()
            process.wait()


def _converse(terminal: int, answer: str | signal.Signals, process: int) -> str:
    seen, asked_at = b"", 0.0
    deadline = time.monotonic() + _SECONDS
    patience = 1.0 if isinstance(answer, str) else 5.0  # a second signal ends a command that is just ending by the first
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            # A terminal that is just being set up drops what was typed, and Python a signal just before it reads.
            if asked_at and time.monotonic() - asked_at > patience:
                asked_at = _reply(terminal, answer, process)
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed: the command has ended
            break
        if not piece:
            break
        seen += piece
        if answer and not asked_at and b"[y/N]" in seen:
            asked_at = _reply(terminal, answer, process)
    return seen.decode("utf-8", "replace")


def _reply(terminal: int, answer: str | signal.Signals, process: int) -> float:
    if isinstance(answer, str):
        os.write(terminal, answer.encode() + b"\n")
    else:
        os.kill(process, answer)
    return time.monotonic()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """The process that forks the command."""
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def cli(database: RigDatabase, nursery: Nursery, tmp_path: Path) -> Cli:
    """The command on a fresh, migrated database."""
    return Cli(database.dsn, nursery, tmp_path)


@pytest.fixture
def rows(conn: Connection) -> Rows:
    """The tables, by an autocommit connection."""
    return Rows(conn)
