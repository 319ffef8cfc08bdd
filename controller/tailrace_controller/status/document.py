"""The whole status of a JobQueue, for server-side apply on its subresource.

A field that was not observed now keeps its last value: an outage of the database must not make an autoscaler or a person
believe that there is nothing. Written twice with nothing new, it is equal, so that nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.names.conditions import Reason
from tailrace.names.labels import DEFAULT_CONTROLLER, selector
from tailrace_controller.desired.template import grace_seconds
from tailrace_controller.observed import Autoscaling, Observed
from tailrace_controller.status.columns import figures, moment
from tailrace_controller.status.conditions import conditions
from tailrace_controller.status.workforce import workforce

__all__ = ["status"]

_MOST_VERSIONS: Final = 100


def status(observed: Observed) -> dict[str, Any]:
    """Return the status.

    Args:
        observed: What a reconcile saw.
    """
    spec, previous = observed.raw.get("spec") or {}, observed.previous
    force, shown = workforce(observed), figures(observed.queue, observed.previous)
    found: dict[str, Any] = {
        "observedGeneration": observed.generation,
        "controller": {"name": spec.get("controllerName", DEFAULT_CONTROLLER), "version": observed.controller_version},
        "queueName": spec.get("queueName", observed.name),
        "database": _database(observed),
        "replicas": force.replicas,
        "readyReplicas": force.ready,
        "updatedReplicas": force.updated,
        "terminatingReplicas": force.terminating,
        "selector": ",".join(f"{name}={value}" for name, value in selector(observed.name).items()),
        "terminationGracePeriodSeconds": _grace(observed),
        "workerVersions": _versions(observed),
        "autoscaling": _autoscaling(observed, fresh=shown.get("statsTime") != previous.get("statsTime")),
        **shown,
        "conditions": conditions(observed),
    }
    return {name: value for name, value in found.items() if value not in (None, {}, [])}


def _grace(observed: Observed) -> int | None:
    if observed.resource is None:
        return observed.previous.get("terminationGracePeriodSeconds")
    return grace_seconds(observed.resource)


def _database(observed: Observed) -> dict[str, Any]:
    """Of another database than before nothing is taken: its identity would be the one to compare with from then on."""
    found = dict(observed.previous.get("database") or {})
    seen, secret = observed.database, observed.secret
    if secret is not None and secret.observed_time is not None:
        found["secretObservedTime"] = moment(secret.observed_time)
    if seen is None or (seen.problem is not None and seen.problem.reason == Reason.DATABASE_CHANGED):
        return found
    for name, value in (
        ("address", seen.address),
        ("installationID", seen.installation_id),
        ("schemaVersion", seen.schema_version),
    ):
        if value is not None:
            found[name] = value
    return found


def _versions(observed: Observed) -> list[dict[str, Any]]:
    if observed.queue is None:
        return list(observed.previous.get("workerVersions") or [])
    counted = sorted(observed.queue.worker_versions.items())[-_MOST_VERSIONS:]
    return [{"version": version, "count": count} for version, count in counted]


def _autoscaling(observed: Observed, *, fresh: bool) -> Mapping[str, Any] | None:
    """The demand changes with each reading; it is written anew with the figures, or with what was decided."""
    if observed.resource is not None and observed.resource.spec.autoscaling.mode == "Disabled":
        return None
    before: Mapping[str, Any] = observed.previous.get("autoscaling") or {}
    if observed.autoscaling is None:
        return before
    found = _decided(observed.autoscaling)
    same = all(found.get(name) == before.get(name) for name in ("desiredReplicas", "limitedBy", "nextWakeTime"))
    return before if same and not fresh and before else found


def _decided(scaling: Autoscaling) -> dict[str, Any]:
    found: dict[str, Any] = {"desiredReplicas": scaling.desired_replicas}
    if scaling.demand:
        found["demand"] = {name: f"{max(0.0, value):.2f}" for name, value in scaling.demand.items()}
    found["limitedBy"] = scaling.limited_by
    for name, value in (("lastScaleTime", scaling.last_scale_time), ("nextWakeTime", scaling.next_wake_time)):
        if value is not None:
            found[name] = moment(value)
    return found
