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
from tailrace.maintenance import Loop, apart, routines
from tailrace.settings import WorkerSettings
from tailrace_worker.metrics import State
from tailrace_worker.parts import Parts

log = logging.getLogger("tailrace.worker")

READ_SECONDS = 15.0
FIRST_READ_SECONDS = 1.0


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
            loop = Loop(self._parts.database, group, counters=self._state.routines, stand_in=True)
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
                seen = await self._parts.ear.ask("maintenance.seen", {})
            except (OperationalError, TailraceError, errors.InterfaceError, errors.DatabaseError):
                log.debug("readings not available")
                continue
            for name, reading, at in rows:
                self._state.readings[name] = _reading(reading, at)
            self._state.routines.last_success = {routine: at for routine, _, _, at in seen}


def _reading(reading: dict[str, Any], at: float) -> dict[str, Any]:
    oldest = reading.get("oldest_dead_at")
    age = max(0.0, at - datetime.fromisoformat(oldest).timestamp()) if oldest else 0.0
    return {**reading, "timestamp": at, "oldest_dead_age_seconds": age}
