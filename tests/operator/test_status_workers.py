"""Workers that are missing, on their way or rolled: what the conditions say of them."""

from __future__ import annotations

import pytest

from tailrace.names.conditions import Reason
from tailrace_controller.status import status
from tests.operator.scene import condition, deployed, kstatus, observed, pods, word


def test_missing_workers_are_told_by_their_commonest_cause() -> None:
    """jobqueue.md: the commonest pod reason with count and an example."""
    seen = observed(
        deployment=deployed(ready=1),
        pods=(*pods(1, Reason.UNSCHEDULABLE), *pods(2, Reason.IMAGE_PULL_BACK_OFF, "image x: not found")),
    )
    found = condition(seen, "WorkersAvailable")
    assert (found["status"], found["reason"]) == ("False", "ImagePullBackOff")
    assert found["message"] == (
        "1 of 4 workers ready. ImagePullBackOff in 2, such as ImagePullBackOff-0: image x: not found. "
        "Check the image's name and tag, and imagePullSecrets."
    )
    assert word(seen) == ("False", "ImagePullBackOff")
    assert kstatus(status(seen), 3) == "InProgress"


def test_a_crash_says_how_to_see_its_log() -> None:
    seen = observed(deployment=deployed(ready=3), pods=pods(1, Reason.CRASH_LOOP_BACK_OFF, "exit code 3"))
    assert "kubectl logs CrashLoopBackOff-0 -n team-a" in condition(seen, "WorkersAvailable")["message"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('pods "w-1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2', "QuotaExceeded"),
        ('pods "w-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot', "PodSecurityRefused"),
        ('admission webhook "x" denied the request', "PodsRefused"),
    ],
)
def test_pods_that_are_refused_count_by_their_number(message: str, reason: str) -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    seen = observed(deployment=deployed(replicas=1, conditions=[refused]), pods=pods(1, Reason.NOT_READY))
    found = condition(seen, "WorkersAvailable")
    assert (found["status"], found["reason"]) == ("False", reason)
    assert f"{reason} in 3" in found["message"]
    assert message in found["message"]


def test_pods_that_end_or_have_ended_are_no_cause() -> None:
    gone = (*pods(2, Reason.CRASH_LOOP_BACK_OFF, terminating=True), *pods(2, Reason.NOT_READY, ended=True))
    seen = observed(deployment=deployed(ready=3), pods=gone)
    assert word(seen, "WorkersAvailable") == ("False", "Starting")
    evicted = observed(deployment=deployed(ready=3), pods=pods(2, Reason.EVICTED, ended=True))
    assert word(evicted, "WorkersAvailable") == ("False", "Evicted")


def test_trouble_of_pods_is_no_matter_while_enough_are_ready() -> None:
    assert word(observed(pods=pods(1, Reason.NOT_READY, terminating=True))) == ("True", "Ready")
    assert word(observed(pods=pods(1, Reason.EVICTED, ended=True))) == ("True", "Ready")


def test_workers_on_their_way_are_starting() -> None:
    seen = observed(deployment=deployed(ready=2))
    assert word(seen) == ("False", "Starting")
    assert word(seen, "Reconciling") == ("True", "Starting")
    assert "2 of 4 workers ready" in condition(seen, "WorkersAvailable")["message"]
    assert word(observed(deployment=None)) == ("False", "Starting")


def test_a_roll_out_within_its_bounds_stays_ready() -> None:
    """Within maxUnavailable a change of the image is no outage; but it is not yet done, so Helm and Flux go on waiting."""
    seen = observed(deployment=deployed(replicas=5, ready=3, updated=2))
    assert word(seen) == ("True", "RollingOut")
    assert word(seen, "WorkersAvailable")[0] == "True"
    assert word(seen, "Reconciling") == ("True", "RollingOut")
    assert kstatus(status(seen), 3) == "InProgress"
    below = observed(deployment=deployed(replicas=5, ready=2, updated=2))
    assert word(below) == ("False", "Starting")
    strict = observed(deployment=deployed(replicas=5, ready=3, updated=2, strategy={"maxSurge": 1, "maxUnavailable": 0}))
    assert word(strict) == ("False", "Starting")


def test_a_change_that_nobody_has_looked_at_is_not_done() -> None:
    """The numbers of the Deployment still speak of the template before."""
    seen = observed(deployment=deployed(observedGeneration=1))
    assert word(seen, "Reconciling") == ("True", "Starting")
    assert kstatus(status(seen), 3) == "InProgress"


def test_a_new_worker_that_starts_is_no_outage() -> None:
    """It runs and is not ready for a moment; the old ones serve. One that never gets ready is told at the deadline."""
    surge = {"strategy": {"maxSurge": 1, "maxUnavailable": 0}}
    starting = pods(1, Reason.NOT_READY)
    seen = observed(deployment=deployed(replicas=5, ready=4, updated=1, **surge), pods=starting)
    assert word(seen) == ("True", "RollingOut")
    assert word(seen, "WorkersAvailable") == ("True", "Available")
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    never = observed(deployment=deployed(replicas=5, ready=4, updated=1, conditions=[late], **surge), pods=starting)
    assert word(never) == ("False", "NotReady")
    assert word(never, "Stalled") == ("True", "RolloutStuck")


def test_a_roll_out_into_trouble_says_which() -> None:
    seen = observed(deployment=deployed(replicas=5, ready=4, updated=1), pods=pods(1, Reason.IMAGE_PULL_BACK_OFF))
    assert word(seen) == ("False", "ImagePullBackOff")
    assert word(seen, "WorkersAvailable") == ("False", "ImagePullBackOff")


def test_a_roll_out_past_its_deadline_is_stalled() -> None:
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    seen = observed(
        deployment=deployed(replicas=5, ready=4, updated=1, conditions=[late]), pods=pods(1, Reason.IMAGE_PULL_BACK_OFF)
    )
    assert word(seen, "Stalled") == ("True", "RolloutStuck")
    assert word(seen, "Reconciling")[0] == "False"
    assert "ImagePullBackOff" in condition(seen, "Stalled")["message"]
    assert kstatus(status(seen), 3) == "Failed"
    healed = observed(deployment=deployed(conditions=[late]))
    assert word(healed, "Stalled")[0] == "False", "the Deployment keeps the condition; what counts is whether workers are missing"


def test_a_template_that_waits_says_for_what() -> None:
    seen = observed(rollout_waiting="3 workers still finish jobs")
    assert word(seen) == ("True", "RolloutWaiting")
    assert word(seen, "Reconciling") == ("True", "RolloutWaiting")
    assert "3 workers still finish jobs" in condition(seen, "Reconciling")["message"]
