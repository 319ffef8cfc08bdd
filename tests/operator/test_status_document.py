"""The whole status: every field from the first reconcile, kept through an outage, and written only when it says something new."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from docs import jobqueue
from tailrace.names.conditions import Reason
from tailrace_controller.observed import Autoscaling, DatabaseSeen, Observed, Problem, QueueSeen, SecretSeen
from tailrace_controller.status import status
from tests.operator.samples import paths
from tests.operator.scene import NOW, deployed, observed

OPERATOR = {"autoscaling": {"mode": "Operator", "maxReplicas": 9}}


def queue(at: datetime = NOW, *, oldest: datetime | None = None, **counts: int) -> QueueSeen:
    return QueueSeen(counts=counts, stats_time=at, oldest_ready_time=oldest, worker_versions={"1.4.0": 3, "1.3.2": 1})


ALL = {
    "observedGeneration": 3,
    "controller": {"name": "tailrace.dev/controller", "version": "1.4.0"},
    "queueName": "webhooks",
    "database": {
        "address": "db.team-a.svc:5432/app",
        "installationID": "i-1",
        "schemaVersion": 13,
        "secretObservedTime": "2026-11-28T07:00:00Z",
    },
    "replicas": 4,
    "readyReplicas": 4,
    "updatedReplicas": 4,
    "terminatingReplicas": 1,
    "selector": "app.kubernetes.io/name=tailrace-worker,tailrace.dev/queue=webhooks",
    "terminationGracePeriodSeconds": 45,
    "workerVersions": [{"version": "1.3.2", "count": 1}, {"version": "1.4.0", "count": 3}],
    "autoscaling": {
        "desiredReplicas": 4,
        "demand": {"flow": "1.20", "drain": "2.10", "busy": "3.40", "total": "3.40"},
        "limitedBy": "None",
        "lastScaleTime": "2026-11-28T07:00:00Z",
    },
    "jobs": {
        "ready": 120,
        "scheduled": 0,
        "retrying": 0,
        "blocked": 0,
        "held": 0,
        "unclaimable": 0,
        "running": 34,
        "stale": 0,
        "dead": 7,
    },
    "oldestReadyTime": "2026-11-28T06:59:51Z",
    "statsTime": "2026-11-28T07:00:00Z",
}


def test_a_queue_that_is_well_says_all_of_it() -> None:
    found = status(busy())
    found.pop("conditions")
    assert found == ALL


def busy() -> Observed:
    return observed(
        spec=OPERATOR,
        queue=queue(oldest=NOW - timedelta(seconds=9), ready=120, running=34, dead=7),
        deployment=deployed(terminatingReplicas=1),
        autoscaling=Autoscaling(
            desired_replicas=4, demand={"flow": 1.2, "drain": 2.1, "busy": 3.4, "total": 3.4}, last_scale_time=NOW
        ),
    )


def test_every_field_is_one_of_the_custom_resource() -> None:
    """Server-side apply with strict validation would refuse another."""
    seen = observed(
        spec=OPERATOR,
        queue=QueueSeen(counts={}, stats_time=NOW, oldest_ready_time=NOW, oldest_dead_letter_time=NOW, worker_versions={"1": 1}),
        autoscaling=Autoscaling(desired_replicas=1, demand={"flow": 1}, last_scale_time=NOW, next_wake_time=NOW),
    )
    known = {node.path for node in jobqueue.nodes(jobqueue.Node("status", jobqueue.schema()["properties"]["status"]))}
    made = set(paths(status(seen), "status"))
    assert made <= known
    unused = {path for path in known - made if "demand" not in path}
    assert not unused, "a field that nobody writes"


def test_what_an_autoscaler_needs_is_there_from_the_first_reconcile() -> None:
    """operator.md 6: without a selector an HPA stops."""
    found = status(observed(secret=None, database=None, queue=None, settled=None, deployment=None, wanted=None))
    assert found["selector"] == "app.kubernetes.io/name=tailrace-worker,tailrace.dev/queue=webhooks"
    assert (found["replicas"], found["readyReplicas"], found["terminatingReplicas"]) == (0, 0, 0)


def test_an_outage_keeps_what_was_known() -> None:
    """KEDA-like readers must not take an outage for an empty queue."""
    before = status(observed(spec=OPERATOR, queue=queue(ready=50), autoscaling=Autoscaling(desired_replicas=4)))
    away = Problem(reason=Reason.DATABASE_UNAVAILABLE, message="no answer; look at the server")
    seen = observed(
        spec=OPERATOR, raw={"status": before}, queue=None, database=DatabaseSeen(reached=False, problem=away), settled=None
    )
    after = status(seen)
    for name in ("jobs", "statsTime", "database", "workerVersions", "autoscaling"):
        assert after[name] == before[name], name


def test_the_identity_of_another_database_is_not_taken() -> None:
    """operator.md 4: from then on it would be the one to compare with."""
    before = status(observed())
    changed = Problem(reason=Reason.DATABASE_CHANGED, message="another database; point the Secret back")
    other = DatabaseSeen(address="other:5432/app", reached=True, installation_id="i-2", schema_version=13, problem=changed)
    assert status(observed(raw={"status": before}, database=other))["database"] == before["database"]


def test_a_rotated_secret_shows_when_it_was_seen() -> None:
    before = status(observed())
    later = NOW + timedelta(hours=1)
    after = status(observed(raw={"status": before}, secret=SecretSeen(observed_time=later)))
    assert after["database"]["secretObservedTime"] == "2026-11-28T08:00:00Z"


def test_a_resource_that_the_models_refuse_still_has_a_status() -> None:
    before = status(observed())
    found = status(observed(raw={"status": before}, resource=None, invalid="spec.schedules[0].cron: is none (correct it)"))
    assert found["queueName"] == "webhooks"
    assert found["terminationGracePeriodSeconds"] == before["terminationGracePeriodSeconds"]
    assert {one["type"]: one["reason"] for one in found["conditions"]}["Stalled"] == "InvalidSpec"


@pytest.mark.parametrize(
    ("seconds", "ready", "written"),
    [
        (15, 1_000, False),  # not every reading
        (61, 105, False),  # not for a trifle
        (61, 89, True),
        (61, 111, True),
        (61, 0, True),
        (-5, 100, True),  # another server, whose clock is behind
    ],
)
def test_figures_are_written_beyond_a_tenth_and_a_minute(seconds: int, ready: int, written: bool) -> None:
    """g1: live counters do not cause writes every second."""
    before = status(observed(queue=queue(ready=100, running=1)))
    after = status(observed(raw={"status": before}, queue=queue(NOW + timedelta(seconds=seconds), ready=ready, running=1)))
    assert (after["jobs"]["ready"] == ready and after["statsTime"] != before["statsTime"]) is written
    assert (after == before) is not written


def test_the_age_of_the_oldest_is_never_far_from_the_truth() -> None:
    """Its column counts on by itself: where jobs flow, an old moment would show an age that nobody waited."""
    before = status(observed(queue=queue(oldest=NOW - timedelta(seconds=5), ready=100)))
    later = NOW + timedelta(seconds=90)
    flowing = status(observed(raw={"status": before}, queue=queue(later, oldest=later - timedelta(seconds=5), ready=100)))
    assert flowing["oldestReadyTime"] == "2026-11-28T07:01:25Z"
    standing = status(observed(raw={"status": before}, queue=queue(later, oldest=NOW - timedelta(seconds=5), ready=100)))
    assert standing == before
    empty = status(observed(raw={"status": before}, queue=queue(later, ready=100)))
    assert "oldestReadyTime" not in empty


def test_a_demand_that_moves_a_little_is_not_written() -> None:
    def seen(seconds: int, total: float, **fields: Any) -> Any:
        at = NOW + timedelta(seconds=seconds)
        scaling = Autoscaling(**{"desired_replicas": 4, "demand": {"total": total}, **fields})
        return observed(spec=OPERATOR, raw={"status": before}, queue=queue(at, ready=100), autoscaling=scaling)

    before: dict[str, Any] = {}
    before = status(seen(0, 3.4))
    assert status(seen(15, 3.5)) == before
    assert status(seen(15, 4.5, desired_replicas=5))["autoscaling"]["demand"] == {"total": "4.50"}


def test_disabled_autoscaling_says_nothing() -> None:
    before = status(observed(spec=OPERATOR, autoscaling=Autoscaling(desired_replicas=4)))
    assert "autoscaling" not in status(observed(raw={"status": before}))
