"""A worker that is told to stop: nothing is claimed, what runs may end or is given back, and the process is gone in time."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from psycopg.types.json import Jsonb

from tests.rig.processes import StartProcess
from tests.rig.proxy import TcpProxy
from tests.rig.waiting import eventually
from tests.worker.scene import APP, SLACK, Scene


def ended(scene: Scene) -> bool:
    """Whether the worker has left nothing of itself."""
    return scene.database.query("select (select count(*) from tailrace.worker), (select count(*) from tailrace.lease)") == [
        (0, 0)
    ]


@pytest.mark.parametrize("poll", ["0.01", "1", "60"])
def test_an_idle_worker_ends_at_once(scene: Scene, poll: str) -> None:
    """c3, BF-35, BF-42: whatever it waits for; its own row is gone with it."""
    worker = scene.worker("--poll-seconds", poll)
    began = time.monotonic()
    worker.terminate()
    assert worker.wait(SLACK) == 0
    assert time.monotonic() - began < 4
    assert "Traceback" not in worker.output
    assert ended(scene)
    assert [line.what for line in scene.lines()] == ["opened", "closed"]


def test_a_running_job_ends_first_and_nothing_is_claimed(scene: Scene) -> None:
    """c2, BF-35, CJ-01, FQ-05: the job is told, may finish, and its lease lives until it has; a new job stays untouched."""
    job = scene.enqueue("told", gate="go")
    worker = scene.worker("--slots", "2")
    scene.wait_line("start", job)
    worker.terminate()
    assert scene.wait_line("told", job).note == "shutdown"
    late = scene.enqueue("quick")
    assert worker.get("/readyz")[0] == 503
    assert worker.get("/livez")[0] == 200
    assert scene.row(job) == (True, 1, 0, 0)
    scene.open("go")
    assert worker.wait(SLACK) == 0
    assert scene.row(job) is None
    assert scene.row(late) == (False, 0, 0, 0)
    assert [line.what for line in scene.lines()][-2:] == ["end", "closed"]  # resources outlive the last job
    assert ended(scene)


def test_a_backlog_is_handed_back_uncharged(scene: Scene) -> None:
    """c2, FQ-05, BF-35: of a thousand jobs only the started ones end; no other has been claimed, charged or lost."""
    scene.fill("quick", 400, priority=9)  # teaches the worker to take jobs ahead
    jobs = scene.fill("gated", 600, gate="go")
    worker = scene.worker("--slots", "4")
    eventually(lambda: len(scene.lines("start")) == 404, what="four running jobs")
    worker.terminate()
    worker.wait_event("worker_draining")
    others = "select count(*) filter (where token is not null), max(attempts) from tailrace.job"
    eventually(lambda: scene.database.query(others)[0][0] == 4, SLACK, what="the rest back at once")
    scene.open("go")
    assert worker.wait(SLACK) == 0
    assert scene.count("succeeded") == 404
    assert scene.database.query(others) == [(0, 0)]
    assert len(scene.lines("start")) == 404
    assert scene.live() == len(jobs) - 4
    assert ended(scene)


@pytest.mark.parametrize("slots", ["1", "8"])
def test_a_claim_that_was_on_its_way_is_handed_back(scene: Scene, slots: str) -> None:
    """c2, FQ-05: stopped in the middle of full speed, nothing is charged twice and nothing stays claimed."""
    scene.fill("quick", 3000)
    worker = scene.worker("--slots", slots)
    eventually(lambda: len(scene.lines("start")) > 300, what="full speed")
    worker.terminate()
    assert worker.wait(SLACK) == 0
    started = [line.job for line in scene.lines("start")]
    assert len(set(started)) == len(started)
    assert scene.count("succeeded") == len(started)
    assert scene.live() == 3000 - len(started)
    assert scene.database.value("select count(*) from tailrace.job where token is not null or attempts > 0") == 0
    assert ended(scene)


def test_what_outlasts_the_drain_is_interrupted_and_given_back(scene: Scene) -> None:
    """BF-35, CJ-01: cancelled, not charged, counted as interrupted; the lease ends after the run."""
    job = scene.enqueue("gated", gate="never")
    worker = scene.worker("--drain-timeout-seconds", "1")
    scene.wait_line("start", job)
    worker.terminate()
    assert worker.wait(SLACK) == 0
    assert scene.wait_line("cancelled", job).note == "shutdown"
    assert scene.row(job) == (False, 0, 0, 1)
    assert ended(scene)


def test_a_task_says_how_often_it_may_be_interrupted(scene: Scene) -> None:
    """BF-39: tasks[].maxInterruptions comes before the queue's: here the first interruption is charged like a failure."""
    settings = {"jobDefaults": {"maxInterruptions": 5}, "tasks": {"gated": {"maxInterruptions": 0}}}
    scene.database.query("select tailrace.apply_queue(%s, %s, 'cli')", ["faults", Jsonb(settings)])
    job = scene.enqueue("gated", gate="never")
    worker = scene.worker("--drain-timeout-seconds", "1")
    scene.wait_line("start", job)
    worker.terminate()
    assert worker.wait(SLACK) == 0
    assert scene.row(job) == (False, 1, 0, 0)


