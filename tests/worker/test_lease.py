"""Leases: a worker that lives keeps its jobs however long they take, one that died or stood still loses them."""

from __future__ import annotations

import psutil
import pytest

from tests.rig.processes import WorkerProcess
from tests.rig.waiting import eventually
from tests.worker.scene import LEASE, PATIENCE, REAPER, SLACK, Scene, let_pass

RECOVERY = LEASE + 2.5 * REAPER
"""The bound without a controller; a job that is lost for the first time waits its backoff, too."""


def frozen(worker: WorkerProcess) -> None:
    """Wait until the process stands still."""
    eventually(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED, what="a stopped process")


def taken_from(scene: Scene, worker_id: str) -> None:
    """Wait until a worker has no lease any more."""
    leases = "select count(*) from tailrace.lease where worker = %s"
    eventually(lambda: scene.database.value(leases, [worker_id]) == 0, PATIENCE, what="the take-over")


def id_of(worker: WorkerProcess) -> str:
    return str(worker.wait_event("worker_ready")["worker_id"])


def test_a_job_of_three_leases_runs_once(scene: Scene) -> None:
    """a2, BF-07, CJ-02, FQ-11: one in a coroutine, one in a thread, while another worker looks for the dead."""
    jobs = [scene.enqueue("gated", gate="go"), scene.enqueue("stubborn", gate="go")]
    scene.worker()
    other = scene.worker()
    for job in jobs:
        scene.wait_line("start", job)
    let_pass(3 * LEASE + 1)
    scene.open("go")
    scene.wait_gone()
    scene.ran_once(jobs)
    assert not other.events("leases_taken_over")


def test_a_blocked_event_loop_keeps_its_lease(scene: Scene) -> None:
    """BF-07: the heartbeat has a thread and a connection of its own."""
    job = scene.enqueue("blocking", gate="go")
    blocked = scene.worker()
    scene.wait_line("start", job)
    scene.worker()
    let_pass(2 * LEASE + 1)
    assert scene.row(job) == (True, 1, 0, 0)
    scene.open("go")
    scene.wait_gone()
    scene.ran_once([job])
    assert not blocked.events("lease_lost")


def test_a_killed_workers_job_runs_again_in_time(scene: Scene) -> None:
    """BF-08, GW-02, FQ-02, a2: within lease and reaper interval, charged, never while the first lived; no setting is needed."""
    job = scene.enqueue("gated", gate="go")
    first = scene.worker()
    start = scene.wait_line("start", job)
    second = scene.worker()
    let_pass(LEASE + 1)  # it is renewed, and the second worker has become the runner of the reaper
    killed_at = scene.open("unused")
    first.kill9()
    again = scene.wait_line("start", job, 2)
    assert again.at > killed_at
    assert again.at - killed_at < RECOVERY + SLACK
    assert (start.attempt, again.attempt) == (1, 2)
    assert scene.row(job) == (True, 2, 1, 0)
    scene.open("go")
    scene.wait_gone()
    assert len(scene.lines("end")) == 1
    assert second.metric("tailrace_leases_reclaimed_total", evidence="expired") == 1


def test_a_replacement_of_the_same_name_does_not_hide_orphans(scene: Scene) -> None:
    """BF-08, c4: each start is a worker of its own, also under a name that was given."""
    env = {"TAILRACE_WORKER_ID": "the-only-one"}
    job = scene.enqueue("gated", gate="go")
    first = scene.worker(env=env, lease=12)
    scene.wait_line("start", job)
    first.kill9()
    token = scene.row(job, "token")
    second = scene.worker(env=env, lease=12)
    busy = scene.enqueue("gated", gate="busy")
    scene.wait_line("start", busy)
    assert scene.row(job, "token") == token  # it neither completes nor renews what it did not claim
    again = scene.wait_line("start", job, 2)
    assert again.attempt == 2
    assert id_of(first) != id_of(second)
    scene.open("go")
    scene.open("busy")
    scene.wait_gone()
    assert len(scene.lines("end")) == 2


