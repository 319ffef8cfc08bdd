"""Which resources to look at, and when: one at a time for each key, soonest first, with pauses that grow after failures.

`triggers` adds keys, the reconciler works them off and says when to look again. How long a failure waits depends on its
class: what is transient or a conflict soon, what is refused late, since only a change mends it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tailrace.clock import boot
from tailrace.errors import TailraceError
from tailrace.histogram import Histogram
from tailrace.names.events import Event
from tailrace_controller.kube.errors import KubeConflict, KubeError, NotLeading

__all__ = ["RESULTS", "Key", "WorkCounts", "WorkQueue", "pause_after"]

log: Final = logging.getLogger("tailrace.controller")

Key = tuple[str, str]
"""Namespace and name of a JobQueue."""
Reconcile = Callable[[Key], Awaitable[float | None]]
Result = Literal["success", "requeue", "error"]
RESULTS: Final[tuple[Result, ...]] = ("success", "requeue", "error")

_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MOST_DOUBLINGS: Final = 20


@dataclass
class WorkCounts:
    """What was done, as plain numbers for metrics.

    Attributes:
        results: Looks by result: success, requeue (wants to look again soon), error.
        errors: Failed looks by the class of the error.
        seconds: How long looks took.
    """

    results: Counter[Result] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    seconds: Histogram = field(default_factory=lambda: Histogram(_BOUNDS))


def pause_after(error: BaseException, failures: int, *, jitter: float) -> float:
    """Return the seconds to wait after a failure.

    Args:
        error: What failed.
        failures: How often in a row, this one included.
        jitter: A number from 0 up to 1.
    """
    first, most = 5.0, 300.0  # refused, or something that nobody thought of
    if isinstance(error, KubeConflict):
        first, most = 0.1, 5.0
    elif isinstance(error, TailraceError) and error.retryable:
        first, most = 0.5, 60.0
    pause = min(most, first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)) * (0.75 + 0.5 * jitter)
    asked = error.retry_after if isinstance(error, KubeError) else None
    return max(pause, asked or 0.0)


@dataclass
class _Entry:
    """One key that is to be looked at, is being looked at, or failed before.

    Attributes:
        due: When to look next; None while nothing asks for it.
        asked: Since when somebody waits for it.
        busy: Whether it is being looked at.
        failures: Failures in a row.
    """

    due: float | None = None
    asked: float = 0.0
    busy: bool = False
    failures: int = 0


class WorkQueue:
    """Keys with their times.

    Attributes:
        counts: What was done.
    """

    def __init__(
        self,
        *,
        counts: WorkCounts | None = None,
        clock: Callable[[], float] = boot,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Begin empty.

        Args:
            counts: Where to count; None makes new counters.
            clock: Seconds that only go forward.
            jitter: Gives a number from 0 up to 1.
        """
        self._clock, self._jitter = clock, jitter
        self._entries: dict[Key, _Entry] = {}
        self._heap: list[tuple[float, Key]] = []
        self._news = asyncio.Event()
        self.counts = WorkCounts() if counts is None else counts

    def add(self, key: Key, *, after: float = 0.0) -> None:
        """Look at a key; a sooner time than the one it has wins, and a key that is being looked at gets another look.

        Args:
            key: Which.
            after: Seconds from now.
        """
        now = self._clock()
        entry = self._entries.setdefault(key, _Entry())
        due = now + after
        if entry.due is None or due < entry.due:
            entry.due, entry.asked = due, due
            if not entry.busy:
                self._push(key, due)

    @property
    def depth(self) -> int:
        """Keys that are due and wait for their turn; may be asked from any thread, as the next."""
        return len(self._waiting())

    @property
    def oldest_seconds(self) -> float:
        """How long the key that waits longest has been due; 0 when none waits."""
        return max(self._waiting(), default=0.0)

    @property
    def idle(self) -> bool:
        """Whether nothing is due and nothing is being looked at."""
        return self.depth == 0 and not any(entry.busy for entry in list(self._entries.values()))

    async def run(self, reconcile: Reconcile, *, workers: int) -> None:
        """Work keys off until cancelled; what is under way then is cancelled too.

        Args:
            reconcile: Looks at one key and returns the seconds until it wants to look again; None = when somebody asks.
            workers: Looks at the same time.
        """
        free = asyncio.Semaphore(workers)
        async with asyncio.TaskGroup() as group:
            while True:
                await free.acquire()
                key = await self._next()
                entry = self._entries[key]
                entry.busy, entry.due = True, None
                group.create_task(self._look(key, entry, reconcile, free), name=f"reconcile {key[0]}/{key[1]}")

    # ---- inside ------------------------------------------------------------------------------------------------------
    def _waiting(self) -> list[float]:
        """The seconds that each key has been due."""
        now, entries = self._clock(), list(self._entries.values())
        return [now - entry.asked for entry in entries if not entry.busy and entry.due is not None and entry.due <= now]

    def _push(self, key: Key, due: float) -> None:
        heapq.heappush(self._heap, (due, key))
        self._news.set()

    async def _next(self) -> Key:
        """Wait for the key that is due first. Entries of the heap that were overtaken are passed over."""
        while True:
            now = self._clock()
            while self._heap:
                due, key = self._heap[0]
                entry = self._entries.get(key)
                if entry is None or entry.busy or entry.due != due:
                    heapq.heappop(self._heap)
                    continue
                if due <= now:
                    heapq.heappop(self._heap)
                    return key
                break
            self._news.clear()
            wait = min(self._heap[0][0] - now, 1.0) if self._heap else 1.0
            try:
                async with asyncio.timeout(max(0.0, wait)):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _look(self, key: Key, entry: _Entry, reconcile: Reconcile, free: asyncio.Semaphore) -> None:
        began = self._clock()
        try:
            again = await reconcile(key)
        except Exception as error:  # noqa: BLE001 - the loop's boundary: one key must not end the others
            again = self._failed(key, entry, error)
        else:
            entry.failures = 0
            soon = again is not None and again < 30.0
            self.counts.results["requeue" if soon else "success"] += 1
        finally:
            entry.busy = False
            self.counts.seconds.observe(self._clock() - began)
            free.release()
        log.debug("reconciled", extra={"event": Event.RECONCILED, **_named(key), "seconds": round(self._clock() - began, 3)})
        self._after(key, entry, again)

    def _after(self, key: Key, entry: _Entry, again: float | None) -> None:
        """Put the key back: at the time it asked for, or sooner if somebody asked meanwhile."""
        if again is not None and (entry.due is None or self._clock() + again < entry.due):
            entry.due = entry.asked = self._clock() + again
        if entry.due is not None:
            self._push(key, entry.due)
        elif not entry.failures:
            self._entries.pop(key, None)

    def _failed(self, key: Key, entry: _Entry, error: Exception) -> float:
        entry.failures += 1
        self.counts.results["error"] += 1
        self.counts.errors[type(error).__name__] += 1
        pause = pause_after(error, entry.failures, jitter=self._jitter())
        fields: dict[str, Any] = {
            "event": Event.RECONCILE_FAILED,
            **_named(key),
            "error": str(error),
            "again_seconds": round(pause, 1),
        }
        known = isinstance(error, TailraceError)
        level = logging.DEBUG if isinstance(error, KubeConflict | NotLeading) else logging.WARNING if known else logging.ERROR
        log.log(level, "reconcile failed: %s", error, extra=fields, exc_info=None if known else error)
        return pause


def _named(key: Key) -> dict[str, str]:
    return {"resource_namespace": key[0], "resource": key[1]}
