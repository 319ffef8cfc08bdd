"""What runs only while this process holds the Lease: the watches, the work queue, and all that writes to the API server.

Made anew for each time it leads, so that nothing that was known before is believed. Reads like a table of contents; the
work is in the parts. `service` starts and ends it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tailrace.names.event_reasons import EventReason
from tailrace_controller.act import Children
from tailrace_controller.autoscalers import Autoscalers
from tailrace_controller.cache import Cache
from tailrace_controller.databases import Databases, Target
from tailrace_controller.environment import Environment
from tailrace_controller.fleet import Fleet
from tailrace_controller.identity import Identity
from tailrace_controller.kube import Kube, Recorder
from tailrace_controller.kube.kinds import DEPLOYMENT, POD
from tailrace_controller.observed import PodFacts
from tailrace_controller.orphans import Orphans
from tailrace_controller.pods import Death, Pods
from tailrace_controller.queue_page import Line
from tailrace_controller.readings import Readings
from tailrace_controller.reconcile import Reconciler
from tailrace_controller.report import Report
from tailrace_controller.rollouts import Rollouts
from tailrace_controller.roster import Served, served
from tailrace_controller.secrets import Secrets
from tailrace_controller.settings import ControllerSettings
from tailrace_controller.settle import Settler
from tailrace_controller.status.pods import pod_facts
from tailrace_controller.triggers import Triggers
from tailrace_controller.work_queue import Key, WorkCounts, WorkQueue

__all__ = ["Leading"]

_MOST_EXAMPLES: Final = 200
"""Pods of one JobQueue that a status looks at; more tell nothing new."""


class Leading:
    """One term of leadership."""

    def __init__(
        self,
        *,
        kube: Kube,
        databases: Databases,
        settings: ControllerSettings,
        identity: str,
        lease_namespace: str,
        counts: WorkCounts,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Put the parts together; nothing runs yet.

        Args:
            kube: The API server, fenced by the Lease.
            databases: The databases.
            settings: The settings.
            identity: Ours in the Lease, for events.
            lease_namespace: Where the controller's own objects are.
            counts: Where looks are counted; they outlive the term.
            jitter: Gives a number from 0 up to 1.
        """
        self._settings, self._jitter, self._databases = settings, jitter, databases
        self.cache = Cache(controller_name=settings.controller_name)
        self.queue = queue = WorkQueue(jitter=jitter, counts=counts)
        self.recorder = Recorder(kube, controller=settings.controller_name, instance=identity)
        self.secrets = Secrets(kube, changed=queue.add, jitter=jitter, seconds=settings.secret_seconds)
        self.readings = Readings(databases, wake=queue.add, jitter=jitter, seconds=settings.reading_seconds)
        self.autoscalers = Autoscalers(
            kube,
            namespaces=settings.watch_namespaces,
            keys=lambda: self.cache.resources,
            wake=queue.add,
            seconds=settings.secret_seconds,
        )
        owners = Identity(kube, namespaces=settings.watch_namespaces)
        self.settler = self._settler(owners)
        self.orphans = self._orphans(kube, owners)
        self.pods = Pods(database_of=self.settler.database, told=self._tell_death)
        self.reconciler = self._reconciler(kube, lease_namespace)
        self.triggers = Triggers(kube, self.cache, settings, on_change=queue.add, on_pod=self.pods.on_pod, jitter=jitter)

    def _settler(self, owners: Identity) -> Settler:
        return Settler(
            secrets=self.secrets,
            databases=self._databases,
            readings=self.readings,
            recorder=self.recorder,
            identity=owners,
            allowed_hosts=self._settings.allowed_database_hosts,
        )

    def _orphans(self, kube: Kube, owners: Identity) -> Orphans:
        return Orphans(
            kube=kube,
            databases=self._databases,
            recorder=self.recorder,
            identity=owners,
            resources=lambda: self.cache.resources,
            wake=self.queue.add,
            jitter=self._jitter,
            apart=self._settings.orphan_seconds,
        )

    def _reconciler(self, kube: Kube, lease_namespace: str) -> Reconciler:
        settings = self._settings
        fleet = Fleet(
            children=Children(kube, manager=settings.manager),
            rollouts=Rollouts(most=settings.max_concurrent_rollouts, wake=self.queue.add),
            environment=Environment(kube, self.secrets, namespace=lease_namespace, name=settings.environment_secret),
            autoscalers=self.autoscalers,
            recorder=self.recorder,
        )
        return Reconciler(
            kube=kube,
            controller_name=settings.controller_name,
            fleet=fleet,
            settler=self.settler,
            report=Report(kube, self.recorder, manager=settings.status_manager),
            recorder=self.recorder,
            pods_of=self._pod_facts,
            gone=lambda key: self.orphans.hint(self.settler.target(key)),
            resync=lambda: settings.resync_seconds * (0.5 + 0.5 * self._jitter()),
        )

    async def run(self) -> None:
        """Do it until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.triggers.run(), name="triggers")
                group.create_task(self._work(), name="work queue")
                for part in (self.secrets, self.readings, self.autoscalers, self.orphans):
                    group.create_task(self._after_sync(part.run), name=type(part).__name__)
        finally:
            await self.pods.close()
            await self.recorder.close()

    async def _work(self) -> None:
        await self.triggers.synced.wait()
        await self.queue.run(self.reconciler.reconcile, workers=self._settings.reconcile_workers)

    async def _after_sync(self, run: Callable[[], Awaitable[None]]) -> None:
        await self.triggers.synced.wait()
        await run()

    async def _tell_death(self, key: Key, death: Death, jobs: int) -> None:
        self.queue.add(key)
        resource = self.cache.resources.get(key)
        if resource is not None and jobs:
            note = f"worker {death.worker} is dead ({death.reason}): its {jobs} jobs run elsewhere"
            await self.recorder.event(resource, type="Warning", reason=EventReason.WORKER_DIED, note=note)

    def _pod_facts(self, key: Key) -> tuple[PodFacts, ...]:
        return tuple(pod_facts(pod) for pod in self.cache.children(POD, key)[:_MOST_EXAMPLES])

    # ---- what others ask ---------------------------------------------------------------------------------------------
    def served(self) -> list[Served]:
        """Every JobQueue whose database is known."""
        targets = ((resource, self.settler.target(key)) for key, resource in self.cache.resources.items())
        return [served(resource, target) for resource, target in targets if target is not None]

    def targets(self) -> set[Target]:
        """Every database that is in use, also of JobQueues that are gone while their pods end."""
        keys: set[Key] = {*self.cache.resources, *self.cache.keys(POD)}
        return {target for key in keys if (target := self.settler.target(key)) is not None}

    def line(self, key: Key, resource: Mapping[str, Any]) -> Line:
        """What metrics tell of a JobQueue beyond its figures.

        Args:
            key: Its namespace and name.
            resource: As the API server has it.
        """
        spec = resource["spec"]
        replicas: dict[str, int] = {}
        for deployment in self.cache.children(DEPLOYMENT, key)[:1]:
            status = deployment.get("status") or {}
            replicas = {"current": int(status.get("replicas") or 0), "ready": int(status.get("readyReplicas") or 0)}
        autoscaling = spec.get("autoscaling") or {}
        for kind in ("min", "max"):
            if (number := autoscaling.get(f"{kind}Replicas")) is not None:
                replicas[kind] = int(number)
        queue = str(spec.get("queueName") or key[1])
        return Line(namespace=key[0], queue=queue, status=resource.get("status") or {}, replicas=replicas)
