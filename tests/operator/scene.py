"""What a reconcile might observe: a queue that is well, for tests that spoil one thing in it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tailrace.names.conditions import Reason
from tailrace.queue_spec import JobQueue
from tailrace_controller.observed import DatabaseSeen, Observed, PodFacts, Problem, QueueSeen, SecretSeen
from tailrace_controller.status import conditions
from tests.operator.queue import document

__all__ = ["NOW", "condition", "deployed", "kstatus", "observed", "pod", "pods", "problem", "word"]

NOW = datetime(2026, 11, 28, 7, 0, tzinfo=UTC)


def deployed(
    *,
    replicas: int = 4,
    ready: int | None = None,
    updated: int | None = None,
    strategy: Mapping[str, Any] | None = None,
    **said: Any,
) -> dict[str, Any]:
    """Return a Deployment with a status.

    Args:
        replicas: Its pods.
        ready: Those that are ready; all by default.
        updated: Those of the last template; all by default.
        strategy: Its maxSurge and maxUnavailable.
        **said: Other fields of the status.
    """
    status = {
        "observedGeneration": 2,
        "replicas": replicas,
        "readyReplicas": replicas if ready is None else ready,
        "updatedReplicas": replicas if updated is None else updated,
        **said,
    }
    rolling = dict(strategy or {"maxSurge": "25%", "maxUnavailable": "25%"})
    return {
        "metadata": {"name": "webhooks-worker", "generation": 2},
        "spec": {"strategy": {"rollingUpdate": rolling}},
        "status": status,
    }


def observed(*, spec: Mapping[str, Any] | None = None, raw: Mapping[str, Any] | None = None, **fields: Any) -> Observed:
    """Return a queue with four workers that are ready, but for what is given.

    Args:
        spec: Fields of the resource's spec.
        raw: Other arguments of `document`.
        **fields: Of `Observed`.
    """
    body = document(**{"replicas": 4, **(spec or {}), **(raw or {})})
    usual: dict[str, Any] = {
        "raw": body,
        "resource": JobQueue.model_validate({**body, "status": None}),
        "now": NOW,
        "controller_version": "1.4.0",
        "secret": SecretSeen(observed_time=NOW),
        "database": DatabaseSeen(address="db.team-a.svc:5432/app", reached=True, installation_id="i-1", schema_version=13),
        "queue": QueueSeen(worker_versions={"1.4.0": 4}),
        "settled": True,
        "deployment": deployed(),
        "wanted": 4,
    }
    return Observed(**{**usual, **fields})


def condition(seen: Observed, kind: str) -> dict[str, Any]:
    """Return one condition."""
    return next(one for one in conditions(seen) if one["type"] == kind)


def word(seen: Observed, kind: str = "Ready") -> tuple[str, str]:
    """Return status and reason of a condition."""
    found = condition(seen, kind)
    return found["status"], found["reason"]


def pod(
    name: str = "webhooks-worker-1", *, phase: str = "Running", ready: bool = False, deleted: bool = False, **status: Any
) -> dict[str, Any]:
    """Return a pod as an API server sends it.

    Args:
        name: Its name.
        phase: Its phase.
        ready: Whether it is ready.
        deleted: Whether it was told to end.
        **status: Other fields of its status.
    """
    metadata = {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-11-28T07:00:00Z"
    usual = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": metadata, "status": {"phase": phase, "conditions": usual, **status}}


def problem(reason: Reason) -> Problem:
    """Return a problem with a sentence of its own."""
    return Problem(reason=reason, message=f"{reason} happened; do this")


def pods(count: int, reason: Reason, text: str = "why", **fields: Any) -> tuple[PodFacts, ...]:
    """Return pods that are not ready for a reason."""
    found = Problem(reason=reason, message=text)
    return tuple(PodFacts(name=f"{reason}-{n}", uid=f"{reason}-{n}", problem=found, **fields) for n in range(count))


def kstatus(body: dict[str, Any], generation: int) -> str:
    """What the library of Helm, Flux and Argo CD says of a custom resource."""
    if body.get("observedGeneration") != generation:
        return "InProgress"
    found = {one["type"]: one["status"] for one in body["conditions"]}
    if found.get("Reconciling") == "True":
        return "InProgress"
    if found.get("Stalled") == "True":
        return "Failed"
    return "Current" if found.get("Ready", "True") == "True" else "InProgress"
