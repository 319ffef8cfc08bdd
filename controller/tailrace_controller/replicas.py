"""How many workers there should be: the one place that decides what is written to a Deployment's replicas.

Pure. Who may say so: the stop policy, then autoscaling in mode Operator, else spec.replicas, which people and autoscalers
write by the scale of the JobQueue. `fleet` writes the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailrace.demand import LimitedBy
from tailrace.queue_spec import JobQueue
from tailrace_controller.observed import Autoscaling, Observed
from tailrace_controller.status.columns import parsed
from tailrace_controller.work_queue import Key

__all__ = ["SUPPORTED_MODES", "Ignored", "Wanted", "wanted"]

SUPPORTED_MODES: Final = frozenset({"Disabled", "Operator"})
"""The modes of autoscaling of this release; in others the workers are as many as spec.replicas says."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A decision.

    Attributes:
        replicas: How many workers there should be.
        autoscaling: What status says about it; only in mode Operator.
    """

    replicas: int
    autoscaling: Autoscaling | None = None


def wanted(observed: Observed, *, live: Mapping[str, Any] | None, demand: Mapping[str, float]) -> Wanted:
    """Decide how many workers there should be.

    Args:
        observed: With the resource and whether another owns its queue.
        live: The Deployment, if there is one.
        demand: The terms of the last reading; empty for none.
    """
    resource = observed.resource
    if resource is None:
        raise ValueError("a resource that cannot be read decides nothing")
    autoscaling = _autoscaling(observed, resource, live, demand) if resource.spec.autoscaling.mode == "Operator" else None
    if observed.conflict is not None or resource.spec.stop_policy == "HoldAndDrain":
        return Wanted(replicas=0, autoscaling=autoscaling)
    if autoscaling is not None:
        return Wanted(replicas=autoscaling.desired_replicas, autoscaling=autoscaling)
    return Wanted(replicas=resource.spec.replicas)


def _autoscaling(
    observed: Observed, resource: JobQueue, live: Mapping[str, Any] | None, demand: Mapping[str, float]
) -> Autoscaling:
    """Go on from what status says; the first time from what runs, so that switching the mode on stops nobody."""
    spec = resource.spec.autoscaling
    before: Mapping[str, Any] = observed.previous.get("autoscaling") or {}
    kept = before.get("desiredReplicas")
    if kept is None:
        kept = resource.spec.replicas if live is None else int((live.get("spec") or {}).get("replicas") or 0)
    most = spec.max_replicas or max(spec.min_replicas, 1)
    desired = min(max(int(kept), spec.min_replicas), most)
    limited = LimitedBy.HOLD if resource.spec.stop_policy != "None" else LimitedBy.NONE
    if desired > int(kept):
        limited = LimitedBy.MIN
    elif desired < int(kept):
        limited = LimitedBy.MAX
    changed = before.get("desiredReplicas") not in (None, desired)
    return Autoscaling(
        desired_replicas=desired,
        demand=demand,
        limited_by=str(limited),
        last_scale_time=observed.now if changed else parsed(before.get("lastScaleTime")),
    )


class Ignored:
    """Notices a JobQueue that somebody scaled although its workers follow the demand."""

    def __init__(self) -> None:
        """Remember nothing yet: what was written before a start is not noticed."""
        self._seen: dict[Key, tuple[str, str, int]] = {}

    def changed(self, key: Key, *, uid: str, resource: JobQueue) -> tuple[int, int] | None:
        """Return the replicas before and now when somebody wrote them in vain; None otherwise.

        Args:
            key: The JobQueue.
            uid: Its uid.
            resource: Its spec.
        """
        mode, replicas = resource.spec.autoscaling.mode, resource.spec.replicas
        before = self._seen.get(key)
        self._seen[key] = (uid, mode, replicas)
        if before is None or before[:2] != (uid, "Operator") or mode != "Operator" or before[2] == replicas:
            return None
        return before[2], replicas

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a JobQueue that is gone.

        Args:
            key: Its namespace and name.
        """
        self._seen.pop(key, None)
