"""The children of one JobQueue: look at them, decide, and write what differs.

The Deployment is made once the database has accepted the queue as ours; from then on it is kept whatever the database
does. `reconcile` calls this after `settle`; `act` writes, `rollouts` gives turns, `replicas` decides the number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tailrace.clock import boot
from tailrace.errors import InvalidOption
from tailrace.names.annotations import Annotation
from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tailrace.queue_spec import JobQueue
from tailrace_controller.act import Children, Put, stranger
from tailrace_controller.autoscalers import Autoscalers
from tailrace_controller.desired import Context, deployment, disruption_budget
from tailrace_controller.environment import Environment
from tailrace_controller.kube import Kind, KubeMissing, KubeRefused, Recorder
from tailrace_controller.kube.kinds import DEPLOYMENT, PDB
from tailrace_controller.observed import Observed
from tailrace_controller.replicas import Wanted, wanted
from tailrace_controller.rollouts import Rollouts, changes_template, marked, terminating
from tailrace_controller.wording import workers
from tailrace_controller.work_queue import Key

__all__ = ["Fleet", "Live"]

Object = Mapping[str, Any]
_TRY_AGAIN_SECONDS: Final = 300.0
_FORBIDDEN: Final = 403


@dataclass(frozen=True, kw_only=True)
class Live:
    """The children as they are."""

    deployment: Object | None
    budget: Object | None


@dataclass(frozen=True)
class _Refused:
    """A template that the API server did not take: it is not asked again about the same one at each look."""

    mark: str
    at: float
    fields: Mapping[str, str]


class Fleet:
    """The children of all JobQueues of one installation."""

    def __init__(
        self,
        *,
        children: Children,
        rollouts: Rollouts,
        environment: Environment,
        autoscalers: Autoscalers,
        recorder: Recorder,
    ) -> None:
        """Take the parts.

        Args:
            children: Reads and writes them.
            rollouts: Gives turns.
            environment: Fingerprints of what pods refer to.
            autoscalers: Finds those that point at a Deployment.
            recorder: Tells people what was done.
        """
        self._children, self._rollouts, self._environment = children, rollouts, environment
        self._autoscalers, self._recorder = autoscalers, recorder
        self._refused: dict[Key, _Refused] = {}

    async def look(self, key: Key) -> Live:
        """Read the children, before the resource is read: what is computed is then no older than they are.

        Args:
            key: The JobQueue.
        """
        found = await asyncio.gather(self._children.read(DEPLOYMENT, key), self._children.read(PDB, key))
        return Live(deployment=found[0], budget=found[1])

    async def keep(self, key: Key, seen: Observed, live: Live, *, demand: Mapping[str, float]) -> Observed:
        """Make the children what they should be, as far as that is decided, and say what became of it.

        Args:
            key: The JobQueue.
            seen: With the resource and what the database said.
            live: The children as they were before the resource was read.
            demand: The terms of the last reading.

        Raises:
            KubeConflict: A child has changed meanwhile; look again.
            KubeUnavailable: The API server did not answer.
        """
        uid, ours, resource = str(seen.raw["metadata"]["uid"]), live.deployment, seen.resource
        if (taken := stranger(DEPLOYMENT, ours, uid=uid)) is not None:
            return replace(seen, name_taken=taken)
        self._rollouts.seen(key, ours)
        if resource is None:
            return replace(seen, deployment=ours)
        decided = wanted(seen, live=ours, demand=demand)
        seen = replace(seen, deployment=ours, wanted=decided.replicas, autoscaling=decided.autoscaling)
        seen = replace(seen, autoscaler_conflict=await self._autoscaler(key, ours, decided))
        if seen.paused or _frozen(seen) or (ours is None and not _may_begin(seen)):
            return seen
        try:
            seen = await self._keep_deployment(key, seen, resource, ours, decided)
            return await self._keep_budget(key, seen, resource, live.budget)
        except KubeMissing:
            return seen  # the namespace has gone, and the resource with it
        except KubeRefused as error:
            return replace(seen, child_refused=error.sentence)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a JobQueue that is gone; garbage collection takes the children.

        Args:
            key: Its namespace and name.
        """
        self._children.forget(key)
        self._rollouts.forget(key)
        self._refused.pop(key, None)

    # ---- the Deployment ----------------------------------------------------------------------------------------------
    async def _keep_deployment(
        self, key: Key, seen: Observed, resource: JobQueue, live: Object | None, decided: Wanted
    ) -> Observed:
        draining = _draining(seen, live)
        replicas = _held_back(resource, live, decided.replicas, draining)
        try:
            environment = await self._environment.of(key, resource, live=live)
            context = Context(uid=str(seen.raw["metadata"]["uid"]), replicas=replicas, environment=environment)
            desired = marked(deployment(resource, context=context))
        except InvalidOption as error:
            return await self._only_replicas(key, seen, live, replicas, template_refused=str(error))
        changes = live is None or changes_template(desired, live)
        if changes and (refused := await self._try_out(key, desired)):
            return await self._only_replicas(key, seen, live, replicas, **refused)
        if changes and live is not None:
            policy = resource.spec.rollout.policy
            waiting = self._rollouts.waits_for(key, live, policy=policy, replicas=decided.replicas, draining=draining)
            if waiting is not None:
                return await self._only_replicas(key, seen, live, replicas, rollout_waiting=waiting)
        put = await self._children.put(DEPLOYMENT, key, desired, live=live)
        self._rollouts.seen(key, put.child)
        await self._tell_deployment(seen, put, live, new_template=changes)
        return replace(seen, deployment=put.child)

    async def _try_out(self, key: Key, desired: Object) -> Mapping[str, str]:
        """What is wrong with a template, as fields of `Observed`; empty when the API server takes it."""
        mark, known = str(desired["metadata"]["annotations"][Annotation.TEMPLATE]), self._refused.get(key)
        if known is not None and known.mark == mark and boot() - known.at < _TRY_AGAIN_SECONDS:
            return known.fields
        self._refused.pop(key, None)
        try:
            await self._children.try_out(DEPLOYMENT, desired)
        except KubeMissing:
            raise
        except KubeRefused as error:
            if error.status == _FORBIDDEN:  # a right, a quota, a webhook: not the template's fault, and soon asked again
                return {"child_refused": error.sentence}
            self._refused[key] = _Refused(mark=mark, at=boot(), fields={"template_refused": error.sentence})
            return self._refused[key].fields
        return {}

    async def _only_replicas(self, key: Key, seen: Observed, live: Object | None, replicas: int, **found: str) -> Observed:
        """A template that waits or is refused must not keep a fleet from being scaled, above all to zero."""
        seen = replace(seen, **found)  # type: ignore[arg-type]
        if live is None or live["spec"].get("replicas") == replicas:
            return seen
        child = await self._children.scale(key, live, replicas)
        await self._scaled(seen, live, child)
        return replace(seen, deployment=child)

    async def _tell_deployment(self, seen: Observed, put: Put, live: Object | None, *, new_template: bool) -> None:
        name = put.child["metadata"]["name"]
        if put.change == "created":
            replicas = put.child["spec"].get("replicas")
            await self._event(seen, EventReason.CHILD_CREATED, f"made the Deployment {name} for {workers(int(replicas or 0))}")
        elif put.change == "restored":
            await self._event(seen, EventReason.DRIFT_RESTORED, f"somebody had changed the Deployment {name}: put back")
        elif put.change == "changed" and new_template:
            await self._event(seen, EventReason.ROLLOUT_STARTED, f"new workers take over in the Deployment {name}")
        elif put.change == "changed" and live is not None and not await self._scaled(seen, live, put.child):
            await self._event(seen, EventReason.CHILD_CHANGED, f"changed the Deployment {name}")

    async def _scaled(self, seen: Observed, before: Object, now: Object) -> bool:
        old, new = before["spec"].get("replicas"), now["spec"].get("replicas")
        if old == new:
            return False
        await self._event(seen, EventReason.SCALED, f"from {old} to {new} workers")
        return True

    # ---- the PodDisruptionBudget -------------------------------------------------------------------------------------
    async def _keep_budget(self, key: Key, seen: Observed, resource: JobQueue, live: Object | None) -> Observed:
        uid = str(seen.raw["metadata"]["uid"])
        desired = disruption_budget(resource, context=Context(uid=uid, replicas=0))
        taken = stranger(PDB, live, uid=uid)
        if taken is not None:
            return seen if desired is None else replace(seen, name_taken=taken)
        if desired is None:
            if live is not None:
                await self._children.delete(PDB, key, live)
                await self._tell(seen, PDB, EventReason.CHILD_DELETED, "deleted", live)
            return seen
        put = await self._children.put(PDB, key, desired, live=live)
        told = {
            "created": (EventReason.CHILD_CREATED, "made"),
            "changed": (EventReason.CHILD_CHANGED, "changed"),
            "restored": (EventReason.DRIFT_RESTORED, "put back"),
        }
        if put.change in told:
            await self._tell(seen, PDB, *told[put.change], put.child)
        return seen

    # ---- what else ---------------------------------------------------------------------------------------------------
    async def _autoscaler(self, key: Key, live: Object | None, decided: Wanted) -> str | None:
        if live is None:
            return None
        drifted = live["spec"].get("replicas") != decided.replicas
        return await self._autoscalers.on(key, fresh=drifted)

    async def _tell(self, seen: Observed, kind: Kind, reason: EventReason, verb: str, child: Object) -> None:
        await self._event(seen, reason, f"{verb} the {kind.kind} {child['metadata']['name']}")

    async def _event(self, seen: Observed, reason: EventReason, note: str) -> None:
        await self._recorder.event(seen.raw, type="Normal", reason=reason, note=note)


