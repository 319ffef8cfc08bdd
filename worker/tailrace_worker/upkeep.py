"""What a worker does beside its jobs: the gauges of dead letters, and maintenance when nobody else runs it.

The reading comes from the queue row, where the statistics routine publishes it. The stand-in is
tailrace.maintenance's; it looks every third of a period and takes over only where the last success is older than two
periods.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import datetime
from typing import Any

from tailrace.db import OperationalError, errors
from tailrace.errors import TailraceError
from tailrace.maintenance import Loop, NoCounters, apart, routines
from tailrace.maintenance.routine import Verdict
from tailrace.settings import WorkerSettings
from tailrace_worker.metrics import State
from tailrace_worker.parts import Parts

log = logging.getLogger("tailrace.worker")

READ_SECONDS = 15.0
FIRST_READ_SECONDS = 1.0


class _Counters(NoCounters):
    """Counts the routines' runs where metrics.py finds them; called from the threads of maintenance."""

    def __init__(self, state: State) -> None:
        self._state = state

    def ran(self, routine: str, result: Verdict, seconds: float) -> None:
        """One run of a routine."""
        self._state.runs[routine, result] = self._state.runs.get((routine, result), 0) + 1

    def reclaimed(self, queue: str, result: str, evidence: str, n: int) -> None:
        """Leases that were taken over."""
        key = (queue, result, evidence)
        self._state.reclaimed[key] = self._state.reclaimed.get(key, 0) + n

    def ticks(self, queue: str, result: str, n: int) -> None:
        """Ticks of schedules; only cron's thread counts here."""
        self._state.ticks[queue, result] = self._state.ticks.get((queue, result), 0) + n

    def dead(self, queue: str, task: str, reason: str, n: int) -> None:
        """Jobs that a routine moved to the dead letters."""
        key = (queue, task, reason)
        self._state.dead[key] = self._state.dead.get(key, 0) + n


class Upkeep:
    """Starts and stops both.

    Args:
        settings: The worker's settings.
        parts: The worker's parts.
        state: Where readings and counters go.
    """

    def __init__(self, settings: WorkerSettings, parts: Parts, state: State) -> None:
        self._settings, self._parts, self._state = settings, parts, state
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin reading, and standing in on threads of its own with connections that are open only while it looks or runs."""
        self._parts.tasks.append(asyncio.create_task(self._reading(), name="readings"))
        for group in apart(routines(reaper_seconds=self._settings.reaper_seconds)):
            loop = Loop(self._parts.database, group, counters=_Counters(self._state), stand_in=True)
            threading.Thread(target=loop.run, args=(self._stop,), name="tailrace-maintenance", daemon=True).start()

    def stop(self) -> None:
        """End the stand-in; does not wait for a routine that is just at work: each of its steps is one statement.

        The reading ends with the other tasks on the connection that it borrows.
        """
        self._stop.set()

    async def _reading(self) -> None:
        pause = FIRST_READ_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = READ_SECONDS
            try:
                rows = await self._parts.ear.ask("lease.readings", {"queues": list(self._parts.queues)})
            except (OperationalError, TailraceError, errors.InterfaceError, errors.DatabaseError):
                log.debug("readings not available")
                continue
            for name, reading, at in rows:
                self._state.readings[name] = _reading(reading, at)


def _reading(reading: dict[str, Any], at: float) -> dict[str, Any]:
    oldest = reading.get("oldest_dead_at")
    age = max(0.0, at - datetime.fromisoformat(oldest).timestamp()) if oldest else 0.0
    return {**reading, "timestamp": at, "oldest_dead_age_seconds": age}
