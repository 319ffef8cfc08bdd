"""What people see of `tailrace dev`: a live table below the logs on a terminal, else plain lines, or JSON lines.

Logs of workers carry the worker's name in a colour of its own. Records go to stdout and all else to stderr where stdout is
no terminal; on a terminal the table owns it and logs scroll above.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

import click

from tailrace import logs
from tailrace_cli.dev.status import Status
from tailrace_cli.failures import scrubbed
from tailrace_cli.output import as_record, printable

__all__ = ["Board", "LineBoard", "LogHandler", "open_board"]

OURS = "dev"
"""The name before what we say ourselves."""

_COLOURS = ("cyan", "green", "magenta", "blue", "yellow", "bright_cyan", "bright_green", "bright_magenta")
_LINE_SECONDS = 1.0
_COLUMNS = ("QUEUE", "STATUS", "WORKERS", "READY", "RUNNING", "SCHEDULED", "DEAD", "OLDEST", "DEMAND")


class Board(Protocol):
    """Where everything is told; a context manager."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End."""

    def log(self, name: str, line: str) -> None:
        """Tell a line of a worker, or of ours."""

    def show(self, statuses: Sequence[Status]) -> None:
        """Show how the queues stand."""


class LineBoard:
    """Plain lines: a record when something has changed, once a second at most.

    Args:
        form: json and jsonl write JSON lines; else words.
        quiet: Leave the logs of workers out.
        clock: Seconds that only go forward.
    """

    def __init__(self, *, form: str, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._json, self._quiet, self._clock = form in ("json", "jsonl"), quiet, clock
        self._shown: dict[str, tuple[float, dict[str, Any]]] = {}

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End."""

    def log(self, name: str, line: str) -> None:
        """Tell a line on stderr."""
        if name == OURS or not self._quiet:
            _write(f"{_prefix(name)}{_shown(name, line)}", err=True)

    def show(self, statuses: Sequence[Status]) -> None:
        """Write the records of queues that have changed."""
        for status in statuses:
            at, facts = self._shown.get(status.queue, (0.0, {}))
            now = self._clock()
            if status.facts() == facts or (facts and now - at < _LINE_SECONDS):
                continue
            self._shown[status.queue] = (now, status.facts())
            if self._json:
                _write(json.dumps(as_record(status), ensure_ascii=False))
            else:
                _write(printable(_words(status)))


class _LiveBoard:
    """A table that stays below the logs."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self._quiet = quiet
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._rows: list[list[str]] = []

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            self._live.stop()

    def log(self, name: str, line: str) -> None:
        from rich.text import Text

        if name == OURS or not self._quiet:
            text = Text(_prefix(name), style="bold" if name == OURS else _colour(name))
            text.append(_shown(name, line), style="default not bold")
            with suppress(OSError):
                self._console.print(text, soft_wrap=True)

    def show(self, statuses: Sequence[Status]) -> None:
        from rich.table import Table
        from rich.text import Text

        rows = [_row(status) for status in statuses]
        if rows == self._rows:
            return
        self._rows = rows
        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, title in enumerate(_COLUMNS):
            table.add_column(title, justify="left" if number < 2 else "right")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        with suppress(OSError):
            self._live.update(table, refresh=True)


class LogHandler(logging.Handler):
    """Puts our own log on the board.

    Args:
        board: Where.
    """

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board
        self.setFormatter(logs.TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one record."""
        for line in self.format(record).splitlines():
            self._board.log(OURS, line)


def open_board(*, form: str, quiet: bool) -> Board:
    """Return the board that fits: live where stdout is a terminal and rich is installed.

    Args:
        form: What -o says; json and jsonl are never a table.
        quiet: Leave the logs of workers out.
    """
    if form in ("table", "wide") and sys.stdout.isatty():
        try:
            return _LiveBoard(quiet=quiet)
        except ImportError:
            pass
    return LineBoard(form=form, quiet=quiet)


def _write(text: str, *, err: bool = False) -> None:
    """Write a line; when nobody is there to read it, such as after a terminal was closed, workers must still be drained."""
    with suppress(OSError):
        click.echo(text, err=err)


def _shown(name: str, line: str) -> str:
    """A line fit for a terminal; ours may quote an error that quotes a connection string."""
    return printable((scrubbed(line) if name == OURS else line).expandtabs())


def _prefix(name: str) -> str:
    return f"{name} | "


def _colour(name: str) -> str:
    return _COLOURS[sum(name.encode()) % len(_COLOURS)]


def _row(status: Status) -> list[str]:
    state = status.status if not status.restarts else f"{status.status} ({status.restarts} restarted)"
    return [
        printable(status.queue),
        state,
        f"{status.workers}/{status.wanted}" + (f" +{status.draining}" if status.draining else ""),
        str(status.ready) + (f" +{status.held} held" if status.held else ""),
        str(status.running),
        str(status.scheduled),
        str(status.dead),
        "-" if status.oldest_ready_age is None else f"{status.oldest_ready_age:.0f} s",
        "-" if status.demand is None else f"{status.demand:.2f}",
    ]


def _words(status: Status) -> str:
    parts = [f"{status.workers} of {status.wanted} workers"]
    for name in ("draining", "ready", "running", "scheduled", "held", "unclaimable", "dead", "restarts"):
        if value := getattr(status, name):
            parts.append(f"{value} {name}")
    if status.demand is not None:
        parts.append(f"demand {status.demand:.2f}")
    return f"{status.queue}: {status.status}, {', '.join(parts)}"
