"""One JobQueue, level by level: observe → desired → apply → status. Whatever woke it, it does the same.

It reads everything anew and writes only what differs, so that it may run at any time, any number of times, in any process
that holds the Lease. `settle` has the side of the database, `fleet` that of the children, `report` the status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from tailrace.errors import TailraceError
from tailrace.names.conditions import Reason
from tailrace.names.event_reasons import EventReason
from tailrace.queue_spec import JobQueue
from tailrace.queue_spec.document import wrong_fields
from tailrace_controller.fleet import Fleet
from tailrace_controller.kube import Kube, Recorder
from tailrace_controller.kube.kinds import JOBQUEUE
from tailrace_controller.observed import Observed, PodFacts
from tailrace_controller.replicas import Ignored
from tailrace_controller.report import Report
from tailrace_controller.settle import Settler
from tailrace_controller.version import VERSION
from tailrace_controller.work_queue import Key

__all__ = ["Reconciler"]

_AGAIN_SECONDS: Final = 30.0
"""After a problem that only another look can see to be over: a right that was granted, a schema that was migrated."""


class Reconciler:
    """Makes each JobQueue what it says.

    Attributes:
        fleet: The side of the children.
        settler: The side of the database.
    """

    def __init__(
        self,
        *,
        kube: Kube,
        controller_name: str,
        fleet: Fleet,
        settler: Settler,
        report: Report,
        recorder: Recorder,
        pods_of: Callable[[Key], tuple[PodFacts, ...]],
        gone: Callable[[Key], None],
        resync: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Take the parts.

        Args:
            kube: The API server.
            controller_name: Only JobQueues with this spec.controllerName are ours.
            fleet: Keeps the children.
            settler: Keeps the database's side.
            report: Writes the status.
            recorder: Tells people.
            pods_of: What is known of a JobQueue's pods.
            gone: Told that a JobQueue is gone.
            resync: Seconds until a look with nothing changed.
            now: The time of day, for transition times.
        """
        self._kube, self._controller_name = kube, controller_name
        self.fleet, self.settler, self._report, self._recorder = fleet, settler, report, recorder
        self._pods_of, self._gone, self._resync, self._now = pods_of, gone, resync, now
        self._ignored = Ignored()

    async def reconcile(self, key: Key) -> float | None:
        """Look at one JobQueue and make it what it says; returns the seconds until the next look.

        Args:
            key: Its namespace and name.

        Raises:
            KubeError: The API server did not answer, or something changed meanwhile: look again soon.
        """
        live = await self.fleet.look(key)  # before the resource: what is computed from it is then no older
        raw = await self._kube.get(JOBQUEUE, namespace=key[0], name=key[1])
        if raw is None or raw["metadata"].get("deletionTimestamp") or not self._is_ours(raw):
            self._forget(key)
            return None
        resource, invalid = _read(raw)
        seen = Observed(
            raw=raw, resource=resource, invalid=invalid, now=self._now(), controller_version=VERSION, pods=self._pods_of(key)
        )
        self.settler.begin(key)
        seen, demand = await self.settler.settle(key, seen, live=live.deployment)
        seen = await self.fleet.keep(key, seen, live, demand=demand)
        status = await self._report.tell(seen)
        self.settler.told(key, seen, status)
        await self._tell_ignored(key, seen)
        return self._resync() if _well(seen) else min(_AGAIN_SECONDS * self.settler.share(key), self._resync())

    def _forget(self, key: Key) -> None:
        self.fleet.forget(key)
        self.settler.forget(key)
        self._ignored.forget(key)
        self._report.forget(key)
        self._gone(key)

    def _is_ours(self, raw: Mapping[str, Any]) -> bool:
        return bool((raw.get("spec") or {}).get("controllerName", self._controller_name) == self._controller_name)

    async def _tell_ignored(self, key: Key, seen: Observed) -> None:
        if seen.resource is None:
            return
        changed = self._ignored.changed(key, uid=str(seen.raw["metadata"]["uid"]), resource=seen.resource)
        if changed is not None:
            note = (
                f"spec.replicas went from {changed[0]} to {changed[1]}, which counts for nothing in mode Operator: "
                f"{seen.wanted} workers are wanted; set minReplicas and maxReplicas, or mode Disabled"
            )
            await self._recorder.event(seen.raw, type="Warning", reason=EventReason.REPLICAS_IGNORED, note=note)


def _read(raw: Mapping[str, Any]) -> tuple[JobQueue | None, str | None]:
    try:
        return JobQueue.model_validate(raw), None
    except ValidationError as error:
        return None, str(wrong_fields(error))
    except TailraceError as error:
        return None, str(error)


def _well(seen: Observed) -> bool:
    """Whether nothing is left that only another look would notice; a database that is back tells by itself."""
    problem = seen.database.problem if seen.database is not None else None
    waits = problem is not None and not (seen.database is not None and seen.database.reached is False)
    changed = problem is not None and problem.reason is Reason.DATABASE_CHANGED
    held = (seen.conflict, seen.name_taken, seen.child_refused)
    return not waits and not changed and seen.settled is not False and held == (None, None, None)
