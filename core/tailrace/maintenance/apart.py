"""Routines that must be on time run beside the others: cron has a thread and a connection of its own.

A long batch of another routine would make it late. `loop` runs each group; a worker that stands in does the same.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Protocol

from tailrace.maintenance.routine import Routine

__all__ = ["Runner", "apart", "run_apart"]

_PUNCTUAL: Final = frozenset({"cron"})


class Runner(Protocol):
    """Something that works until it is told to stop."""

    def run(self, stop: threading.Event) -> None:
        """Work until the event is set, and end within a second of it."""


def apart(routines: Sequence[Routine]) -> list[list[Routine]]:
    """Part routines into groups that run side by side; none is empty.

    Args:
        routines: What is to run.
    """
    punctual = [routine for routine in routines if routine.name in _PUNCTUAL]
    others = [routine for routine in routines if routine.name not in _PUNCTUAL]
    return [group for group in (others, punctual) if group]


def run_apart(runners: Sequence[Runner], stop: threading.Event) -> None:
    """Run several until the event is set: the last one here, the others in threads.

    Args:
        runners: What is to run. If one breaks, all are stopped.
        stop: Ends all of them within a second.

    Raises:
        BaseException: What broke the first of them.
    """
    broken: list[BaseException] = []

    def guarded(runner: Runner) -> None:
        try:
            runner.run(stop)
        except BaseException as error:  # noqa: BLE001 - handed to the caller below
            broken.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=(runner,), name="tailrace-maintenance") for runner in runners[:-1]]
    for thread in threads:
        thread.start()
    for runner in runners[-1:]:
        guarded(runner)
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]
