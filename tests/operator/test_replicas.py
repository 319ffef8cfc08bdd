"""Who decides the number of workers: the rules, without an API server."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.queue_spec import JobQueue
from tailrace_controller.replicas import Ignored, wanted
from tests.operator.queue import document
from tests.operator.scene import NOW, observed

OPERATOR = {"mode": "Operator", "minReplicas": 1, "maxReplicas": 6}
KEY = ("team-a", "webhooks")


def decide(spec: dict[str, Any], *, live: int | None = None, status: dict[str, Any] | None = None, **fields: Any) -> Any:
    seen = observed(spec=spec, raw={"status": status} if status is not None else None, **fields)
    body = None if live is None else {"spec": {"replicas": live}}
    return wanted(seen, live=body, demand={"total": 2.5})


def test_spec_replicas_counts_unless_something_else_does() -> None:
    found = decide({"replicas": 7})
    assert (found.replicas, found.autoscaling) == (7, None)


@pytest.mark.parametrize("spec", [{"replicas": 7}, {"replicas": 7, "autoscaling": OPERATOR}])
def test_hold_and_drain_and_conflict_mean_none(spec: dict[str, Any]) -> None:
    assert decide({**spec, "stopPolicy": "HoldAndDrain"}, live=3).replicas == 0
    assert decide(spec, live=3, conflict="another has it").replicas == 0


@pytest.mark.parametrize(("live", "expected"), [(None, 4), (3, 3), (0, 1), (9, 6)])
def test_mode_operator_begins_with_what_runs(live: int | None, expected: int) -> None:
    found = decide({"replicas": 4, "autoscaling": OPERATOR}, live=live)
    assert found.replicas == found.autoscaling.desired_replicas == expected


def test_mode_operator_goes_on_from_its_status() -> None:
    found = decide({"replicas": 1, "autoscaling": OPERATOR}, live=1, status={"autoscaling": {"desiredReplicas": 5}})
    assert found.replicas == 5
    assert found.autoscaling.demand == {"total": 2.5}
    assert found.autoscaling.last_scale_time is None


def test_bounds_are_kept_and_named() -> None:
    low = decide({"autoscaling": {**OPERATOR, "minReplicas": 3}}, live=1)
    assert (low.replicas, low.autoscaling.limited_by) == (3, "Min")
    high = decide({"autoscaling": OPERATOR}, live=1, status={"autoscaling": {"desiredReplicas": 9}})
    assert (high.replicas, high.autoscaling.limited_by, high.autoscaling.last_scale_time) == (6, "Max", NOW)


def test_hold_keeps_the_fleet() -> None:
    found = decide({"autoscaling": OPERATOR, "stopPolicy": "Hold"}, live=4)
    assert (found.replicas, found.autoscaling.limited_by) == (4, "Hold")


def test_only_a_change_in_mode_operator_is_noticed() -> None:
    ignored = Ignored()

    def look(replicas: int, mode: str = "Operator", uid: str = "u") -> tuple[int, int] | None:
        scaling = {"mode": mode, "maxReplicas": 6}
        raw = document(replicas=replicas, autoscaling=scaling)
        return ignored.changed(KEY, uid=uid, resource=JobQueue.model_validate(raw))

    assert look(1) is None  # what was written before is not known
    assert look(1) is None
    assert look(4) == (1, 4)
    assert look(4) is None
    assert look(5, "Disabled") is None
    assert look(6) is None  # it came with the mode
    assert look(7, uid="v") is None  # another resource of the name