def _frozen(seen: Observed) -> bool:
    """Another database behind the Secret: until somebody has decided, nothing follows from what is there."""
    problem = seen.database.problem if seen.database is not None else None
    return problem is not None and problem.reason is Reason.DATABASE_CHANGED


def _may_begin(seen: Observed) -> bool:
    """A first Deployment needs the database's word that the queue is ours; one that was lost does not."""
    if seen.settled:
        return True
    if seen.conflict is not None:
        return False
    stalled = {
        condition.get("reason")
        for condition in seen.previous.get("conditions") or ()
        if condition.get("type") == ConditionType.STALLED and condition.get("status") == "True"
    }
    known = bool((seen.previous.get("database") or {}).get("installationID"))
    return known and not stalled & {Reason.CONFLICTED, Reason.NAME_TAKEN}


def _draining(seen: Observed, live: Object | None) -> int:
    """Older API servers do not count the pods that end, so ours are counted too."""
    if live is None:
        return 0
    if "terminatingReplicas" in (live.get("status") or {}):
        return terminating(live)
    return sum(pod.terminating for pod in seen.pods)


def _held_back(resource: JobQueue, live: Object | None, replicas: int, draining: int) -> int:
    """No scale-out while more workers drain than are wanted: a Deployment does not count them."""
    if live is None or resource.spec.rollout.policy != "Paced" or draining <= max(replicas, 1):
        return replicas
    return min(replicas, int(live["spec"].get("replicas") or 0))