def test_a_worker_that_stood_still_starts_nothing_and_writes_nothing(scene: Scene) -> None:
    """FQ-03, GW-01, CJ-19: jobs that it had taken ahead run elsewhere only; its late finish is refused and counted."""
    scene.fill("quick", 600, priority=9)  # teaches it to take jobs ahead
    freezing = scene.fill("freezing", 1, priority=8)[0]
    rest = scene.fill("quick", 300)
    worker = scene.worker("--slots", "2", "--poll-seconds", "0.1")
    frozen(worker)
    held = scene.database.value("select count(*) from tailrace.job where token is not null")
    assert held > 3, "the worker has taken nothing ahead"
    scene.worker()
    taken_from(scene, id_of(worker))
    scene.wait_gone()
    before = len(scene.lines("start"))
    worker.cont()
    worker.wait_event("lease_lost")
    eventually(lambda: worker.metric("tailrace_fenced_writes_total") >= 1, what="the refused finish")
    worker.wait_event("writes_fenced")
    last = scene.enqueue("quick")
    scene.wait_line("start", last)
    assert [line.job for line in scene.lines("start")[before:]] == [last]
    again = [line.job for line in scene.lines("start") if line.attempt > 1 and line.pid == worker.pid]
    assert not again
    assert len(scene.lines("start", freezing)) == 2
    runs = [line.job for line in scene.lines("start") if line.job in set(rest)]
    assert sorted(runs) == rest
    eventually(lambda: scene.count("succeeded") == 600 + 1 + len(rest) + 1, what="each end counted once")
    eventually(lambda: worker.get("/readyz")[0] == 200, what="readiness")


@pytest.mark.parametrize(("task", "most"), [("fails", 1), ("fails", 5), ("gated", 1)])
def test_a_lost_lease_writes_no_dead_letter_and_ends_nothing(scene: Scene, task: str, most: int) -> None:
    """CJ-03, FQ-03, GW-01: a lease that was released by force is somebody else's; failure and success are both refused."""
    job = scene.enqueue(task, gate="go", options={"max_attempts": most, "backoff": {"strategy": "fixed", "base": 60, "cap": 60}})
    worker = scene.worker(lease=30)
    scene.wait_line("start", job)
    worker.stop()
    result = scene.database.query(
        "select result from tailrace.release_leases_v1(array(select token from tailrace.lease), force => true)"
    )
    assert result == [("released",)]
    before = scene.database.query("select reason, dead_count, total_attempts, errors from tailrace.dead_letter")
    assert [r[:3] for r in before] == ([("lease_expired", 1, 1)] if most == 1 else [])
    scene.open("go")
    worker.cont()
    eventually(lambda: worker.metric("tailrace_fenced_writes_total") == 1, what="the refused write")
    assert scene.database.query("select reason, dead_count, total_attempts, errors from tailrace.dead_letter") == before
    assert scene.row(job) == (None if most == 1 else (False, 1, 1, 0))
    assert scene.count("succeeded") == 0


def test_a_handler_whose_lease_is_lost_is_cancelled(scene: Scene) -> None:
    """FQ-03: it is told why, at once, and nothing of its run is written."""
    job = scene.enqueue("gated", gate="go", options={"backoff": {"strategy": "fixed", "base": 60, "cap": 60}})
    worker = scene.worker(lease=30)
    scene.wait_line("start", job)
    scene.database.query("select from tailrace.release_leases_v1(array(select token from tailrace.lease), force => true)")
    assert scene.wait_line("cancelled", job).note == "lease_lost"
    eventually(lambda: worker.metric("tailrace_jobs_interrupted_total", reason="lease_lost") == 1, what="the count")
    assert scene.row(job) == (False, 1, 1, 0)
    eventually(lambda: worker.get("/readyz")[0] == 200, what="readiness")


def test_a_job_that_kills_its_worker_is_counted_and_ends_dead(scene: Scene) -> None:
    """BF-08, CJ-03: each crash is charged; on the last one the job is a dead letter, written by the reaper."""
    job = scene.enqueue("gated", gate="never", options={"max_attempts": 2})
    for attempt in (1, 2):
        worker = scene.worker()
        scene.wait_line("start", job, attempt)
        worker.kill9()
    scene.worker()
    eventually(lambda: scene.row(job) is None, PATIENCE, what="the dead letter")
    assert scene.database.query("select reason, total_attempts from tailrace.dead_letter") == [("lease_expired", 2)]
    assert len(scene.lines("start")) == 2
