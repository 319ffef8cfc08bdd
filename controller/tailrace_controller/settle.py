"""The side of the database: from the Secret to the queue's row, and what the database says of the queue.

Secret → connection string → database → schema → the same installation as before → settings written for their owner →
figures. Each step has its own way to fail, with its own reason; what follows is then left as it is.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tailrace.db.allowed import Target
from tailrace.errors import (
    DatabaseChanged,
    DatabaseUnavailable,
    InvalidOption,
    SchemaTooOld,
    TailraceError,
)
from tailrace.names.annotations import Annotation
from tailrace.names.event_reasons import EventReason
from tailrace.names.events import Event
from tailrace.owners import Owner, Settled
from tailrace.queue_spec import JobQueue
from tailrace_controller.connection_string import connection_string
from tailrace_controller.database_seen import conflict, reached, refused
from tailrace_controller.databases import DatabaseFacts, Databases, QueueDatabase
from tailrace_controller.identity import Identity
from tailrace_controller.kube import KubeError, Recorder
from tailrace_controller.observed import Observed
from tailrace_controller.readings import Readings, queue_seen
from tailrace_controller.secrets import Secrets
from tailrace_controller.work_queue import Key

__all__ = ["Settler"]

log: Final = logging.getLogger("tailrace.controller")

Object = Mapping[str, Any]
Demand = Mapping[str, float]
_REMEMBERED: Final = 1000
_QUEUES_FOR_ONE_LOOK: Final = 300
"""So many queues of one database are looked at again in the usual time; more take longer, together the same load."""


class Settler:
    """Brings JobQueues and their queues together."""

    def __init__(
        self,
        *,
        secrets: Secrets,
        databases: Databases,
        readings: Readings,
        recorder: Recorder,
        identity: Identity,
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        """Take the parts.

        Args:
            secrets: Reads Secrets.
            databases: The databases that they lead to.
            readings: Told what statuses show.
            recorder: Tells people.
            identity: Of this cluster, by which a queue's row names its owner.
            allowed_hosts: Hosts that connection strings may name; none allows all.
        """
        self._secrets, self._databases, self._readings, self._recorder = secrets, databases, readings, recorder
        self._identity, self._allowed_hosts = identity, tuple(allowed_hosts)
        self._targets: dict[Key, Target] = {}
        self._read: dict[Key, Target] = {}
        self._gone: OrderedDict[Key, Target] = OrderedDict()
        self._sharing: Counter[object] = Counter()

    # ---- what others ask ---------------------------------------------------------------------------------------------
    def target(self, key: Key) -> Target | None:
        """Return where a JobQueue's Secret led to last; also of one that is gone, while its workers end.

        Args:
            key: The JobQueue.
        """
        return self._targets.get(key) or self._gone.get(key)

    def database(self, key: Key) -> QueueDatabase | None:
        """Return the database of a JobQueue; None while it is not known.

        Args:
            key: The JobQueue.
        """
        target = self.target(key)
        return None if target is None else self._databases.at(target)

    def share(self, key: Key) -> float:
        """Return by how much looks at a JobQueue are spread, since many use its database.

        Args:
            key: The JobQueue.
        """
        target = self._targets.get(key)
        return 1.0 if target is None else max(1.0, self._sharing[target.key] / _QUEUES_FOR_ONE_LOOK)

    def begin(self, key: Key) -> None:
        """Begin a reconcile, whose end is `told`: what it does not read is no longer looked at.

        Args:
            key: The JobQueue.
        """
        self._secrets.begin(key)

    def told(self, key: Key, seen: Observed, status: Object) -> None:
        """End a reconcile: note what its status says, so that a change of the figures is noticed.

        Args:
            key: The JobQueue.
            seen: What its reconcile saw.
            status: What was told.
        """
        self._secrets.end(key)
        target = self._targets.get(key)
        if target is None or seen.database is None or seen.resource is None:
            self._readings.forget(key)
        elif seen.database.reached is False:
            self._readings.away(key, target)
        elif seen.queue is not None:
            self._readings.shows(key, target, queue=seen.resource.queue, held=seen.queue.held, status=status)
        else:
            self._readings.forget(key)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a JobQueue that is gone, but where its workers' jobs are.

        Args:
            key: Its namespace and name.
        """
        self._secrets.begin(key)
        self._secrets.end(key)
        self._readings.forget(key)
        self._read.pop(key, None)
        target = self._targets.pop(key, None)
        if target is not None:
            self._sharing[target.key] -= 1
            self._gone[key] = target
            while len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)

    # ---- one reconcile -----------------------------------------------------------------------------------------------
    async def settle(self, key: Key, seen: Observed, *, live: Object | None) -> tuple[Observed, Demand]:
        """Write the settings of a JobQueue into its queue, as far as that is possible, and say what was seen.

        Args:
            key: The JobQueue.
            seen: With the resource.
            live: Its Deployment, if there is one: the Secret that it mounts is the one of before.

        Returns:
            What was seen, and the terms of the demand; empty for none.

        Raises:
            KubeUnavailable: The API server did not answer.
        """
        resource = seen.resource
        if resource is None:
            return seen, {}
        secret, target = await connection_string(self._secrets, key, seen, resource, allowed_hosts=self._allowed_hosts)
        seen = replace(seen, secret=secret)
        if target is None:
            return seen, {}
        await self._tell_secret(key, seen, target)
        database = self._databases.at(target)
        try:
            facts = await self._look(database, seen, resource)
            if _is_same_secret(resource, live):
                facts.must_be((seen.previous.get("database") or {}).get("installationID"))
        except TailraceError as error:
            if not isinstance(error, DatabaseChanged) or key not in self._targets:
                self._is_at(key, target)  # what is known of dead workers goes to the database of before
            return replace(seen, database=refused(target, error, manual=_is_manual(resource)), settled=False), {}
        self._is_at(key, target)
        seen = replace(seen, database=reached(facts))
        try:
            return await self._write(key, seen, resource, database)
        except KubeError:
            raise
        except InvalidOption as error:
            return replace(seen, invalid=str(error), settled=False), {}
        except TailraceError as error:
            return replace(seen, database=refused(target, error, manual=False), settled=False), {}

    def _is_at(self, key: Key, target: Target) -> None:
        before = self._targets.get(key)
        if before is None or before.key != target.key:
            if before is not None:
                self._sharing[before.key] -= 1
            self._sharing[target.key] += 1
        self._targets[key] = target

    async def _look(self, database: QueueDatabase, seen: Observed, resource: JobQueue) -> DatabaseFacts:
        """Look, and migrate where the resource allows it and something is missing."""
        before: int | None = None
        try:
            facts = await database.look()
            if facts.pending is None or _is_manual(resource) or seen.paused:
                return facts
            before = facts.schema_version
            try:
                facts = await database.migrate()
            except (SchemaTooOld, DatabaseUnavailable):
                raise
            except TailraceError:
                return facts  # it can be worked with; the condition says what waits
        except SchemaTooOld:
            if _is_manual(resource) or seen.paused:
                raise
            facts = await database.migrate()
        if facts.schema_version != before:
            note = f"the schema of {facts.address} is at migration {facts.schema_version} now"
            await self._recorder.event(seen.raw, type="Normal", reason=EventReason.SCHEMA_MIGRATED, note=note)
        return facts

    async def _write(self, key: Key, seen: Observed, resource: JobQueue, database: QueueDatabase) -> tuple[Observed, Demand]:
        if not seen.paused:
            settled = await self._settle(key, seen, resource, database)
            if settled.outcome == "conflicted":
                cluster = await self._identity.of(key[0])
                return replace(seen, settled=False, conflict=conflict(resource, settled.owner, cluster=cluster)), {}
            if settled.outcome == "stale":
                self._tell_stale(key, seen, settled.owner)
            else:
                await self._tell(seen, resource, settled)
            seen = replace(seen, settled=settled.outcome != "stale")
        facts = (await database.facts([resource.queue])).get(resource.queue)
        if facts is None:
            return seen, {}
        return replace(seen, queue=queue_seen(facts)), facts.reading.demand

    async def _settle(self, key: Key, seen: Observed, resource: JobQueue, database: QueueDatabase) -> Settled:
        cluster, uid = await self._identity.of(key[0]), str(seen.raw["metadata"]["uid"])
        owner = Owner(cluster=cluster, uid=uid, namespace=key[0], name=key[1], generation=seen.generation)
        settings, asked = resource.spec.database_part(), resource.metadata.annotations.get(Annotation.TAKE_OVER)
        settled = await database.settle(owner, resource.queue, settings, take_over=asked)
        known = settled.owner
        # A name is one resource at a time, and ours was just read: a recorded one of this name is gone, and this was made in
        # its place. The same uid is the same resource, seen by a controller with other rights.
        replaced = (known.cluster, known.namespace, known.name) == (cluster, *key)
        if settled.outcome == "conflicted" and (replaced or known.uid == uid):
            return await database.settle(owner, resource.queue, settings, take_over=known.uid)
        return settled

    # ---- words -------------------------------------------------------------------------------------------------------
    async def _tell_secret(self, key: Key, seen: Observed, target: Target) -> None:
        before, self._read[key] = self._read.get(key, target), target
        if before != target:
            note = "the Secret has another connection string: workers take it at their next connect"
            await self._recorder.event(seen.raw, type="Normal", reason=EventReason.SECRET_CHANGED, note=note)

    def _tell_stale(self, key: Key, seen: Observed, owner: Owner) -> None:
        """A moment's matter when two controllers change over; for good only after a restore of the cluster."""
        fields = {
            "event": Event.GENERATION_STALE,
            "resource_namespace": key[0],
            "resource": key[1],
            "generation": owner.generation,
        }
        log.warning(
            "the database has generation %d of this JobQueue, which is at %d; after a restore set %s to its own uid",
            owner.generation,
            seen.generation,
            Annotation.TAKE_OVER,
            extra=fields,
        )

    async def _tell(self, seen: Observed, resource: JobQueue, settled: Settled) -> None:
        if settled.adopted is not None:
            note = f"the queue {resource.queue} was there ({settled.adopted}) and belongs to this JobQueue now"
            await self._recorder.event(seen.raw, type="Normal", reason=EventReason.QUEUE_ADOPTED, note=note)
        elif settled.outcome != "unchanged":
            note = f"the settings of the queue {resource.queue} are in the database, as of generation {seen.generation}"
            await self._recorder.event(seen.raw, type="Normal", reason=EventReason.SETTINGS_STORED, note=note)


def _is_manual(resource: JobQueue) -> bool:
    return resource.spec.database is not None and resource.spec.database.migration_policy == "Manual"


def _is_same_secret(resource: JobQueue, live: Object | None) -> bool:
    """Whether the workers mount the Secret that the resource names: a resource that names another means another database."""
    if live is None or resource.spec.database is None:
        return True
    spec = live["spec"]["template"].get("spec") or {}
    mounted = {(volume.get("secret") or {}).get("secretName") for volume in spec.get("volumes") or ()}
    return resource.spec.database.secret_ref.name in mounted
