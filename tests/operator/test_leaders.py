"""Two real controllers: one writes, and whatever happens to it, the other goes on and nothing is done twice to harm (g2)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.operator.stage import QUICK, Stage
from tests.rig.kube.controllers import LEASE_SECONDS, ControllerProcess
from tests.rig.kube.fixtures import StartController
from tests.rig.waiting import eventually

LEASE = "tailrace-controller"
BUSY_SECONDS = 3.0
"""What a machine with other work may add to a second."""


def holder(stage: Stage) -> str:
    found: Any = stage.get("leases", LEASE)
    return str(found["spec"].get("holderIdentity") or "") if found else ""


def since_the_loss(leader: ControllerProcess) -> float:
    """Return the seconds from the loss of the Lease, as a process that has just ended logged it, to now."""
    (lost,) = leader.events("leader_lost")
    return (datetime.now(UTC) - datetime.fromisoformat(lost["time"])).total_seconds()


def ends_or_stands_by(leader: ControllerProcess) -> None:
    """Wait for the end of a leader that has lost its Lease; it may find that no API server answers in time, and stand by."""
    eventually(lambda: not leader.running or leader.events("leader_unknown"), what="its end")
    if not leader.running:
        assert leader.wait(10) == 1
        assert since_the_loss(leader) < 1.0 + BUSY_SECONDS


def pair(stage: Stage, start: StartController) -> tuple[ControllerProcess, ControllerProcess]:
    """Start a leader and one that stands by."""
    leader = stage.controller(env={"TAILRACE_POD_NAME": "first"})
    second = start(env={**QUICK, "TAILRACE_POD_NAME": "second"})
    assert second.wait_event("leader_seen")["holder"].startswith("first_")
    return leader, second


def test_the_second_stands_by_and_writes_nothing(stage: Stage, controller_process: StartController) -> None:
    """operator-notes 3.2 #8: a Lease guards the writes, and only those; nobody is frozen."""
    _, second = pair(stage, controller_process)
    stage.apply()
    stage.wait_replicas(1)
    stage.wait_settled()
    eventually(lambda: second.get("/readyz")[0] == 200, what="readiness")
    assert second.metric("tailrace_leader") == 0
    writes = [
        line
        for line in second.get("/metrics")[1].splitlines()
        if line.startswith("tailrace_apiserver_requests_total") and "GET" not in line and not line.endswith(" 0.0")
    ]
    assert writes == []
    # its part of the work: maintenance and the gauges of queues (operator.md 7)
    eventually(lambda: second.metric("tailrace_maintenance_runs_total", routine="reaper") > 0, 20, what="the reaper")
    eventually(lambda: second.metric("tailrace_stats_timestamp_seconds", queue="jobs") > 0, 40, what="the reading")


def test_when_the_leader_is_killed_the_other_writes(stage: Stage, controller_process: StartController) -> None:
    leader, second = pair(stage, controller_process)
    stage.apply()
    stage.wait_replicas(1)
    leader.kill9()
    stage.change(replicas=3)
    stage.wait_replicas(3, timeout=20)
    assert holder(stage).startswith("second_")
    assert second.metric("tailrace_leader") == 1


def test_a_leader_that_is_told_to_stop_hands_over_at_once(stage: Stage, controller_process: StartController) -> None:
    leader, second = pair(stage, controller_process)
    began = time.monotonic()
    leader.terminate()
    assert leader.wait(10) == 0
    second.wait_ready()
    assert time.monotonic() - began < LEASE_SECONDS, "it waited for the Lease to run out"
    assert holder(stage).startswith("second_")


def test_a_leader_that_stood_still_ends_within_a_second_and_undoes_nothing(
    stage: Stage, controller_process: StartController
) -> None:
    """SIGSTOP during a change, SIGCONT after another has made it and more."""
    leader, second = pair(stage, controller_process)
    stage.apply()
    stage.wait_replicas(1)
    stage.change(replicas=2)  # it may just be working on this
    leader.stop()
    stage.change(replicas=3)
    second.wait_ready()
    stage.wait_replicas(3)
    stage.change(replicas=4)
    stage.wait_replicas(4)
    generation = stage.wait_replicas(4)["metadata"]["generation"]

    leader.cont()
    ends_or_stands_by(leader)
    stage.wait_settled()
    assert stage.wait_replicas(4)["metadata"]["generation"] == generation
    assert holder(stage).startswith("second_")


def test_a_lease_that_somebody_else_takes_ends_the_leader_within_a_second(stage: Stage) -> None:
    leader = stage.controller()

    def steal() -> bool:
        stage.admin.patch("leases", LEASE, {"spec": {"holderIdentity": "somebody"}}, namespace=stage.namespace)
        return bool(leader.events("leader_lost")) or not leader.running

    eventually(steal, what="the loss")
    ends_or_stands_by(leader)


@pytest.mark.slow
def test_rolling_restarts_while_queues_come_and_go(stage: Stage, controller_process: StartController) -> None:
    """g2: twenty JobQueues are made and deleted while controllers are replaced; none is left behind or frozen."""
    controllers = [stage.controller(env={"TAILRACE_POD_NAME": "0"})]
    for number in range(1, 4):
        controllers.append(controller_process(env={**QUICK, "TAILRACE_POD_NAME": str(number)}))
        controllers[-1].wait_event("controller_starting")
        for one in range(20):
            stage.apply(f"q{number}-{one}")
        controllers[-2].terminate()
        if number > 1:
            for one in range(20):
                stage.admin.delete("jobqueues", f"q{number - 1}-{one}", namespace=stage.namespace)
    for controller in controllers[:-1]:
        assert controller.wait(20) == 0
    for one in range(20):
        stage.wait_replicas(1, f"q3-{one}", timeout=60)

    def only_the_last() -> bool:
        left = {d["metadata"]["name"] for d in stage.admin.list("deployments", namespace=stage.namespace)}
        assert left == {f"q3-{one}-worker" for one in range(20)}, left
        return True

    eventually(only_the_last, 60, what="children of deleted queues gone")


def test_controllers_of_other_names_do_not_meet(stage: Stage) -> None:
    """Several installations: Lease, field manager and resources are apart."""
    stage.controller()
    stage.apply("ours")
    stage.apply("theirs", controllerName="other.example/second")
    stage.wait_replicas(1, "ours")
    assert stage.deployment("theirs") is None
    assert "conditions" not in stage.status("theirs")
