"""How the fleet of a queue does: numbers from the Deployment, and the commonest cause when workers are missing.

Pure; `conditions` words WorkersAvailable, Ready and Reconciling from it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailrace.names.conditions import Reason
from tailrace_controller.observed import Observed, PodFacts, Problem
from tailrace_controller.status.pods import shortened
from tailrace_controller.wording import workers

__all__ = ["Workforce", "workforce"]

_SEVERITY: Final = {reason: number for number, reason in enumerate(Reason)}
_ADVICE: Final[Mapping[Reason, str]] = {
    Reason.QUOTA_EXCEEDED: "Raise the quota of the namespace, or ask for less in resources.requests",
    Reason.POD_SECURITY_REFUSED: (
        "Correct spec.template, or the label pod-security.kubernetes.io/enforce of the namespace: pods are restricted by default"
    ),
    Reason.PODS_REFUSED: "Correct what it names",
    Reason.UNSCHEDULABLE: "Add nodes, or correct resources.requests, nodeSelector and tolerations in spec.template",
    Reason.IMAGE_PULL_BACK_OFF: "Check the image's name and tag, and imagePullSecrets",
    Reason.INVALID_IMAGE_NAME: "Correct the image's name in spec.template",
    Reason.CONTAINER_CONFIG_ERROR: "Create what it names, or correct spec.template",
    Reason.CONTAINER_START_ERROR: "Check that the image has the program `tailrace` in its PATH, and the user's rights",
    Reason.CRASH_LOOP_BACK_OFF: "See `kubectl logs {pod} -n {namespace} --all-containers --previous`",
    Reason.OOM_KILLED: "Raise resources.limits.memory in spec.template, or lower spec.worker.slots",
    Reason.EVICTED: "Look at the nodes' memory and disk, or set resources.requests",
    Reason.NOT_READY: "See `kubectl logs {pod} -n {namespace}`: it says what the worker waits for",
    Reason.NODE_LOST: "Look at the node; the workers are replaced after 30 s by default",
}
_LONGEST_MESSAGE: Final = 1000


@dataclass(frozen=True, kw_only=True)
class Workforce:
    """The workers of a queue.

    Attributes:
        wanted: How many there should be; None when nothing was decided.
        exists: Whether there is a Deployment.
        noticed: Whether Kubernetes has looked at its last change, so that the numbers speak of it.
        replicas: Pods, without those that end.
        ready: Pods that take work.
        updated: Pods of the last template.
        terminating: Pods that end.
        tolerated: Workers that may be missing during a roll-out.
        rolling: Whether a roll-out goes on.
        stuck: Whether it made no progress before its deadline.
        problem: The commonest cause of missing workers, as a whole sentence; None when it is a matter of time.
    """

    wanted: int | None
    exists: bool = False
    noticed: bool = True
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    terminating: int = 0
    tolerated: int = 0
    rolling: bool = False
    stuck: bool = False
    problem: Problem | None = None

    @property
    def available(self) -> bool:
        """Whether enough workers are ready, and nothing is known to keep others from it.

        A new worker of a roll-out that runs and is not ready yet is no trouble before the deadline.
        """
        coming = self.problem is None or (self.problem.reason is Reason.NOT_READY and self.rolling and not self.stuck)
        return self.wanted is not None and self.ready >= self.wanted - self.tolerated and coming

    @property
    def counted(self) -> str:
        """How many are ready, as words."""
        if self.wanted == 0 and self.replicas == 0:
            return "No worker is wanted now"
        if self.wanted is None:
            return f"{workers(self.ready)} ready"
        return f"{self.ready} of {workers(self.wanted)} ready"


def workforce(observed: Observed) -> Workforce:
    """Count.

    Args:
        observed: What a reconcile saw.
    """
    body = observed.deployment
    if body is None:
        return Workforce(wanted=observed.wanted, terminating=_terminating(observed, {}))
    said = body.get("status") or {}
    replicas, ready, updated = (int(said.get(name) or 0) for name in ("replicas", "readyReplicas", "updatedReplicas"))
    wanted = observed.wanted
    rolling = replicas > updated
    short = wanted is not None and (ready < wanted or rolling)
    return Workforce(
        wanted=wanted,
        exists=True,
        noticed=int(said.get("observedGeneration") or 0) >= int(body["metadata"].get("generation") or 0),
        replicas=replicas,
        ready=ready,
        updated=updated,
        terminating=_terminating(observed, said),
        tolerated=_tolerated(body, wanted or 0) if rolling else 0,
        rolling=rolling,
        stuck=short and _condition(said, "Progressing").get("reason") == "ProgressDeadlineExceeded",
        problem=_commonest(observed, said, ready, replicas) if short else None,
    )


def _commonest(observed: Observed, said: Mapping[str, Any], ready: int, replicas: int) -> Problem | None:
    count: Counter[Reason] = Counter()
    example: dict[Reason, tuple[str, str]] = {}
    for pod in sorted(observed.pods, key=lambda one: one.name):
        if pod.problem is not None and _counts(pod):
            count[pod.problem.reason] += 1
            example.setdefault(pod.problem.reason, (pod.name, pod.problem.message))
    refused = _condition(said, "ReplicaFailure")
    if refused.get("status") == "True":
        text = str(refused.get("message") or "")
        reason = _refusal(text)
        count[reason] += max(1, (observed.wanted or 0) - replicas)
        example.setdefault(reason, ("", text))
    if not count:
        return None
    reason = min(count, key=lambda one: (-count[one], _SEVERITY[one]))
    return Problem(reason=reason, message=_worded(observed, reason, count[reason], example[reason], ready))


def _worded(observed: Observed, reason: Reason, count: int, example: tuple[str, str], ready: int) -> str:
    pod, text = example
    such = f"such as {pod}: {text}" if pod else shortened(text)
    advice = _ADVICE.get(reason, "").format(pod=pod, namespace=observed.namespace)
    begin = f"{ready} of {workers(observed.wanted or 0)} ready. {reason} in {count}, {such}"
    return f"{begin.rstrip('.')}. {advice}."[:_LONGEST_MESSAGE]


def _counts(pod: PodFacts) -> bool:
    """Pods that ended stay for a while beside those that replace them; only an eviction is still worth a word."""
    assert pod.problem is not None
    return not pod.terminating and (not pod.ended or pod.problem.reason in (Reason.EVICTED, Reason.NODE_LOST))


def _refusal(text: str) -> Reason:
    if "exceeded quota" in text or "failed quota" in text:
        return Reason.QUOTA_EXCEEDED
    return Reason.POD_SECURITY_REFUSED if "violates PodSecurity" in text else Reason.PODS_REFUSED


def _terminating(observed: Observed, said: Mapping[str, Any]) -> int:
    """Newer servers count them; else the pods that we see."""
    counted = said.get("terminatingReplicas")
    return int(counted) if counted is not None else sum(1 for pod in observed.pods if pod.terminating)


def _tolerated(body: Mapping[str, Any], wanted: int) -> int:
    """What the roll-out may take away, as the Deployment controller rounds it: down, but one when there is no surge."""
    rolling = ((body.get("spec") or {}).get("strategy") or {}).get("rollingUpdate") or {}
    missing = _share(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    return 1 if missing == 0 and _share(rolling.get("maxSurge", "25%"), wanted, up=True) == 0 else missing


def _share(value: Any, wanted: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        part = wanted * int(value[:-1]) / 100
        return math.ceil(part) if up else math.floor(part)
    return int(value or 0)


def _condition(said: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((one for one in said.get("conditions") or () if one.get("type") == kind), {})
