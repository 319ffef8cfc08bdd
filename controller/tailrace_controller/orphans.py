"""Queues whose JobQueue is gone, also one that was deleted while no controller ran.

Their schedules end and another resource may have them; jobs and dead letters stay. That a resource is gone is believed only
after the API server has said so twice, a minute apart, for a kind that it knows: a stale cache or a restore ends nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tailrace.clock import boot
from tailrace.db.allowed import Target
from tailrace.errors import TailraceError
from tailrace.names.event_reasons import EventReason
from tailrace.names.events import Event
from tailrace.owners import Owned, Owner
from tailrace_controller.databases import Databases, QueueDatabase
from tailrace_controller.identity import Identity
from tailrace_controller.kube import Kube, KubeError, Recorder
from tailrace_controller.kube.kinds import JOBQUEUE
from tailrace_controller.work_queue import Key

__all__ = ["APART_SECONDS", "Orphans"]

log: Final = logging.getLogger("tailrace.controller")

APART_SECONDS: Final = 60.0
"""Seconds between the two times that a resource must have been missing."""

_PERIOD_SECONDS: Final = 450.0
_POLL_SECONDS: Final = 1.0

_Mark = tuple[object, str, str]
"""A place, a queue there, and the uid of its owner."""


class Orphans:
    """Looks for queues of this cluster whose resource is gone."""

    def __init__(
        self,
        *,
        kube: Kube,
        databases: Databases,
        recorder: Recorder,
        identity: Identity,
        resources: Callable[[], Mapping[Key, Mapping[str, Any]]],
        wake: Callable[[Key], None],
        jitter: Callable[[], float],
        apart: float = APART_SECONDS,
        clock: Callable[[], float] = boot,
    ) -> None:
        """Suspect nobody yet.

        Args:
            kube: The API server.
            databases: Those of the resources that were seen.
            recorder: Tells people.
            identity: Of this cluster.
            resources: The JobQueues that are known, by key.
            wake: Told of JobQueues that may have a queue now whose owner is gone.
            jitter: A number from 0 up to 1.
            apart: Seconds between the two looks.
            clock: Seconds that only go forward.
        """
        self._kube, self._databases, self._recorder = kube, databases, recorder
        self._identity, self._resources, self._wake = identity, resources, wake
        self._jitter, self._apart, self._clock = jitter, apart, clock
        self._missing_since: dict[_Mark, float] = {}
        self._lately: dict[object, Target] = {}
        self._looked_at: set[object] = set()
        self._due = clock()
        self._soon = False

    def hint(self, target: Target | None) -> None:
        """A resource was seen to go: look now and not first at the next round.

        Args:
            target: Its database, which nobody else may use any more; None when it is not known.
        """
        if target is not None:
            self._lately[target.place] = target
        self._soon = True

    async def run(self) -> None:
        """Look now and at each round, until cancelled; a suspicion is looked into when it may be told."""
        while True:
            if self._soon or self._clock() >= self._due or self._places().keys() - self._looked_at:
                self._soon = False
                await self.look()
                pause = self._apart if self._missing_since else _PERIOD_SECONDS * (0.8 + 0.4 * self._jitter())
                self._due = self._clock() + pause
            await asyncio.sleep(min(_POLL_SECONDS, self._apart / 4))

    async def look(self) -> int:
        """Compare all databases with the resources there are; returns how many queues were orphaned now."""
        try:
            clusters = await self._identity.all()
        except KubeError:
            return 0
        found = 0
        places = self._places()
        self._looked_at = set(places)
        for place, target in places.items():
            database = self._databases.at(target)
            try:
                owned = [one for cluster in clusters for one in await database.owned(cluster)]
            except TailraceError:
                continue  # its own condition tells
            found += sum([await self._look_at(place, database, one) for one in owned])
            self._forget(place, owned)
        return found

    def _places(self) -> dict[object, Target]:
        """The databases of all resources, also of those that have gone lately."""
        return {**self._lately, **{one.place: one for one in self._databases.targets()}}

    async def _look_at(self, place: object, database: QueueDatabase, one: Owned) -> bool:
        mark = (place, one.queue, one.owner.uid)
        if one.orphaned or not await self._is_gone(one.owner):
            self._missing_since.pop(mark, None)
            return False
        if self._clock() - self._missing_since.setdefault(mark, self._clock()) < self._apart:
            return False
        return await self._orphan(database, one.queue, one.owner)

    def _forget(self, place: object, owned: Sequence[Owned]) -> None:
        """Drop suspicions about queues that have another owner by now, and a database where every owner is known."""
        still = {(place, one.queue, one.owner.uid) for one in owned if not one.orphaned}
        for mark in [mark for mark in self._missing_since if mark[0] == place and mark not in still]:
            del self._missing_since[mark]
        if all(one.orphaned or self._is_known(one.owner) for one in owned):
            self._lately.pop(place, None)

    def _is_known(self, owner: Owner) -> bool:
        known = self._resources().get((owner.namespace, owner.name))
        return known is not None and known["metadata"].get("uid") == owner.uid

    async def _is_gone(self, owner: Owner) -> bool:
        """Whether the API server itself says now that there is no such resource."""
        if self._is_known(owner):
            return False
        try:
            found = await self._kube.get(JOBQUEUE, namespace=owner.namespace, name=owner.name)
            if found is not None:
                return bool(found["metadata"].get("uid") != owner.uid)
            await self._kube.list(JOBQUEUE, namespace=owner.namespace)  # a kind that is not known is missing too
        except KubeError:
            return False
        return True

    async def _orphan(self, database: QueueDatabase, queue: str, owner: Owner) -> bool:
        try:
            done = await database.orphan(queue, owner)
        except TailraceError as error:
            log.warning("a queue without its JobQueue waits: %s", error, extra={"event": Event.QUEUE_ORPHANED, "queue": queue})
            return False
        if done:
            fields = {
                "event": Event.QUEUE_ORPHANED,
                "queue": queue,
                "resource_namespace": owner.namespace,
                "resource": owner.name,
            }
            log.info("the JobQueue is gone: its jobs stay, its schedules are off", extra=fields)
            note = f"the queue {queue} has no JobQueue: its jobs stay, its schedules are off; applying it again adopts the queue"
            self._missing_since = {mark: at for mark, at in self._missing_since.items() if mark[2] != owner.uid}
            self._wake_others(queue)
            await self._recorder.event(_gone(owner), type="Normal", reason=EventReason.QUEUE_ORPHANED, note=note)
        return done

    def _wake_others(self, queue: str) -> None:
        """Whoever was refused the queue may have it now."""
        for key, resource in self._resources().items():
            if (resource.get("spec") or {}).get("queueName", key[1]) == queue:
                self._wake(key)


def _gone(owner: Owner) -> Mapping[str, Any]:
    metadata = {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid}
    return {"apiVersion": JOBQUEUE.api_version, "kind": JOBQUEUE.kind, "metadata": metadata}
