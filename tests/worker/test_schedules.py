"""Schedules with real workers: declared, fired by the worker that stands in, and what overlaps with a running handler."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.rig.processes import StartWorker
from tests.rig.waiting import eventually
from tests.worker.board import Board

APPS = "tests.worker.schedule_apps"
SHORT = ("--lease-seconds", "3")


def state(board: Board, name: str) -> dict[str, Any] | None:
    row = board.conn.execute("select to_jsonb(s) from tailrace.schedules s where name = %s", [name]).fetchone()
    return None if row is None else dict(row[0])


def pulses(board: Board) -> list[datetime]:
    return [datetime.fromisoformat(line.note or "") for line in board.lines(task="pulse")]


def test_a_worker_publishes_and_fires_what_its_application_declares(board: Board, worker_process: StartWorker) -> None:
    """Two workers, nobody else: each second's job runs once, and its handler knows which tick it is."""
    first, second = (worker_process(f"{APPS}:app").wait_ready() for _ in range(2))
    board.wait_lines(5, task="pulse")
    found = pulses(board)
    assert sorted(found) == [min(found) + timedelta(seconds=n) for n in range(len(found))]
    published = board.value("select schedules from tailrace.worker limit 1")
    assert published == [
        {
            "queue": "work", "name": "pulse", "everySeconds": 1, "task": "pulse", "payload": {"scope": "all"}, "overlap": "Allow",
            "catchUpSeconds": 0, "options": {"meta": {"by": "app"}, "defaults": {"timeout": 60.0}},
        }
    ]  # fmt: skip
    row = state(board, "pulse")
    assert row is not None
    assert (row["state"], row["source"], row["missed"], row["failed"]) == ("active", "worker", 0, 0)
    counted = sum(one.metric("tailrace_schedule_ticks_total", queue="work", result="fired") for one in (first, second))
    assert counted >= 5
    assert sum(one.metric("tailrace_maintenance_runs_total", routine="cron", result="ok") for one in (first, second)) >= 1


def test_a_rolling_restart_neither_skips_nor_doubles(board: Board, worker_process: StartWorker) -> None:
    """The last worker goes, its schedule is silent; the next one takes it up where it was."""
    old = worker_process(f"{APPS}:app", *SHORT).wait_ready()
    board.wait_lines(2, task="pulse")
    old.terminate()
    assert old.wait() == 0
    worker_process(f"{APPS}:app", *SHORT).wait_ready()
    board.wait_lines(len(pulses(board)) + 3, task="pulse")
    found = pulses(board)
    assert sorted(found) == [min(found) + timedelta(seconds=n) for n in range(len(found))]


def test_a_schedule_goes_with_the_last_worker_that_declares_it(board: Board, worker_process: StartWorker) -> None:
    """A release that declares it no more goes on working without it."""
    old = worker_process(f"{APPS}:app", *SHORT).wait_ready()
    board.wait_lines(1, task="pulse")
    worker_process(f"{APPS}:bare", *SHORT).wait_ready()
    old.kill9()
    eventually(lambda: (state(board, "pulse") or {}).get("state") == "absent", 40, what="a silent schedule")
    board.wait_gone()
    assert board.enqueue("pulse") > 0


def test_skip_with_a_running_handler(board: Board, worker_process: StartWorker) -> None:
    worker_process(f"{APPS}:skipping").wait_ready()
    board.wait_lines(4, task="long")
    assert [line.note for line in board.lines(task="long")[:4]] == ["begun", "ended", "begun", "ended"]
    row = state(board, "long")
    assert row is not None
    assert row["skipped"] >= 2
    assert row["state"] == "active"


def test_replace_stops_a_running_handler(board: Board, worker_process: StartWorker) -> None:
    """Told at once by the worker's own channel, and the next tick's job runs."""
    worker_process(f"{APPS}:replacing").wait_ready()
    eventually(lambda: [line.note for line in board.lines(task="long")].count("cancel") >= 2, 30, what="two cancelled runs")
    starts = {line.job for line in board.lines(task="long") if line.note == "begun"}
    assert len(starts) >= 3
    eventually(lambda: board.ends().get("cancelled", 0) >= 2, what="their ends in the database")


@pytest.mark.parametrize("word", ["suspend_schedule", "resume_schedule"])
def test_the_jobqueue_fires_through_a_worker_too(board: Board, worker_process: StartWorker, word: str) -> None:
    """A JobQueue's schedule, without any declaration; suspended it is silent."""
    settings = {"schedules": [{"name": "beat", "everySeconds": 1, "task": "pulse", "overlap": "Allow"}]}
    board.conn.execute("select tailrace.apply_queue('work', %s, 'cli')", [Jsonb(settings)])
    board.conn.execute("select tailrace.suspend_schedule('work', 'beat')")
    worker = worker_process(f"{APPS}:bare").wait_ready()
    eventually(lambda: worker.metric("tailrace_maintenance_runs_total", routine="cron") >= 1, what="a look at the schedules")
    if word == "resume_schedule":
        board.conn.execute("select tailrace.resume_schedule('work', 'beat')")
        board.wait_lines(2, task="pulse")
    else:
        assert board.lines(task="pulse") == []


def test_a_worker_that_ends_when_all_is_done_declares_nothing(board: Board, worker_process: StartWorker) -> None:
    """It would never end with a schedule of a second, and leave one that nobody keeps."""
    job = board.enqueue("pulse")
    assert worker_process(f"{APPS}:app", "--until-empty").wait() == 0
    assert board.notes(job) == [None]
    assert state(board, "pulse") is None


def test_a_declaration_that_cannot_be_is_told_at_the_start(worker_process: StartWorker) -> None:
    """The developer sees it, and no worker begins half."""
    worker = worker_process(f"{APPS}:wrong")
    assert worker.wait() != 0
    assert "typo" in worker.output
