"""Proof of death from end to end: a real worker is killed, the kubelet says so, and its job runs elsewhere within seconds.

The lease is a minute and the reaper's period too, so whatever is fast here is the proof's doing. There is no kubelet: the
test writes what one would.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.names.event_reasons import EventReason
from tests.operator.stage import Stage
from tests.rig.processes import StartWorker, WorkerProcess
from tests.rig.waiting import eventually
from tests.worker.scene import Line, Scene, let_pass

BOUND = 3.0 + 5.0
"""Seconds from the end of a container to the start of its job elsewhere, and what a busy machine may add."""
LEASE = 60.0
QUIET = 9.0
"""Seconds in which nothing must happen: longer than the bound."""


class Ward:
    """Workers as processes, each in the name of a pod."""

    def __init__(self, stage: Stage, jobs: Scene) -> None:
        self.stage, self.jobs = stage, jobs
        stage.apply("faults", replicas=2, worker={"slots": 1})
        stage.run_pods(2, "faults")
        stage.wait_setting("worker.slots", 1, "faults")

    def worker(self, pod: dict[str, Any]) -> tuple[WorkerProcess, str]:
        """Start a worker in the name of a pod; returns it and its id."""
        metadata = pod["metadata"]
        names = {
            "TAILRACE_POD_UID": metadata["uid"],
            "TAILRACE_POD_NAME": metadata["name"],
            "TAILRACE_CONTAINER": "worker",
            "TAILRACE_REAPER_SECONDS": f"{LEASE:g}",
        }
        process = self.jobs.worker("--slots", "1", lease=LEASE, env=names)
        return process, str(process.events("worker_ready")[0]["worker_id"])

    def start(self) -> tuple[WorkerProcess, str, dict[str, Any], int]:
        """Let one worker run a job, and another wait idle; returns process, id and pod of the first, and the job."""
        first, second = self.stage.pods("faults")
        process, ident = self.worker(first)
        job = self.jobs.enqueue("gated", gate="gate")
        self.jobs.wait_line("start", job)
        self.worker(second)
        return process, ident, first, job

    def runs_again(self, job: int) -> Line:
        """Return the second start of a job, which must come in time."""
        line = self.jobs.wait_line("start", job, 2, timeout=BOUND)
        self.jobs.open("gate")
        self.jobs.wait_gone()
        return line

    def does_not_run_again(self, job: int) -> None:
        let_pass(QUIET)
        assert len(self.jobs.lines("start", job)) == 1
        row = self.jobs.row(job)
        assert row is not None
        assert row[:2] == (True, 1)

    def death(self, ident: str) -> str | None:
        rows = self.stage.database.query("select death from tailrace.worker where id = %s", [ident])
        return rows[0][0] if rows else None


@pytest.fixture
def ward(stage: Stage, worker_process: StartWorker, tmp_path: Path) -> Ward:
    stage.controller()
    return Ward(stage, Scene(stage.database, worker_process, tmp_path / "home"))


def test_a_killed_worker_loses_its_leases_at_once(ward: Ward) -> None:
    """BF-08, CJ-05: the crash is charged, and the first loss runs again without delay."""
    process, ident, pod, job = ward.start()
    process.kill9()
    ward.stage.kubelet.restart(pod["metadata"]["name"], message=f"{ident}\n", exit_code=137)
    line = ward.runs_again(job)
    assert line.attempt == 2
    assert "exit code 137" in str(ward.death(ident))
    assert ident in ward.stage.wait_event(EventReason.WORKER_DIED, "faults")


def test_a_worker_that_took_too_much_memory(ward: Ward) -> None:
    process, ident, pod, job = ward.start()
    process.kill9()
    ward.stage.kubelet.oom_kill(pod["metadata"]["name"], message=f"{ident}\n")
    assert ward.runs_again(job).attempt == 2
    assert "OOMKilled" in str(ward.death(ident))


def test_an_evicted_worker_costs_no_attempt(ward: Ward) -> None:
    process, ident, pod, job = ward.start()
    name = pod["metadata"]["name"]
    evicted = {"status": {"reason": "Evicted", "message": "The node was low on resource: memory."}}
    ward.stage.admin.patch("pods", name, evicted, namespace=ward.stage.namespace, subresource="status")
    process.kill9()
    ward.stage.kubelet.kill(name, message=f"{ident}\n")
    assert ward.runs_again(job).attempt == 1
    assert str(ward.death(ident)).startswith("Evicted")


def test_a_deleted_pod_tells_by_its_last_object(ward: Ward) -> None:
    process, ident, pod, job = ward.start()
    name = pod["metadata"]["name"]
    ward.stage.kubelet.delete(name)
    process.kill9()
    ward.stage.kubelet.end(name, message=f"{ident}\n", reason="Error", exit_code=137)
    assert ward.runs_again(job).attempt == 1
    assert str(ward.death(ident)).startswith("Deleted")


def test_a_pod_removed_by_force_waits_for_the_lease(ward: Ward) -> None:
    """FQ-01: the process may live on; here it does."""
    _, ident, pod, job = ward.start()
    ward.stage.kubelet.force_delete(pod["metadata"]["name"])
    ward.does_not_run_again(job)
    assert ward.death(ident) is None
    ward.jobs.open("gate")
    ward.jobs.wait_gone()


def test_a_status_that_is_not_known_waits_for_the_lease(ward: Ward) -> None:
    _, ident, pod, job = ward.start()
    ward.stage.kubelet.kill(pod["metadata"]["name"], message=f"{ident}\n", reason="ContainerStatusUnknown")
    ward.does_not_run_again(job)
    assert ward.death(ident) is None
    ward.jobs.open("gate")
    ward.jobs.wait_gone()


def test_not_ready_and_deleted_are_no_proof(ward: Ward) -> None:
    _, ident, pod, job = ward.start()
    name = pod["metadata"]["name"]
    ward.stage.kubelet.ready(name, ready=False)
    ward.stage.kubelet.delete(name)
    ward.does_not_run_again(job)
    assert ward.death(ident) is None
    ward.jobs.open("gate")
    ward.jobs.wait_gone()


def test_evidence_of_before_the_start_is_taken_up(stage: Stage, worker_process: StartWorker, tmp_path: Path) -> None:
    """operator-notes 3.2 #12: what was there before is news too; a death while nobody watched is found in the first list."""
    controller = stage.controller()
    ward = Ward(stage, Scene(stage.database, worker_process, tmp_path / "home"))
    process, ident, pod, job = ward.start()
    controller.kill9()
    process.kill9()
    stage.kubelet.restart(pod["metadata"]["name"], message=f"{ident}\n", exit_code=137)
    let_pass(1.0)
    assert len(ward.jobs.lines("start", job)) == 1
    stage.controller()
    ward.runs_again(job)


