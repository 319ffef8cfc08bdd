"""What lies below the floors: late commits and rows that came back.

Runs on the ear's connection and hands over ids, so that the hot scan never walks a dead region again. The near rescan
(the last 5 s) finds late commits within milliseconds; the far one (everything) is the safety net. Together they take
at most 2 % of the time of all workers of the queue; a near rescan after a notification that found nothing may take 10
% of its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tailrace.clock import boot
from tailrace.db import OperationalError, errors
from tailrace.errors import TailraceError
from tailrace_worker.ear import Ear
from tailrace_worker.floors import LOWEST, Floors, Key

log = logging.getLogger("tailrace.worker")

NEAR_SECONDS = 5.0
NEAR_EVERY_SECONDS = 0.05
SHARE = 50
"""A rescan may run once per 50 of its own durations: 2 %."""
STORE_SECONDS = 0.25
FIRST_STORE_SECONDS = 0.1
MOST_IDS = 1000
_FAULTS = (OperationalError, TailraceError, errors.InterfaceError, errors.DatabaseError)


class Rescan:
    """The rescans of one queue in this worker.

    Args:
        ear: Lends its connection.
        queue: The queue.
        tasks: Names of the tasks this worker knows.
        floors: What to look below.
        found: Takes ids of free jobs.
        moved_back: Called when a floor went back.
        stores: Whether these floors are those where a starting worker begins.
    """

    def __init__(
        self,
        *,
        ear: Ear,
        queue: str,
        tasks: Sequence[str],
        floors: Floors,
        found: Callable[[list[int]], None],
        moved_back: Callable[[], None],
        stores: bool = True,
    ) -> None:
        self._stores = stores
        self._task: asyncio.Task[None] | None = None
        self._ear, self._floors, self._found, self._moved_back = ear, floors, found, moved_back
        self._queue, self._tasks = queue, list(tasks)
        self.workers = 1
        self.near_runs = self.far_runs = 0
        self._now = asyncio.Event()
        self._far_wanted = False
        self._far_at = 0.0
        self._store_at = boot() + FIRST_STORE_SECONDS
        self._history: dict[int, deque[tuple[float, Key]]] = {}
        self._stored: dict[int, Key] = {}

    def far(self) -> None:
        """Rows came free somewhere below: look at once."""
        self._far_wanted = True
        self._now.set()

    def near(self) -> None:
        """A notified claim found nothing: probably a late commit."""
        self._now.set()

    def start(self) -> None:
        """Run in a task of its own until `end`."""
        self._task = asyncio.create_task(self.run(), name=f"rescan {self._queue}")

    def end(self) -> None:
        """Cancel that task."""
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Rescan until cancelled."""
        pause = 0.0
        while True:
            if pause > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._now.wait(), pause)
            self._now.clear()
            try:
                pause = await self._once()
            except _FAULTS as error:
                log.debug("rescan failed: %s", type(error).__name__)
                pause = 1.0

    async def _once(self) -> float:
        now = boot()
        if self._stores and now >= self._store_at:
            self._store_at = now + STORE_SECONDS
            await self._store_floors()
        far = self._far_wanted or now >= self._far_at
        self._far_wanted = False
        bounds = self._bounds(now, far=far)
        if not bounds:
            return max(0.01, min(NEAR_EVERY_SECONDS * self.workers, self._far_at - now))
        began = boot()
        await self._look(bounds, began)
        took = boot() - began
        if far:
            self.far_runs += 1
            self._far_at = boot() + max(1.0 * self.workers, SHARE * took * self.workers)
            return NEAR_EVERY_SECONDS * self.workers
        self.near_runs += 1
        await asyncio.sleep(max(0.01, 10 * took))
        return max(0.0, max(NEAR_EVERY_SECONDS * self.workers, SHARE * took * self.workers) - 10 * took)

    def _bounds(self, now: float, *, far: bool) -> list[tuple[int, Key, Key]]:
        """(priority, low, high) of each region to look at."""
        bounds = []
        for priority in self._floors.known:
            floor = self._floors.trails[priority].start
            history = self._history.setdefault(priority, deque([(now, floor)]))
            if floor != history[-1][1] and now - history[-1][0] > 0.1:
                history.append((now, floor))
            while len(history) > 1 and history[1][0] <= now - NEAR_SECONDS:
                history.popleft()
            if far:
                bounds.append((priority, LOWEST, floor))
            elif history[0][1] != floor:
                bounds.append((priority, history[0][1], floor))
        return bounds

    async def _look(self, bounds: list[tuple[int, Key, Key]], now: float) -> None:
        params: dict[str, Any] = {
            "queue": self._queue,
            "tasks": self._tasks,
            "priorities": [b[0] for b in bounds],
            "low_run_ats": [b[1][0] for b in bounds],
            "low_ids": [b[1][1] for b in bounds],
            "run_ats": [b[2][0] for b in bounds],
            "ids": [b[2][1] for b in bounds],
        }
        by_priority: dict[int, list[tuple[float, int]]] = {}
        for priority, run_at, ident in await self._ear.ask("floors.rescan", params):
            by_priority.setdefault(priority, []).append((run_at, ident))
        for priority, rows in by_priority.items():
            if len(rows) > MOST_IDS:  # a whole region: the hot scan takes it
                self._floors.trails[priority].back((rows[0][0], rows[0][1] - 1), now)
                self._moved_back()
            else:
                self._found([ident for _, ident in rows])

    async def leave(self) -> None:
        """Store the floors once more, for the worker that starts next; a failure costs it one walk."""
        with suppress(*_FAULTS):
            await self._ear.within(1.0, self._store_floors())

    async def _store_floors(self) -> None:
        new = {p: t.start for p, t in self._floors.trails.items() if t.start != LOWEST and self._stored.get(p) != t.start}
        if not new:
            return
        params = {
            "queue": self._queue,
            "priorities": list(new),
            "run_ats": [k[0] for k in new.values()],
            "ids": [k[1] for k in new.values()],
        }
        await self._ear.ask("floors.store_floors", params)
        self._stored.update(new)
