"""How runs end, through real workers: runs made, attempts on the row, dead letters, and what the next run sees."""

from __future__ import annotations

import itertools

import pytest

from tests.rig.processes import StartWorker
from tests.rig.waiting import eventually
from tests.worker.apps import ERRORS
from tests.worker.board import Board

APP = "tests.worker.apps:app"
RETRIED = sorted(set(ERRORS) - {"permanent", "listed"})


@pytest.mark.parametrize("task", ["fail", "fail_in_thread"])
def test_attempts_are_runs_made_and_the_last_one_is_dead(worker_process: StartWorker, board: Board, task: str) -> None:
    """CJ-04, CJ-24, FQ-15, BF-18, BF-37, BF-38, CJ-07, FQ-22: max_attempts 1, 2 and 3 times everything a handler can raise."""
    jobs = {
        board.enqueue(task, how=how, options={"max_attempts": most}): (how, most)
        for how, most in itertools.product(ERRORS, (1, 2, 3))
    }
    worker = worker_process(APP, "--slots", "4").wait_ready()
    board.wait_gone()
    dead = board.dead()
    assert set(dead) == set(jobs)
    for job, (how, most) in jobs.items():
        reason, _, attempts, errors = dead[job]
        expected = 1 if how in ("permanent", "listed") else most
        assert [line.attempt for line in board.lines(job)] == list(range(1, expected + 1)), how
        assert attempts == expected, how
        assert reason == ("max_attempts" if how in RETRIED else "permanent"), how
        assert [e["attempt"] for e in errors] == list(range(1, expected + 1)), how
        assert task in errors[-1]["traceback"] or how == "iteration", how
    assert worker.running
    assert worker.metric("tailrace_jobs_failed_total", task=task, final="true") == len(jobs)
    assert worker.metric("tailrace_jobs_failed_total", task=task, final="false") == len(RETRIED) * 3
    assert worker.metric("tailrace_dead_letters_added_total", task=task, reason="permanent") == 6
    assert worker.metric("tailrace_dead_letters_added_total", task=task) == len(jobs)
    eventually(lambda: worker.metric("tailrace_worker_slots", state="busy") == 0, what="free slots")
