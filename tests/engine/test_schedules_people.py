"""What people do with schedules, who may do what, and what is refused where a queue gets its settings."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.engine.rows import Rows
from tests.engine.timetable import Timetable
from tests.rig.servers import RigDatabase


@pytest.fixture
def times(rows: Rows, database: RigDatabase) -> Timetable:
    """A database with the routine."""
    return Timetable(rows, database)


def refused(rows: Rows, statement: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as found:
        rows.conn.execute(statement)
    return found.value


def test_suspended_is_silent_and_resumed_begins_with_the_next_tick(times: Timetable) -> None:
    times.apply({"name": "a", "catchUpSeconds": 3600})
    assert times.rows.value("select tailrace.suspend_schedule('q', 'a')") is True
    assert times.rows.value("select tailrace.suspend_schedule('q', 'a')") is False
    times.past("a", 1000)
    assert (times.run(), times.row("a")["state"]) == ({}, "suspended")
    times.apply({"name": "a", "catchUpSeconds": 3600, "payload": {"n": 2}})
    assert times.row("a")["suspended"], "an apply does not undo what people did"
    assert times.rows.value("select tailrace.resume_schedule('q', 'a')") is True
    assert times.rows.value("select tailrace.resume_schedule('q', 'a')") is False
    assert times.row("a")["ago"] < 5
    assert times.run() == {}


def test_run_now_leaves_the_times_alone(times: Timetable) -> None:
    times.apply({"name": "a", "payload": {"n": 1}})
    times.rows.conn.execute("select tailrace.suspend_schedule('q', 'a')")
    before = times.row("a")["last_tick"]
    job = times.rows.value("select tailrace.run_schedule('q', 'a')")
    (found,) = times.jobs("a")
    assert (found["id"], found["payload"], found["key"].startswith("schedule/a/")) == (job, {"n": 1}, True)
    row = times.row("a")
    assert (row["last_tick"], row["last_job"], row["fired"]) == (before, job, 1)
    error = refused(times.rows, "select tailrace.run_schedule('q', 'a')")
    assert (error.sqlstate, f"job {job}" in str(error)) == ("TR004", True)


def test_run_now_does_not_wait_for_an_open_transaction(times: Timetable, other: Rows) -> None:
    times.apply({"name": "a", "overlap": "Replace"})
    job = times.rows.value("select tailrace.run_schedule('q', 'a')")
    other.conn.execute("select tailrace.update_job(%s, '{\"priority\": 1}')", [job])
    assert refused(times.rows, "select tailrace.run_schedule('q', 'a')").sqlstate == "TR004"
    other.conn.rollback()
    assert times.rows.value("select tailrace.run_schedule('q', 'a')") > job
    assert len(times.jobs("a")) == 1


def test_what_the_jobqueue_suspends_is_resumed_there(times: Timetable) -> None:
    times.apply({"name": "a", "suspend": True})
    assert refused(times.rows, "select tailrace.resume_schedule('q', 'a')").sqlstate == "TR004"


@pytest.mark.parametrize("word", ["run_schedule", "suspend_schedule", "resume_schedule"])
def test_an_unknown_schedule_is_not_found(times: Timetable, word: str) -> None:
    error = refused(times.rows, f"select tailrace.{word}('q', 'a')")
    assert (error.sqlstate, error.diag.column_name) == ("TR003", "name")


def test_each_change_is_in_the_audit(times: Timetable) -> None:
    times.apply({"name": "a"})
    for word in ("suspend_schedule", "resume_schedule", "run_schedule"):
        times.rows.conn.execute(f"select tailrace.{word}('q', 'a')")
    found = times.rows.conn.execute(
        "select verb, target ->> 'name' from tailrace.audit where verb like 'schedules.%' order by id"
    )
    assert found.fetchall() == [("schedules.suspend", "a"), ("schedules.resume", "a"), ("schedules.run", "a")]


# ---- refused where the queue gets its settings ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ([5], "spec.schedules[0]"),
        ([{"task": "t", "everySeconds": 5}], "spec.schedules[0].name"),
        ([{"name": "a", "everySeconds": 5}], "spec.schedules[0].task"),
        ([{"name": "a", "task": "t"}], "spec.schedules[0]"),
        ([{"name": "a", "task": "t", "everySeconds": 5, "cron": "* * * * *"}], "spec.schedules[0]"),
        ([{"name": "a", "task": "t", "everySeconds": 0}], "spec.schedules[0].everySeconds"),
        ([{"name": "a", "task": "t", "everySeconds": 5, "payload": []}], "spec.schedules[0].payload"),
        ([{"name": "a", "task": "t", "everySeconds": 5}] * 2, "spec.schedules[1].name"),
        ({"name": "a"}, "spec.schedules"),
        ([{"name": "a", "task": "t", "everySeconds": 5}] * 201, "spec.schedules"),
    ],
)
def test_apply_refuses_what_nobody_could_fire(times: Timetable, entries: Any, field: str) -> None:
    with pytest.raises(psycopg.Error) as found:
        times.rows.conn.execute("select tailrace.apply_queue('q', %s, 'cli')", [psycopg.types.json.Jsonb({"schedules": entries})])
    assert (found.value.sqlstate, found.value.diag.column_name) == ("TR002", field)
    assert times.rows.count("queue") == 0


def test_apply_refuses_a_task_that_no_living_worker_knows(times: Timetable) -> None:
    """Only new or changed entries, and only where workers serve the queue: without any there is nobody to ask."""
    times.apply({"name": "a", "task": "typo"})
    times.rows.worker("w")
    times.apply({"name": "a", "task": "typo"}, {"name": "b"})
    with pytest.raises(psycopg.Error, match="typo") as found:
        times.apply({"name": "a", "task": "typo"}, {"name": "c", "task": "typo"})
    assert found.value.diag.column_name == "spec.schedules[1].task"
    assert found.value.diag.message_hint == "Roll out workers that know it first, or correct the name"
    assert times.find("b") is not None, "nothing was changed"


# ---- rights ---------------------------------------------------------------------------------------------------------
def test_a_workers_role_fires_and_replaces(times: Timetable) -> None:
    """With its own rights, though it may ask for no other job's end."""
    times.apply({"name": "a", "overlap": "Replace"})
    times.rows.conn.execute("set role tailrace_worker")
    times.rows.conn.execute("select tailrace.cron_due_v1()")
    times.plan("a", "2090-01-01T00:00:00Z")
    (job,) = times.jobs("a")
    times.rows.claim(job["id"])
    times.plan("a", "2090-01-01T00:01:00Z")
    times.rows.conn.execute("select tailrace.stop_overlapped_v1('q', 'b')")
    times.rows.conn.execute("reset role")
    assert len(times.jobs("a")) == 2
    assert times.rows.count("cancel_request") == 1
    assert times.rows.value("select fault from tailrace.schedule") is None
