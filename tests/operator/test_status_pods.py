"""What is taken from a pod: why it is not ready, in words that stay the same while nothing changes."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace_controller.status import pod_facts
from tests.operator.scene import pod

IMAGE = "registry.example/shop:1.0.0"
BACK_OFF = f'Back-off pulling image "{IMAGE}": ErrImagePull: not found'


def waiting(reason: str, message: str = "", last: dict[str, Any] | None = None) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"name": "worker", "image": IMAGE, "started": False, "state": state, "lastState": {"terminated": last} if last else {}}


def running(*, started: bool = True, ready: bool = False, last: dict[str, Any] | None = None) -> dict[str, Any]:
    last_state = {"terminated": last} if last else {}
    return {"name": "worker", "started": started, "ready": ready, "state": {"running": {}}, "lastState": last_state}


def terminated(**fields: Any) -> dict[str, Any]:
    return {"exitCode": 1, "reason": "Error", **fields}


@pytest.mark.parametrize(
    ("container", "reason", "words"),
    [
        (waiting("ImagePullBackOff", BACK_OFF), "ImagePullBackOff", f"image {IMAGE}: not found"),
        (waiting("ErrImagePull", "not found"), "ImagePullBackOff", f"image {IMAGE}: not found"),
        (waiting("InvalidImageName", "cannot parse"), "InvalidImageName", "cannot parse"),
        (waiting("CreateContainerConfigError", 'secret "x" not found'), "ContainerConfigError", 'secret "x" not found'),
        (waiting("RunContainerError", "no such file: tailrace"), "ContainerStartError", "no such file"),
        (waiting("CrashLoopBackOff", "back-off 5m0s", terminated(exitCode=3)), "CrashLoopBackOff", "exit code 3"),
        (waiting("CrashLoopBackOff", "x", terminated(reason="OOMKilled", exitCode=137)), "OOMKilled", "memory"),
        (
            waiting("CrashLoopBackOff", "x", terminated(reason="StartError", message="no tailrace")),
            "ContainerStartError",
            "no tailrace",
        ),
        ({"name": "worker", "state": {"terminated": terminated()}}, "CrashLoopBackOff", "exit code 1"),
        (running(started=False, last=terminated(exitCode=2)), "CrashLoopBackOff", "exit code 2"),
        (running(last=terminated()), "NotReady", "does not report ready"),
        (running(), "NotReady", "does not report ready"),
    ],
)
def test_a_container_says_why_it_is_not_ready(container: dict[str, Any], reason: str, words: str) -> None:
    found = pod_facts(pod(containerStatuses=[container])).problem
    assert found is not None
    assert found.reason == reason
    assert words in found.message


@pytest.mark.parametrize(
    "container",
    [
        waiting("ContainerCreating"),
        waiting("PodInitializing"),
        running(started=False),
        {"name": "worker", "state": {"terminated": terminated(exitCode=0, reason="Completed")}},
    ],
)
def test_a_matter_of_time_is_no_problem(container: dict[str, Any]) -> None:
    assert pod_facts(pod(containerStatuses=[container])).problem is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("f3a0/worker/1a2b3c4d\n", "exit code 1"),
        ("f3a0/worker/1a2b3c4d\nmetrics_port: cannot listen\n", "exit code 1: metrics_port: cannot listen"),
        ("Traceback\nModuleNotFoundError: No module named 'shop'\n", "exit code 1: ModuleNotFoundError: No module named 'shop'"),
        ('{"event": "schema_unfit", "message": "the schema is too old"}\n', "exit code 1: the schema is too old"),
        ('{"cut off', 'exit code 1: {"cut off'),
        ('["a"]', 'exit code 1: ["a"]'),
    ],
)
def test_the_last_words_of_a_crash_are_shown_without_the_workers_id(message: str, words: str) -> None:
    """jobqueue.md: CrashLoopBackOff with exit code and last message."""
    found = pod_facts(pod(containerStatuses=[waiting("CrashLoopBackOff", "x", terminated(message=message))])).problem
    assert found is not None
    assert found.message == f"container worker ended with {words}"


def test_a_pull_that_fails_again_and_again_says_the_same() -> None:
    """g1: the kubelet goes back and forth between two reasons; the status must not."""
    texts = {
        str(pod_facts(pod(containerStatuses=[container])).problem)
        for container in (waiting("ErrImagePull", "not found"), waiting("ImagePullBackOff", BACK_OFF))
    }
    assert len(texts) == 1


def test_the_schedulers_text_is_shown() -> None:
    why = "0/3 nodes are available: 3 Insufficient cpu."
    found = pod_facts(
        pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}])
    ).problem
    assert found is not None
    assert (found.reason, found.message) == ("Unschedulable", why)


def test_a_pod_of_a_lost_node_says_so() -> None:
    """A node that does not answer leaves its containers as they were last seen."""
    found = pod_facts(
        pod(conditions=[{"type": "Ready", "status": "Unknown"}], containerStatuses=[running(ready=True)]),
    ).problem
    assert found is not None
    assert found.reason == "NodeLost"


def test_an_evicted_pod_says_why() -> None:
    facts = pod_facts(pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."))
    assert facts.ended
    assert facts.problem is not None
    assert facts.problem.reason == "Evicted"
    assert "memory" in facts.problem.message


def test_a_ready_pod_has_no_problem_and_an_ending_one_is_not_ready() -> None:
    assert pod_facts(pod(ready=True, containerStatuses=[running(ready=True, last=terminated())])).problem is None
    ending = pod_facts(pod(ready=True, deleted=True))
    assert (ending.ready, ending.terminating) == (False, True)


def test_a_pod_that_nobody_has_looked_at_yet_is_known() -> None:
    facts = pod_facts({"metadata": {"name": "a"}})
    assert (facts.name, facts.ready, facts.problem) == ("a", False, None)


def test_long_texts_are_cut() -> None:
    found = pod_facts(pod(containerStatuses=[waiting("CreateContainerConfigError", "x " * 2000)])).problem
    assert found is not None
    assert len(found.message) <= 300
