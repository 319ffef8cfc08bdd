"""Turns of roll-outs: the arithmetic, without an API server."""

from __future__ import annotations

from typing import Any

from tailrace_controller.rollouts import Rollouts, changes_template, in_progress, marked, terminating

ONE, TWO, THREE = ("a", "one"), ("a", "two"), ("a", "three")


def deployment(reason: str | None, *, seen: int = 2, generation: int = 2, **status: Any) -> dict[str, Any]:
    """Return a Deployment whose condition Progressing has a reason."""
    conditions = [] if reason is None else [{"type": "Progressing", "status": "True", "reason": reason}]
    said = {"observedGeneration": seen, "conditions": conditions, **status}
    return {"metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": said}


DONE = deployment("NewReplicaSetAvailable", replicas=2, updatedReplicas=2)
GOING = deployment("ReplicaSetUpdated", replicas=3, updatedReplicas=1)


def turns(most: int) -> tuple[Rollouts, list[tuple[str, str]]]:
    woken: list[tuple[str, str]] = []
    return Rollouts(most=most, wake=woken.append), woken


def waits(rollouts: Rollouts, key: tuple[str, str], *, policy: str = "Paced", replicas: int = 2, draining: int = 0) -> str | None:
    return rollouts.waits_for(key, DONE, policy=policy, replicas=replicas, draining=draining)


def test_what_counts_as_in_progress() -> None:
    assert in_progress(GOING)
    assert not in_progress(DONE)
    assert not in_progress(deployment("ReplicaSetUpdated", replicas=2, updatedReplicas=2))  # a new fleet that starts
    assert not in_progress(deployment("ProgressDeadlineExceeded", replicas=3, updatedReplicas=1))  # it holds nobody up
    assert not in_progress(deployment(None))


def test_what_was_just_written_keeps_its_turn() -> None:
    rollouts, woken = turns(1)
    waits(rollouts, ONE)
    waits(rollouts, TWO)
    rollouts.seen(ONE, deployment("NewReplicaSetAvailable", seen=1, replicas=2, updatedReplicas=2))
    assert woken == []
    rollouts.seen(("a", "new"), deployment(None, seen=0))
    assert "1 other" in str(waits(rollouts, TWO))


def test_the_end_of_one_gives_its_turn_to_the_one_that_waits_longest() -> None:
    rollouts, woken = turns(1)
    assert waits(rollouts, ONE) is None
    assert "no more than 1" in str(waits(rollouts, TWO))
    assert waits(rollouts, THREE) is not None
    rollouts.seen(ONE, GOING)
    assert woken == []
    rollouts.seen(ONE, DONE)
    assert woken == [TWO]
    assert waits(rollouts, TWO) is None
    assert waits(rollouts, THREE) is not None


def test_who_has_a_turn_keeps_it() -> None:
    rollouts, _ = turns(1)
    assert waits(rollouts, ONE) is None
    assert waits(rollouts, ONE) is None


def test_one_that_goes_away_gives_its_turn_back() -> None:
    rollouts, woken = turns(1)
    waits(rollouts, ONE)
    waits(rollouts, TWO)
    rollouts.forget(ONE)
    assert woken == [TWO]


def test_roll_outs_that_were_under_way_before_a_start_count() -> None:
    rollouts, _ = turns(1)
    rollouts.seen(ONE, GOING)
    assert waits(rollouts, TWO) is not None


def test_drains_are_waited_for_unless_it_is_to_be_immediate() -> None:
    rollouts, _ = turns(10)
    assert "3 workers" in str(waits(rollouts, ONE, replicas=2, draining=3))
    assert waits(rollouts, ONE, replicas=2, draining=2) is None
    assert waits(rollouts, ONE, replicas=0, draining=1) is None
    assert waits(rollouts, TWO, policy="Immediate", replicas=2, draining=30) is None


def test_a_template_is_known_by_its_mark() -> None:
    body: dict[str, Any] = {"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 1, "template": {"spec": {"x": 1}}}}
    first = marked(body)
    assert first["metadata"]["annotations"]["a"] == "b"
    assert not changes_template(marked({**body, "spec": {**body["spec"], "replicas": 5}}), first)
    assert changes_template(marked({**body, "spec": {"template": {"spec": {"x": 2}}}}), first)
    assert changes_template(first, {"metadata": {}})


def test_pods_that_end_are_counted_by_newer_servers() -> None:
    assert terminating(deployment(None, terminatingReplicas=3)) == 3
    assert terminating(deployment(None)) == 0
