"""Handlers that do not end: their timeout is kept, others are not harmed, and the process goes when nothing else helps."""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.rig.waiting import eventually
from tests.worker.scene import PATIENCE, SLACK, Scene

STUCK = 10.0


def test_what_nobody_can_stop_ends_the_worker(scene: Scene) -> None:
    """FQ-12, pitfall 2.3: threads past their timeout or cancelled, a coroutine that swallows its cancellation.

    Others may finish, each outcome is written in the last act, and the process ends with an error and so gets a new start.
    """
    soon = {"timeout": 0.5, "max_attempts": 1}
    thread = scene.enqueue("stubborn", gate="never", options=soon)
    deaf = scene.enqueue("deaf", gate="never", options={**soon, "max_attempts": 3})
    unwanted = scene.enqueue("stubborn", gate="never")
    worker = scene.worker("--slots", "5", "--drain-timeout-seconds", "60", lease=30)
    start = scene.wait_line("start", thread)
    assert scene.wait_line("cancelled", deaf).note == "timeout"
    scene.wait_line("start", unwanted)
    scene.database.query("select tailrace.cancel(%s)", [unwanted])
    other = scene.enqueue("gated", gate="go")
    scene.wait_line("start", other)
    draining = worker.wait_event("worker_draining", STUCK + SLACK)
    assert draining["reason"] == "stuck handler"
    assert worker.events("job_stuck")
    assert scene.row(thread) == (True, 1, 0, 0)  # its lease lives as long as it
    late = scene.enqueue("quick")
    eventually(lambda: len(worker.events("job_stuck")) >= 3, what="the word of each")
    opened = scene.open("go")
    assert worker.wait(SLACK) == 1
    assert time.time() - opened < SLACK
    assert scene.database.query("select job_id, reason, error_type, total_attempts from tailrace.dead_letter") == [
        (thread, "timeout", "timeout", 1)
    ]
    assert scene.row(deaf, "token is null, attempts, errors -> 0 ->> 'type'") == (True, 1, "TimeoutError")
    assert scene.row(unwanted) is None
    assert (scene.count("cancelled"), scene.count("succeeded")) == (1, 1)
    assert scene.row(late) == (False, 0, 0, 0)
    assert scene.database.value("select count(*) from tailrace.worker") == 0
    assert time.time() - start.at < 0.5 + STUCK + 3 * SLACK


def test_a_coroutine_that_ends_late_after_its_timeout_has_timed_out(scene: Scene) -> None:
    """FQ-12: the worker goes on."""
    job = scene.enqueue("deaf", gate="go", options={"timeout": 0.5, "max_attempts": 1})
    worker = scene.worker(lease=30)
    assert scene.wait_line("cancelled", job).note == "timeout"
    scene.open("go")
    eventually(lambda: scene.row(job) is None, what="the end")
    assert scene.database.query("select reason from tailrace.dead_letter") == [("timeout",)]
    after = scene.enqueue("quick")
    scene.wait_line("start", after)
    assert worker.running


def test_an_event_loop_that_stays_blocked_past_the_timeout(scene: Scene) -> None:
    """FQ-12, BF-07, pitfall 2.2: another thread writes the outcomes, also those of jobs that had ended, and ends the process."""
    ended = scene.fill("quick", 30, priority=9)
    stuck = scene.enqueue("blocking", gate="never", options={"timeout": 1, "max_attempts": 2})
    worker = scene.worker("--slots", "2", lease=30)
    scene.wait_line("start", stuck)
    waiting = scene.fill("quick", 10)
    assert worker.wait(STUCK + 3 * SLACK) == 1
    assert "event loop is blocked" in worker.output
    assert scene.row(stuck) == (False, 1, 0, 0)
    assert scene.count("succeeded") == len(ended)
    assert all(scene.row(job) == (False, 0, 0, 0) for job in waiting)
    assert scene.database.value("select count(*) from tailrace.lease") == 0


def test_a_frozen_worker_in_a_transaction_stops_nobody(scene: Scene) -> None:
    """d4, FQ-18: its session stands in a transaction with locked rows; the reaper ends it and its jobs run elsewhere."""
    jobs = scene.fill("quick", 200)
    frozen = scene.database.connect(autocommit=False, application_name="tailrace work")
    frozen.execute("select from tailrace.job where id <= %s for update", [jobs[20]])
    worker = scene.worker()
    eventually(lambda: scene.live() <= 21, PATIENCE, what="the others")
    scene.wait_gone()
    eventually(lambda: worker.events("sessions_ended"), what="the word of it")
    with pytest.raises(psycopg.OperationalError):
        frozen.execute("select 1")
    frozen.close()
    scene.ran_once(jobs)
