"""How far a long run has come: a bar by rich on a terminal, else a plain line every few seconds, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tailrace_cli.invocation import Invocation

__all__ = ["Progress", "progress_of"]

_LINE_EACH_SECONDS: Final = 2.0


class Progress(Protocol):
    """Shows numbers as they grow."""

    def show(self, done: int, failed: int) -> None:
        """Tell how many are done, and how many could not be."""


class _Lines:
    def __init__(self, invocation: Invocation, word: str, total: int) -> None:
        self._invocation, self._word, self._total, self._next = invocation, word, total, time.monotonic() + _LINE_EACH_SECONDS

    def show(self, done: int, failed: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LINE_EACH_SECONDS
        trouble = f", {failed:,} could not be" if failed else ""
        self._invocation.say(f"{self._word} {done:,} of {max(self._total, done + failed):,}{trouble}")


class _Bar:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def show(self, done: int, failed: int) -> None:
        self._bar.update(self._task, completed=done + failed)


@contextmanager
def progress_of(invocation: Invocation, word: str, total: int) -> Iterator[Progress]:
    """Show the progress of a run.

    Args:
        invocation: Tells, unless -q.
        word: What is done to the rows, such as requeued.
        total: How many there are.
    """
    if invocation.quiet or not sys.stderr.isatty():
        yield _Lines(invocation, word, total)
        return
    try:
        from rich.console import Console
        from rich.progress import Progress as RichProgress
    except ImportError:
        yield _Lines(invocation, word, total)
        return
    with RichProgress(console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, bar.add_task(word, total=total or None))
