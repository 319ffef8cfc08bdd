"""The server goes and comes back: workers wait for it, keep what they know, and neither lose nor repeat a job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pytest

from tests.rig.processes import StartWorker
from tests.rig.servers import Server
from tests.rig.waiting import eventually
from tests.worker.scene import PATIENCE, SLACK, Scene, let_pass

LONG_LEASE = 30.0


@pytest.fixture
def own(private_server: Server, worker_process: StartWorker, tmp_path: Path) -> Scene:
    """A scene on a server that the test may stop."""
    return Scene(private_server.migrated(), worker_process, tmp_path / "scene")


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_restarts_under_load(own: Scene, private_server: Server, how: Literal["fast", "immediate"]) -> None:
    """d2, CJ-06, FQ-21: farewell or crash, in the middle of batches of two queues and with a job running."""
    running = own.enqueue("gated", gate="go")
    workers = [own.worker("--queue", "faults=3", "--queue", "other=2", lease=LONG_LEASE) for _ in range(2)]
    own.wait_line("start", running)
    jobs = [running]
    for _ in range(3):
        jobs += own.fill("quick", 300) + own.fill("quick", 100, queue="other")
        some_work(own, len(jobs) - 380)
        private_server.postgres.stop(how)
        private_server.postgres.start()
    own.open("go")
    own.wait_gone()
    own.ran_once(jobs)
    assert sum(worker.metric("tailrace_fenced_writes_total") for worker in workers) == 0
    for worker in workers:
        ready_again(worker.get)


def some_work(scene: Scene, jobs: int) -> None:
    """Wait until more than so many jobs have been started."""
    eventually(lambda: len(scene.lines("start")) > jobs, PATIENCE, what="some work")


def ready_again(get: object) -> None:
    """Wait until a worker says that it is ready."""
    assert callable(get)
    eventually(lambda: get("/readyz")[0] == 200, PATIENCE, what="readiness")


def test_outcomes_wait_for_a_server_that_is_away(own: Scene, private_server: Server) -> None:
    """CJ-06, FQ-21, d2: jobs that ended meanwhile are written when it is back; nothing new starts without it."""
    good, bad = own.enqueue("gated", gate="go"), own.enqueue("fails", gate="go", options={"max_attempts": 1})
    worker = own.worker(lease=LONG_LEASE)
    for job in (good, bad):
        own.wait_line("start", job)
    private_server.postgres.stop("fast")
    own.open("go")
    for job in (good, bad):
        own.wait_line("end", job)
    eventually(lambda: worker.get("/readyz")[0] == 503, what="no database")
    let_pass(10)
    assert worker.get("/livez")[0] == 200
    assert worker.events("database_away")
    private_server.postgres.start()
    own.wait_gone()
    assert (own.count("succeeded"), own.count("dead")) == (1, 1)
    assert len(own.lines("start")) == 2
    assert own.database.query("select reason, total_attempts from tailrace.dead_letter") == [("max_attempts", 1)]
    last = own.enqueue("quick")
    own.wait_line("start", last)
    assert worker.metric("tailrace_fenced_writes_total") == 0


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_signal_ends_a_worker_without_a_server(own: Scene, private_server: Server, how: Literal["fast", "immediate"]) -> None:
    """BF-35, c3: in the middle of its waiting for the next try, at once, with status 0."""
    worker = own.worker(lease=LONG_LEASE)
    private_server.postgres.stop(how)
    worker.wait_event("database_away")
    eventually(lambda: len(worker.events("database_away")) >= 3, what="pauses that grow")
    began = time.monotonic()
    worker.terminate()
    assert worker.wait(SLACK) == 0
    assert time.monotonic() - began < 5
    assert "Traceback" not in worker.output


def test_a_drain_waits_for_the_server_while_outcomes_are_unwritten(own: Scene, private_server: Server) -> None:
    """BF-35, FQ-21: a job that has ended is worth the drain timeout."""
    job = own.enqueue("gated", gate="go")
    worker = own.worker("--drain-timeout-seconds", "30", lease=LONG_LEASE)
    own.wait_line("start", job)
    private_server.postgres.stop("fast")
    own.open("go")
    own.wait_line("end", job)
    worker.wait_event("database_away")
    worker.terminate()
    worker.wait_event("worker_draining")
    private_server.postgres.start()
    assert worker.wait(20) == 0
    own.ran_once([job])
    assert own.database.value("select count(*) from tailrace.lease") == 0


def test_a_drain_does_not_wait_for_ever(own: Scene, private_server: Server) -> None:
    """BF-35: the outcome is lost with the process, which says so; the job runs again when its lease is over."""
    job = own.enqueue("gated", gate="go")
    worker = own.worker("--drain-timeout-seconds", "1")
    own.wait_line("start", job)
    private_server.postgres.stop("fast")
    own.open("go")
    own.wait_line("end", job)
    worker.terminate()
    assert worker.wait(25) == 1
    assert "could not be written" in worker.output
    private_server.postgres.start()
    own.worker()
    own.wait_line("end", job, 2)
    own.wait_gone()
