"""What is proof of death and what is not: the rules, on pods as the API server sends them."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace_controller.pods import Death, deaths

UID = "5b1c0b1e-0000-4000-8000-000000000001"
WORKER = f"{UID}/worker/0a1b2c3d"


def pod(*states: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a pod whose container `worker` has these state and lastState."""
    container: dict[str, Any] = {"name": "worker"}
    for state in states:
        container |= state
    return {
        "metadata": {"name": "jobs-worker-x", "namespace": "a", "uid": UID, **metadata},
        "status": {"phase": "Running", "containerStatuses": [container], **(status or {})},
    }


def ended(where: str = "state", *, message: str = f"{WORKER}\n", **more: Any) -> dict[str, Any]:
    """Return a container's end."""
    found = {"exitCode": 137, "reason": "Error", "message": message, "finishedAt": "2026-11-28T07:00:00Z", **more}
    return {where: {"terminated": found}}


RUNNING: dict[str, Any] = {"state": {"running": {"startedAt": "2026-11-28T07:00:00Z"}}}
DISRUPTION: dict[str, Any] = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}


@pytest.mark.parametrize("where", ["state", "lastState"])
def test_the_kubelets_word_with_the_workers_own_id_is_proof(where: str) -> None:
    """BF-08."""
    assert deaths(pod(ended(where))) == [Death(worker=WORKER, reason="Error, exit code 137")]


def test_a_restarted_container_proves_the_end_of_the_process_before() -> None:
    assert [one.worker for one in deaths(pod(RUNNING, ended("lastState")))] == [WORKER]


def test_two_ends_in_one_status() -> None:
    before = f"{UID}/worker/ffffffff"
    found = deaths(pod(ended("lastState", message=before), ended("state")))
    assert [one.worker for one in found] == [before, WORKER]


def test_an_end_for_want_of_memory_counts_as_a_crash() -> None:
    """CJ-05, GW-04: even in a pod that is being deleted."""
    told = pod(ended(reason="OOMKilled"), deletionTimestamp="2026-11-28T07:00:30Z", deletionGracePeriodSeconds=45)
    assert deaths(told) == [Death(worker=WORKER, reason="OOMKilled, exit code 137", interrupted=False)]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted"),
        ({"status": {"phase": "Failed", "reason": "Preempted"}}, "Preempted"),
        ({"status": DISRUPTION}, "Evicted"),
        ({"deletionTimestamp": "2026-11-28T07:00:30Z", "deletionGracePeriodSeconds": 45}, "Deleted"),
    ],
)
def test_what_the_platform_ended_is_interrupted(more: dict[str, Any], word: str) -> None:
    (death,) = deaths(pod(ended(), **more))
    assert death == Death(worker=WORKER, reason=f"{word}: Error, exit code 137", interrupted=True)


def test_a_crash_before_the_deletion_stays_a_crash() -> None:
    marks: dict[str, Any] = {"deletionTimestamp": "2026-11-28T08:00:45Z", "deletionGracePeriodSeconds": 45}
    assert [one.interrupted for one in deaths(pod(ended(), **marks))] == [False]
    assert [one.interrupted for one in deaths(pod(RUNNING, ended("lastState"), **marks))] == [False]


NEVER = {
    "nothing is said of a container": {"metadata": {"name": "x", "namespace": "a", "uid": UID}, "status": {"phase": "Running"}},
    "no status": {"metadata": {"name": "x", "namespace": "a", "uid": UID}},
    "it runs": pod(RUNNING),
    "it waits": pod({"state": {"waiting": {"reason": "CrashLoopBackOff"}}}),
    "failed by the garbage collector of pods": pod(RUNNING, status={"phase": "Failed", "reason": "NodeLost"}),
    "failed without a word of its containers": {
        "metadata": {"name": "x", "namespace": "a", "uid": UID},
        "status": {"phase": "Failed", "reason": "Evicted"},
    },
    "deleted by force": pod(RUNNING, deletionTimestamp="2026-11-28T07:00:00Z", deletionGracePeriodSeconds=0),
    "not ready": pod(RUNNING, status={"conditions": [{"type": "Ready", "status": "False"}]}),
    "the node does not answer": pod(
        RUNNING, status={"reason": "NodeLost", "conditions": [{"type": "Ready", "status": "Unknown"}]}
    ),
    "to be disrupted": pod(RUNNING, status=DISRUPTION),
    "the kubelet lost sight of it": pod(ended(reason="ContainerStatusUnknown")),
    "no message": pod(ended(message="")),
    "an id of another pod": pod(ended(message="6c2d1c2f-0000-4000-8000-000000000002/worker/0a1b2c3d\n")),
    "a log line that names the worker": pod(ended(message=f'{{"event": "worker_ready", "worker_id": "{WORKER}"}}\n')),
    "words before the id": pod(ended(message=f"worker {WORKER} ended\n")),
    "an id in a later line": pod(ended(message=f"Traceback\n{WORKER}\n")),
    "a bare uid": pod(ended(message=UID)),
}


@pytest.mark.parametrize("told", NEVER.values(), ids=NEVER.keys())
def test_weaker_evidence_is_none(told: dict[str, Any]) -> None:
    """FQ-01, BF-07: these wait for the lease."""
    assert deaths(told) == []


def test_a_pod_name_that_is_used_again_proves_nothing_of_the_other() -> None:
    other = pod(ended())
    other["metadata"]["uid"] = "6c2d1c2f-0000-4000-8000-000000000002"
    assert deaths(other) == []
