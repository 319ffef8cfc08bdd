"""A schedule that cannot fire stops no other: told in its row, counted, and tried again later."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.rows import Rows
from tests.engine.timetable import Timetable, times_of
from tests.rig.servers import RigDatabase


@pytest.fixture
def times(rows: Rows, database: RigDatabase) -> Timetable:
    """A database with the routine."""
    return Timetable(rows, database)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"cron": "61 * * * *"}, "cron"),
    ({"cron": "* * * * *", "timeZone": "Mars/Olympus"}, "timeZone"),
    ({"everySeconds": "soon"}, "everySeconds"),
    ({"payload": [1]}, "payload"),
    ({"payload": {"x": "y" * 300_000}}, "payload"),
    ({"priority": 5000}, "priority"),
    ({"maxAttempts": 0}, "max_attempts"),
    ({"options": {"colour": "red"}}, "colour"),
    ({"options": {"meta": [1]}}, "meta"),
    ({"key": ""}, "key"),
]


@pytest.mark.parametrize(("entry", "field"), BAD, ids=[field for _, field in BAD])
def test_a_bad_entry_stops_no_other(times: Timetable, entry: dict[str, Any], field: str) -> None:
    """CJ-21, BF-39: it is told in its row, counted, and tried again later; the others go on. Rows can be written by hand."""
    times.apply({"name": "a-bad"}, {"name": "good"})
    times.rows.conn.execute(
        "update tailrace.queue set settings = jsonb_set(settings, '{schedules,0}', %s)",
        [Jsonb({"name": "a-bad", "task": "t", **times_of(entry), **entry})],
    )
    times.run()
    for name in ("a-bad", "good"):
        times.due(name)
    counts = times.run()
    assert (counts["fired"], counts["failed"]) == (1, 1)
    row = times.row("a-bad")
    assert (row["state"], row["fault"]["field"]) == ("failing", field)
    assert row["failed"] >= 1
    assert len(times.jobs("good")) == 1
    assert times.jobs("a-bad") == []
    assert times.run() == {}, "it is not tried again at once"
    times.apply({"name": "a-bad"}, {"name": "good"})
    assert times.row("a-bad")["state"] == "active"


def test_what_is_no_schedule_at_all_is_passed_by(times: Timetable) -> None:
    times.apply({"name": "good"})
    good = {"name": "good", "task": "t", **times_of({})}
    settings = {"schedules": [1, "x", {"task": "t"}, {"name": "", "task": "t"}, good]}
    times.rows.conn.execute("update tailrace.queue set settings = %s", [Jsonb(settings)])
    times.rows.conn.execute("insert into tailrace.queue (name, settings) values ('r', '{\"schedules\": 7}')")
    times.rows.worker("w")
    times.rows.conn.execute('update tailrace.worker set schedules = \'{"not": "a list"}\'')
    times.due("good")
    assert times.run()["fired"] == 1


@pytest.mark.parametrize("column", ["last_tick", "next_tick"])
@pytest.mark.parametrize("when", ["infinity", "-infinity", "10001-01-01", "0044-03-15 BC"])
def test_times_that_no_program_can_read_are_refused(times: Timetable, column: str, when: str) -> None:
    """Case f1: a list of schedules must not break on one row."""
    times.apply({"name": "a"})
    with pytest.raises(psycopg.errors.CheckViolation):
        times.rows.conn.execute(f"update tailrace.schedule set {column} = %s", [when])


def test_what_nobody_foresaw_stops_no_other(times: Timetable) -> None:
    """CJ-21: rows that no function of ours would write, and an error that is no single tick's."""
    times.apply({"name": "a", "cron": "0 * * * *", "timeZone": "America/New_York"}, {"name": "b"}, {"name": "good"})
    for name in ("a", "b", "good"):
        times.due(name)
    times.rows.conn.execute("update tailrace.schedule set last_tick = '0001-01-01 00:00+00' where name = 'a'")
    times.rows.conn.execute("alter table tailrace.schedule add constraint never check (name <> 'b' or last_fired_at is null)")
    counts = times.run()
    assert (counts["fired"], counts["failed"]) == (1, 2)
    assert len(times.jobs("good")) == 1
    assert times.jobs("b") == [], "what had been enqueued was undone with the rest"
    assert "never" in times.row("b")["fault"]["problem"]
    assert times.row("a")["state"] == "failing"
    assert times.run() == {}


def test_a_passing_fault_is_tried_again_and_stops_no_other(times: Timetable, other: Rows) -> None:
    """An application holds the key in an open transaction: the tick is not lost, the others do not wait for it."""
    times.apply({"name": "a", "key": "mine"}, {"name": "b"})
    times.due("a")
    times.due("b")
    other.conn.execute("select tailrace.enqueue('q', 't', '{}', '{\"key\": \"mine\"}')")
    counts = times.run()
    assert (counts["fired"], counts["failed"]) == (1, 1)
    assert len(times.jobs("b")) == 1
    assert times.row("a")["state"] == "failing"
    other.conn.rollback()
    times.rows.conn.execute("update tailrace.schedule set next_tick = clock_timestamp() where name = 'a'")
    assert times.run()["fired"] == 1
    assert (times.row("a")["state"], len(times.jobs("a"))) == ("active", 1)


def test_a_task_that_nobody_knows_is_told_and_waits(times: Timetable) -> None:
    """Where workers serve the queue; without any the job waits for them like every other."""
    times.apply({"name": "a", "task": "typo", "overlap": "Allow"})
    times.due("a")
    assert times.run() == {"fired": 1}
    times.rows.worker("w")
    times.due("a")
    counts = times.run()
    assert counts["failed"] == 1
    assert times.row("a")["fault"]["field"] == "task"
    assert "typo" in times.row("a")["fault"]["problem"]