def test_a_second_signal_does_not_wait(scene: Scene) -> None:
    job = scene.enqueue("gated", gate="never")
    worker = scene.worker("--drain-timeout-seconds", "60")
    scene.wait_line("start", job)
    worker.terminate()
    worker.wait_event("worker_draining")
    worker.signal(signal.SIGINT)
    assert worker.wait(SLACK) == 0
    assert scene.row(job) == (False, 0, 0, 1)


def test_a_sync_handler_that_listens_ends_in_time(scene: Scene) -> None:
    job = scene.enqueue("polite")
    worker = scene.worker()
    scene.wait_line("start", job)
    worker.terminate()
    assert worker.wait(SLACK) == 0
    assert scene.wait_line("end", job).note == "shutdown"
    assert scene.count("succeeded") == 1


def test_a_sync_handler_that_raises_when_interrupted_is_given_back_with_its_state(scene: Scene) -> None:
    job = scene.enqueue("interruptible")
    worker = scene.worker("--drain-timeout-seconds", "0.5")
    scene.wait_line("start", job)
    worker.terminate()
    worker.wait_event("worker_draining")
    eventually(lambda: "drain timeout" in worker.output, what="the interruption")
    scene.open("raise")
    assert worker.wait(SLACK) == 0
    assert scene.row(job, "token is not null, attempts, lost, interrupted, saved") == (False, 0, 0, 1, {"page": 1})


def test_a_handler_that_listens_to_nothing_is_written_in_the_last_act(scene: Scene) -> None:
    """BF-35, CJ-01: the outcome of a thread that nobody can stop is written as the process ends; its bound is grace + 11 s."""
    thread, other = scene.enqueue("stubborn", gate="never"), scene.enqueue("gated", gate="never")
    worker = scene.worker("--drain-timeout-seconds", "1")
    scene.wait_line("start", thread)
    scene.wait_line("start", other)
    began = time.monotonic()
    worker.terminate()
    assert worker.wait(30) == 1
    assert time.monotonic() - began < 1 + 11 + SLACK
    assert scene.row(thread) == (False, 0, 0, 1)
    assert scene.row(other) == (False, 0, 0, 1)
    assert not scene.lines("end")
    assert ended(scene)


def test_a_blocked_event_loop_does_not_hide_the_signal(scene: Scene) -> None:
    """BF-35: the watching thread sees the signal too; outcomes that were not written yet are not lost."""
    scene.fill("quick", 20, priority=9)
    job = scene.enqueue("blocking", gate="never")
    worker = scene.worker("--drain-timeout-seconds", "1", lease=30)
    scene.wait_line("start", job)
    worker.terminate()
    assert worker.wait(40) == 1
    assert scene.row(job) == (False, 0, 0, 1)
    assert scene.count("succeeded") == 20
    assert ended(scene)


def test_killed_while_draining_counts_as_interrupted(scene: Scene) -> None:
    """FQ-02: the platform cut it, so the attempt is given back, and another worker takes over."""
    job = scene.enqueue("told", gate="go")
    worker = scene.worker()
    scene.wait_line("start", job)
    worker.terminate()
    scene.wait_line("told", job)
    draining = "select count(*) from tailrace.worker where state = 'draining'"
    eventually(lambda: scene.database.value(draining) == 1, what="the order in the database")
    worker.kill9()
    scene.open("go")
    scene.worker()
    eventually(lambda: scene.row(job) in ((False, 0, 0, 1), (True, 1, 0, 1)), what="the take-over")
    again = scene.wait_line("start", job, 2)
    assert again.attempt == 1


def test_a_signal_to_the_whole_process_group_cuts_no_job(scene: Scene, process: StartProcess) -> None:
    """c1: As an init or a terminal sends it: no part of a worker is a process of its own that could be cut."""
    job = scene.enqueue("gated", gate="go")
    env = {"TAILRACE_DATABASE_URL": scene.database.dsn, "TAILRACE_METRICS_PORT": "none", "FAULTS_HOME": str(scene.home)}
    worker = process("setsid", sys.executable, "-m", "tailrace_cli", "worker", APP, env=env)
    scene.wait_line("start", job)
    os.killpg(worker.pid, signal.SIGTERM)
    eventually(lambda: "worker_draining" in worker.output, what="the drain")
    scene.open("go")
    assert worker.wait(SLACK) == 0
    assert scene.count("succeeded") == 1
    assert [line.what for line in scene.lines(job=job)] == ["start", "end"]


def test_a_silent_database_does_not_keep_the_process(scene: Scene, tcp_proxy: TcpProxy) -> None:
    """c3, BF-35: no answer to anything, no error either; what ran is recovered by its lease."""
    idle = scene.worker(dsn=tcp_proxy.dsn)
    tcp_proxy.pause()
    began = time.monotonic()
    idle.terminate()
    assert idle.wait(20) == 0
    assert time.monotonic() - began < 12
    tcp_proxy.resume()