def test_a_database_that_is_away_is_told_later(stage: Stage, worker_process: StartWorker, tmp_path: Path) -> None:
    controller = stage.controller()
    ward = Ward(stage, Scene(stage.database, worker_process, tmp_path / "home"))
    process, ident, pod, job = ward.start()
    stage.database.query("alter table tailrace.lease rename to lease_away")
    process.kill9()
    stage.kubelet.restart(pod["metadata"]["name"], message=f"{ident}\n", exit_code=137)
    eventually(lambda: controller.events("worker_death_proved"), what="a try that fails")
    stage.database.query("alter table tailrace.lease_away rename to lease")
    eventually(lambda: len(ward.jobs.lines("start", job)) == 2, 10, what="the job runs again")
    ward.jobs.open("gate")
    ward.jobs.wait_gone()


def test_a_worker_that_ends_while_its_resource_is_gone(ward: Ward) -> None:
    """Its jobs stay, and whoever serves the queue next has them at once."""
    process, ident, pod, job = ward.start()
    stage, name = ward.stage, pod["metadata"]["name"]
    stage.kubectl("delete", "jq", "faults", "--wait=true")
    eventually(lambda: "deletionTimestamp" in stage.kubelet.pod(name)["metadata"], 20, what="the pod is told to end")
    process.kill9()
    stage.kubelet.end(name, message=f"{ident}\n", reason="Error", exit_code=137)
    assert ward.runs_again(job).attempt == 1
