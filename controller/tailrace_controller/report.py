"""What became of a JobQueue, told: the whole status when it differs, and an event for each turn that people should see.

Events are made from the difference of two statuses, so that an unchanged reconcile tells nothing and a restarted controller
does not repeat what was told. `status` works the document out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tailrace_controller.kube import Kube, KubeMissing, KubeUnavailable, Recorder
from tailrace_controller.kube.kinds import JOBQUEUE
from tailrace_controller.observed import Observed
from tailrace_controller.status import status
from tailrace_controller.work_queue import Key

__all__ = ["Report", "Turn", "same", "turns"]

Object = Mapping[str, Any]
_LONGEST_DRAIN_SECONDS: Final = 570
"""Tools that drain nodes give up after 600 s."""

_STALLED: Final = {
    Reason.NAME_TAKEN: EventReason.NAME_TAKEN,
    Reason.POD_TEMPLATE_INVALID: EventReason.POD_TEMPLATE_INVALID,
    Reason.CONFLICTED: EventReason.CONFLICTED,
    Reason.INVALID_SPEC: EventReason.INVALID_SPEC,
    Reason.AUTOSCALING_UNSUPPORTED: EventReason.AUTOSCALING_UNSUPPORTED,
    Reason.ROLLOUT_STUCK: EventReason.ROLLOUT_STUCK,
}
_ON_THE_WAY: Final = frozenset({Reason.STARTING, Reason.NOT_READY, Reason.DRAINING, Reason.NOT_CHECKED, Reason.ROLLING_OUT})
"""Each start goes through these; one that never comes to its end is told by Stalled, and by the kubelet."""


class Turn(NamedTuple):
    """Something that people should see."""

    kind: Literal["Normal", "Warning"]
    reason: EventReason
    note: str


class Report:
    """Writes statuses and events."""

    def __init__(self, kube: Kube, recorder: Recorder, *, manager: str) -> None:
        """Take the API.

        Args:
            kube: The API server.
            recorder: Writes events.
            manager: Who owns the status.
        """
        self._kube, self._recorder, self._manager = kube, recorder, manager
        self._unanswered: dict[Key, tuple[Object, list[Turn]]] = {}  # a status that may have been written, and its turns

    def forget(self, key: Key) -> None:
        """Drop a JobQueue that is gone.

        Args:
            key: Its namespace and name.
        """
        self._unanswered.pop(key, None)

    async def tell(self, seen: Observed) -> Mapping[str, Any]:
        """Write the status if it differs, then the events; returns the status as it is now.

        Args:
            seen: What a reconcile saw.

        Raises:
            KubeError: The status could not be written.
        """
        document, metadata = status(seen), seen.raw["metadata"]
        key = (metadata["namespace"], metadata["name"])
        written, owed = self._unanswered.pop(key, (None, []))
        if written is not None and same(written, seen.previous):
            await self._tell_turns(seen, owed)
        if same(document, seen.previous):
            return seen.previous
        told = list(turns(seen, document))
        body = {"metadata": {name: metadata[name] for name in ("name", "namespace", "uid")}, "status": document}
        try:
            await self._kube.apply(JOBQUEUE, body, manager=self._manager, force=True, subresource="status")
        except KubeMissing:
            return seen.previous  # it was deleted meanwhile
        except KubeUnavailable:
            self._unanswered[key] = document, told
            raise
        await self._tell_turns(seen, told)
        return document

    async def _tell_turns(self, seen: Observed, told: Iterable[Turn]) -> None:
        for turn in told:
            await self._recorder.event(seen.raw, type=turn.kind, reason=turn.reason, note=turn.note)


def same(document: Object, previous: Object) -> bool:
    """Tell whether a status says what the last one said; the order of conditions does not matter.

    Args:
        document: The status.
        previous: The one before.
    """
    return {**document, "conditions": _by_type(document)} == {**previous, "conditions": _by_type(previous)}


def turns(seen: Observed, document: Object) -> Iterator[Turn]:
    """Yield what has changed since the last status, as events.

    Args:
        seen: What a reconcile saw.
        document: The new status.
    """
    before, now = _by_type(seen.previous), _by_type(document)
    for kind, condition in now.items():
        old = before.get(kind)
        if old is None or (old.get("status"), old.get("reason")) != (condition["status"], condition["reason"]):
            turn = _turn(ConditionType(kind), condition, old)
            if turn is not None:
                yield turn
    ready = now.get(ConditionType.READY, {})
    if ready.get("reason") == Reason.CHILD_REFUSED and before.get(ConditionType.READY, {}).get("reason") != Reason.CHILD_REFUSED:
        yield Turn("Warning", EventReason.CHILD_REFUSED, ready["message"])
    yield from _long_drain(seen)


_BAD: Final[Mapping[tuple[ConditionType, str], EventReason]] = {
    (ConditionType.DATABASE_REACHABLE, "False"): EventReason.DATABASE_PROBLEM,
    (ConditionType.SCHEMA_CURRENT, "False"): EventReason.SCHEMA_PROBLEM,
    (ConditionType.WORKERS_AVAILABLE, "False"): EventReason.WORKERS_UNAVAILABLE,
    (ConditionType.AUTOSCALER_CONFLICT, "True"): EventReason.AUTOSCALER_CONFLICT,
}
_GOOD_AGAIN: Final[Mapping[tuple[ConditionType, str], EventReason]] = {
    (ConditionType.DATABASE_REACHABLE, "True"): EventReason.DATABASE_REACHABLE,
    (ConditionType.WORKERS_AVAILABLE, "True"): EventReason.WORKERS_AVAILABLE,
    (ConditionType.PAUSED, "False"): EventReason.RESUMED,
}


def _turn(kind: ConditionType, now: Object, before: Object | None) -> Turn | None:
    status, reason, message = str(now["status"]), Reason(now["reason"]), str(now["message"])
    place = (kind, status)
    if kind is ConditionType.STALLED:
        return Turn("Warning", _STALLED[reason], message) if status == "True" and reason in _STALLED else None
    if place in _BAD and reason not in _ON_THE_WAY:
        return Turn("Warning", _BAD[place], f"{reason}: {message}")
    if place == (ConditionType.PAUSED, "True"):
        return Turn("Normal", EventReason.PAUSED, message)
    if place == (ConditionType.RECONCILING, "True") and reason is Reason.ROLLOUT_WAITING:
        return Turn("Normal", EventReason.ROLLOUT_WAITING, message)
    again = before is not None and before.get("status") not in ("Unknown", status)
    return Turn("Normal", _GOOD_AGAIN[place], message) if again and place in _GOOD_AGAIN else None


def _long_drain(seen: Observed) -> Iterator[Turn]:
    """Once for each generation, since it is the spec that says so."""
    if seen.resource is None or seen.previous.get("observedGeneration") == seen.generation:
        return
    seconds = seen.resource.spec.worker.drain_timeout_seconds
    if seconds > _LONGEST_DRAIN_SECONDS:
        note = (
            f"spec.worker.drainTimeoutSeconds is {seconds}: tools that drain nodes often give up after 600 s, "
            f"and cut the jobs that still run then; {_LONGEST_DRAIN_SECONDS} is the most that fits"
        )
        yield Turn("Warning", EventReason.LONG_DRAIN, note)


def _by_type(document: Object) -> dict[str, Object]:
    return {str(one.get("type")): one for one in document.get("conditions") or ()}
