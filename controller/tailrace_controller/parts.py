"""The parts of a controller that leads, put together: who looks, who writes, who notices a change by itself.

`service` starts and stops them; nothing here decides anything.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.names.event_reasons import EventReason
from tailrace_controller.act import Children
from tailrace_controller.autoscalers import Autoscalers
from tailrace_controller.cache import Cache
from tailrace_controller.databases import Databases
from tailrace_controller.environment import Environment
from tailrace_controller.fleet import Fleet
from tailrace_controller.identity import Identity
from tailrace_controller.kube import Kube, Recorder
from tailrace_controller.kube.kinds import POD
from tailrace_controller.observed import PodFacts
from tailrace_controller.orphans import Orphans
from tailrace_controller.pods import Death, Pods
from tailrace_controller.readings import Readings
from tailrace_controller.reconcile import Reconciler
from tailrace_controller.report import Report
from tailrace_controller.rollouts import Rollouts
from tailrace_controller.secrets import Secrets
from tailrace_controller.settings import ControllerSettings
from tailrace_controller.settle import Settler
from tailrace_controller.status.pods import pod_facts
from tailrace_controller.work_queue import Key

__all__ = ["Parts", "put_together"]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What works while this process leads.

    Attributes:
        reconciler: Looks at one JobQueue.
        pods: Takes what the watch brings of pods.
        secrets: Looks at Secrets again and again.
        readings: Looks at figures again and again.
        autoscalers: Looks at autoscalers again and again.
        orphans: Looks for queues whose JobQueue is gone.
    """

    reconciler: Reconciler
    pods: Pods
    secrets: Secrets
    readings: Readings
    autoscalers: Autoscalers
    orphans: Orphans

    async def run(self, *, synced: asyncio.Event) -> None:
        """Notice by itself what no watch tells, until cancelled.

        Args:
            synced: Set once the JobQueues that there are have been listed.
        """
        await synced.wait()
        async with asyncio.TaskGroup() as group:
            for work in (self.secrets.run, self.readings.run, self.autoscalers.run, self.orphans.run):
                group.create_task(work(), name=work.__qualname__)

    async def close(self) -> None:
        """Give up what is under way."""
        await self.pods.close()


def put_together(
    *,
    kube: Kube,
    databases: Databases,
    recorder: Recorder,
    cache: Cache,
    settings: ControllerSettings,
    wake: Callable[[Key], None],
    jitter: Callable[[], float] = random.random,
) -> Parts:
    """Make the parts.

    Args:
        kube: The API server; its writes are fenced by the Lease.
        databases: The databases.
        recorder: Writes events.
        cache: What the watches told.
        settings: The controller's settings.
        wake: Told which JobQueue to look at.
        jitter: A random number in [0, 1).
    """
    namespaces = settings.watch_namespaces
    identity = Identity(kube, namespaces=namespaces)
    secrets = Secrets(kube, changed=wake, jitter=jitter, seconds=settings.secret_seconds)
    readings = Readings(databases, wake=wake, jitter=jitter, seconds=settings.reading_seconds)
    autoscalers = Autoscalers(
        kube, namespaces=namespaces, keys=lambda: cache.resources, wake=wake, seconds=settings.secret_seconds
    )
    own = settings.lease_namespace or kube.place.namespace
    fleet = Fleet(
        children=Children(kube, manager=settings.manager),
        rollouts=Rollouts(most=settings.max_concurrent_rollouts, wake=wake),
        environment=Environment(kube, secrets, namespace=own, name=settings.environment_secret),
        autoscalers=autoscalers,
        recorder=recorder,
    )
    settler = Settler(
        secrets=secrets,
        databases=databases,
        readings=readings,
        recorder=recorder,
        identity=identity,
        allowed_hosts=settings.allowed_database_hosts,
    )
    orphans = Orphans(
        kube=kube,
        databases=databases,
        recorder=recorder,
        identity=identity,
        resources=lambda: cache.resources,
        wake=wake,
        jitter=jitter,
        apart=settings.orphan_seconds,
    )

    def pods_of(key: Key) -> tuple[PodFacts, ...]:
        return tuple(pod_facts(pod) for pod in cache.children(POD, key))

    async def died(key: Key, death: Death, jobs: int) -> None:
        resource = cache.resources.get(key)
        if jobs and resource is not None:
            note = f"worker {death.worker} is dead ({death.reason}): its {jobs} jobs run elsewhere"
            await recorder.event(resource, type="Warning", reason=EventReason.WORKER_DIED, note=note)

    reconciler = Reconciler(
        kube=kube,
        controller_name=settings.controller_name,
        fleet=fleet,
        settler=settler,
        report=Report(kube, recorder, manager=settings.status_manager),
        recorder=recorder,
        pods_of=pods_of,
        gone=lambda key: orphans.hint(settler.target(key)),
        resync=lambda: settings.resync_seconds * (0.5 + 0.5 * jitter()),
    )
    return Parts(
        reconciler=reconciler,
        pods=Pods(database_of=settler.database, told=died),
        secrets=secrets,
        readings=readings,
        autoscalers=autoscalers,
        orphans=orphans,
    )
