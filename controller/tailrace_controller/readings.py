"""The figures of all queues of a database, read together, to notice what status should show and that a database is back.

A reconcile is made only for a queue whose figures have moved by more than `columns` lets pass; so a thousand idle queues
cost one statement for each database, and no write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.clock import boot
from tailrace.db.allowed import Target
from tailrace.errors import DatabaseUnavailable, TailraceError
from tailrace.owners import QueueFacts
from tailrace_controller.databases import Databases
from tailrace_controller.observed import QueueSeen
from tailrace_controller.status.columns import figures
from tailrace_controller.work_queue import Key

__all__ = ["Readings", "queue_seen"]

log: Final = logging.getLogger("tailrace.controller")

_TICK_SECONDS: Final = 0.5
_AWAY_SECONDS: Final = 2.0
_FIELDS: Final = ("jobs", "oldestReadyTime", "oldestDeadLetterTime", "statsTime", "workerVersions")


def queue_seen(facts: QueueFacts) -> QueueSeen:
    """Return what a database says of a queue as a reconcile takes it.

    Args:
        facts: What it said.
    """
    return QueueSeen(
        counts=facts.reading.counts,
        oldest_ready_time=facts.oldest_ready_at,
        oldest_dead_letter_time=facts.oldest_dead_at,
        stats_time=facts.read_at,
        held=facts.held,
        worker_versions=facts.workers,
    )


@dataclass
class _Shown:
    """What a JobQueue's status shows, and where its queue is."""

    queue: str
    held: bool
    status: Mapping[str, Any]


@dataclass
class _Place:
    """One database with the JobQueues that use it."""

    target: Target
    shown: dict[Key, _Shown] = field(default_factory=dict)
    due: float = 0.0
    away: set[Key] = field(default_factory=set)
    busy: asyncio.Task[None] | None = None


class Readings:
    """Looks at the figures of all databases."""

    def __init__(
        self,
        databases: Databases,
        *,
        wake: Callable[[Key], None],
        jitter: Callable[[], float],
        seconds: float = 15.0,
        clock: Callable[[], float] = boot,
    ) -> None:
        """Know no database yet.

        Args:
            databases: The databases.
            wake: Told which JobQueues are worth a look.
            jitter: A random number in [0, 1).
            seconds: Between two looks at one database.
            clock: Seconds that only go forward.
        """
        self._databases, self._wake, self._jitter = databases, wake, jitter
        self._seconds, self._clock = seconds, clock
        self._places: dict[object, _Place] = {}
        self._of: dict[Key, object] = {}

    def shows(self, key: Key, target: Target, *, queue: str, held: bool, status: Mapping[str, Any]) -> None:
        """Note what the status of a JobQueue shows now.

        Args:
            key: The JobQueue.
            target: Its database.
            queue: Its queue there.
            held: Whether it is on hold, as far as was seen.
            status: The status.
        """
        place = self._place(key, target)
        place.shown[key] = _Shown(queue, held, {name: status[name] for name in _FIELDS if name in status})
        place.away.discard(key)

    def away(self, key: Key, target: Target) -> None:
        """Note that a database does not answer; the JobQueue is woken when it does.

        Args:
            key: The JobQueue.
            target: Its database.
        """
        place = self._place(key, target)
        place.away.add(key)
        place.due = min(place.due, self._clock() + _AWAY_SECONDS)

    def forget(self, key: Key) -> None:
        """Drop a JobQueue that is gone or has another database.

        Args:
            key: Its namespace and name.
        """
        mark = self._of.pop(key, None)
        place = self._places.get(mark)
        if place is not None:
            place.shown.pop(key, None)
            place.away.discard(key)
            if not place.shown and not place.away:
                del self._places[mark]

    async def run(self) -> None:
        """Look again and again, until cancelled. A database that is slow keeps no other waiting."""
        try:
            while True:
                for place in list(self._places.values()):
                    if place.due <= self._clock() and (place.busy is None or place.busy.done()):
                        place.busy = asyncio.create_task(self._look(place), name=f"readings of {place.target.address}")
                await asyncio.sleep(min(_TICK_SECONDS, self._seconds / 4))
        finally:
            for place in self._places.values():
                if place.busy is not None:
                    place.busy.cancel()

    async def _look(self, place: _Place) -> None:
        place.due = self._clock() + self._seconds * (0.8 + 0.4 * self._jitter())
        queues = sorted({shown.queue for shown in place.shown.values()})
        try:
            facts = await self._databases.at(place.target).facts(queues)
        except DatabaseUnavailable as error:
            log.debug("figures cannot be read: %s", error)
            place.due = min(place.due, self._clock() + _AWAY_SECONDS)
            for key in place.shown.keys() - place.away:
                self._wake(key)  # its status still says that all is well
            return
        except TailraceError as error:
            log.debug("figures cannot be read: %s", error)
            facts = {}  # it answers; what else is wrong, a reconcile will see
        for key in list(place.away):
            place.away.discard(key)
            self._wake(key)
        for key, shown in list(place.shown.items()):
            found = facts.get(shown.queue)
            if found is not None and _worth_a_look(shown, found):
                self._wake(key)

    def _place(self, key: Key, target: Target) -> _Place:
        mark = (target.key, target.schema)
        if self._of.get(key, mark) != mark:
            self.forget(key)
        self._of[key] = mark
        place = self._places.get(mark)
        if place is None:
            first = self._clock() + self._seconds * self._jitter()
            place = self._places[mark] = _Place(target=target, due=first)
        place.target = target  # the password may be another
        return place


def _worth_a_look(shown: _Shown, facts: QueueFacts) -> bool:
    if facts.held != shown.held:
        return True
    versions = {one["version"]: one["count"] for one in shown.status.get("workerVersions") or ()}
    if dict(facts.workers) != versions:
        return True
    kept = {name: shown.status[name] for name in _FIELDS[:-1] if name in shown.status}
    return figures(queue_seen(facts), shown.status) != kept
