"""What the demo shows while it runs: a live line on a terminal, plain lines elsewhere.

`demo` says what happens and hands over the figures; `ledger` is printed here at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from examples.webhooks.ledger import Ledger

_PLAIN_EVERY_SECONDS = 1.0


class Board:
    """Tells a person how far the run is; a context manager."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare the display.

        Args:
            console: Where to show; whether it is a terminal decides how.
            clock: Seconds since some moment.
        """
        self._console = console
        self._clock = clock
        self._started = clock()
        self._last_plain = float("-inf")
        texts = ("{task.description}", "{task.completed:,.0f} of {task.total:,.0f}", "{task.fields[state]}")
        what, counted, state = (TextColumn(text, table_column=Column(no_wrap=True)) for text in texts)
        self._live = Progress(what, BarColumn(bar_width=16), counted, state, console=console, transient=True)
        self._bar = self._live.add_task("", total=1, state="", visible=False)

    @property
    def seconds(self) -> float:
        """Seconds since the board was made."""
        return self._clock() - self._started

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Take the live line away."""
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print what happens now, with the time since the start.

        Args:
            text: One sentence.
        """
        self._last_plain = float("-inf")
        if self._console.is_terminal:
            self._live.update(self._bar, visible=False, refresh=True)
        self._print(f"{self.seconds:5.1f} s  {text}")

    def show(self, text: str) -> None:
        """Print lines as they are.

        Args:
            text: Such as the output of a command.
        """
        self._print(text)

    def move(self, what: str, done: int, total: int, state: str = "") -> None:
        """Move the live line, or print a plain one each second.

        Args:
            what: What is counted, such as "delivered".
            done: How many.
            total: Of how many.
            state: Other figures.
        """
        if self._console.is_terminal:
            self._live.update(self._bar, description=what, completed=done, total=total, state=state, visible=True)
        elif self._clock() - self._last_plain >= _PLAIN_EVERY_SECONDS:
            self._last_plain = self._clock()
            self._print(f"{self.seconds:5.1f} s    {what} {done:,} of {total:,}" + (f" - {state}" if state else ""))

    def print_ledger(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Print the balance.

        Args:
            rows: Name, figure and explanation.
        """
        self._live.stop()  # nothing moves any more
        self._print("\nLedger")
        for name, figure, why in rows:
            self._print(f"  {name:<16}{figure:>7}  {why}")
        self._print("")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def ledger_rows(ledger: Ledger, *, abandoned: int, seconds: float) -> list[tuple[str, str, str]]:
    """Put the balance into words.

    Args:
        ledger: The balance.
        abandoned: Transactions that were rolled back on purpose.
        seconds: How long the run took.
    """
    return [
        ("enqueued", f"{ledger.enqueued:,}", "jobs, each in one transaction with a row of the shop"),
        ("rolled back", f"{abandoned:,}", "transactions that enqueued a job too; none of them was delivered"),
        ("delivered", f"{ledger.delivered:,}", "events that the receiver accepted, by its own record"),
        ("retried", f"{ledger.retried:,}", "refused at first, accepted on a later attempt"),
        ("recovered", f"{ledger.recovered:,}", "jobs that the killed worker held; another worker ran them"),
        ("dead", f"{ledger.dead:,}", "refused for good: became dead letters"),
        ("requeued", f"{ledger.requeued:,}", "dead letters put back after the receiver was healed"),
        ("lost", f"{ledger.lost:,}", "events that nobody delivered"),
        ("delivered twice", f"{ledger.repeated:,}", _why_repeated(ledger.repeated)),
        ("seconds", f"{seconds:.1f}", "from the first enqueue to the last delivery"),
    ]


def _why_repeated(count: int) -> str:
    if count == 0:
        return "the killed worker had reported all that it delivered"
    return "accepted, but the worker was killed before it could say so; the receiver tells them by the event's id"
