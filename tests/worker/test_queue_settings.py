"""What a JobQueue's settings change in a running worker, each field by its effect."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.rig.processes import StartWorker
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.apps:app"


def _apply(board: Board, settings: dict[str, Any]) -> None:
    board.conn.execute("select tailrace.apply_queue('work', %s, 'cli')", [Jsonb(settings)])


def test_the_queue_decides_the_lease(worker_process: StartWorker, board: Board) -> None:
    """BF-39: worker.lease wins over the worker's own setting, also when it changes while the worker runs."""
    _apply(board, {"worker": {"lease": {"durationSeconds": 9, "renewPeriodSeconds": 2}}})
    worker = worker_process(APP).wait_ready()
    eventually(lambda: board.value("select lease_seconds from tailrace.worker") == 9, what="the queue's lease")
    _apply(board, {"worker": {"lease": {"durationSeconds": 7, "renewPeriodSeconds": 2}}})
    eventually(lambda: board.value("select lease_seconds from tailrace.worker") == 7, what="the new lease")
    _apply(board, {})
    eventually(lambda: board.value("select lease_seconds from tailrace.worker") == 60, what="the worker's own lease")
    assert worker.running


def test_the_queue_decides_timeout_and_backoff_of_a_task(worker_process: StartWorker, board: Board) -> None:
    """BF-39: a task's settings in the queue come before the decorator's, its defaults after them."""
    _apply(board, {"tasks": {"nap": {"timeoutSeconds": 1, "maxAttempts": 1}}})
    job = board.enqueue("nap", seconds=60)
    worker_process(APP).wait_ready()
    board.wait_gone()
    assert board.dead()[job][0] == "timeout"


def test_discard_keeps_no_dead_letters(worker_process: StartWorker, board: Board) -> None:
    """BF-39: exhaustedPolicy Discard drops a job without attempts left, counted."""
    _apply(board, {"exhaustedPolicy": "Discard"})
    board.enqueue("fail", options={"max_attempts": 1})
    worker_process(APP).wait_ready()
    board.wait_gone()
    assert board.dead() == {}
    ends = "select what, n from tailrace.tally union all select what, n from tailrace.total"
    assert board.value(f"select coalesce(sum(n), 0) from ({ends}) e where what = 'dropped'") == 1
