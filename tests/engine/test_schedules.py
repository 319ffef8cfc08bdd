"""Schedules in the database: where they come from, each tick once, and what is made up for after an outage."""

from __future__ import annotations

import pytest

from tests.engine.rows import Rows
from tests.engine.timetable import Timetable
from tests.rig.servers import RigDatabase

EARLY, LATE = "2090-01-01T00:00:00+00:00", "2090-01-01T00:01:00+00:00"


@pytest.fixture
def times(rows: Rows, database: RigDatabase) -> Timetable:
    """A database with the routine."""
    return Timetable(rows, database)


# ---- where they come from -------------------------------------------------------------------------------------------
def test_applied_schedules_begin_with_the_first_tick_after_now(times: Timetable) -> None:
    """Nothing is fired for the past, however long the window that is made up for."""
    assert times.apply({"name": "a", "everySeconds": 1_000_000, "catchUpSeconds": 31_622_400}) == "created"
    assert times.row("a")["ago"] < 5
    assert times.run() == {}
    assert times.jobs("a") == []
    assert times.row("a")["next_tick"] > times.rows.value("select clock_timestamp()")


def test_a_job_tells_its_schedule_and_tick(times: Timetable) -> None:
    times.apply(
        {"name": "a", "payload": {"scope": "all"}, "priority": -5, "maxAttempts": 2, "overlap": "Allow"},
        tasks={"t": {"timeoutSeconds": 30}},
    )
    times.due("a")
    assert times.run() == {"fired": 1}
    (job,) = times.jobs("a")
    tick = job["meta"]["tick"]
    assert tick.endswith("00Z")
    assert job["meta"] == {"schedule": "a", "tick": tick}
    assert job["key"] == f"schedule/a/{tick}"
    assert (job["payload"], job["priority"], job["max_attempts"], job["timeout"].total_seconds()) == ({"scope": "all"}, -5, 2, 30)
    row = times.row("a")
    assert (row["last_job"], row["fired"], row["state"], row["fault"]) == (job["id"], 1, "active", None)
    assert times.counted.seen == {("q", "fired"): 1}


def test_a_change_of_the_times_begins_anew_and_another_change_does_not(times: Timetable) -> None:
    times.apply({"name": "a"})
    times.past("a", 50)
    times.apply({"name": "a", "payload": {"n": 2}})
    assert times.row("a")["ago"] > 45
    times.apply({"name": "a", "everySeconds": 30})
    assert times.row("a")["ago"] < 5
    times.past("a", 50)
    times.apply({"name": "a", "everySeconds": 30, "suspend": True})
    assert (times.row("a")["state"], times.run()) == ("suspended", {})
    times.apply({"name": "a", "everySeconds": 30})
    assert times.row("a")["ago"] < 5, "what was due meanwhile is not made up for"


def test_what_is_no_longer_applied_is_gone(times: Timetable) -> None:
    times.apply({"name": "a"}, {"name": "b"})
    times.apply({"name": "b"})
    assert times.find("a") is None
    times.apply()
    assert times.find("b") is None


def test_the_jobqueue_wins_over_a_worker_of_the_same_name(times: Timetable) -> None:
    times.declare("w", {"name": "a", "payload": {"by": "worker"}})
    times.run()
    assert (times.row("a")["source"], times.row("a")["definition"]["payload"]) == ("worker", {"by": "worker"})
    times.apply({"name": "a", "payload": {"by": "jobqueue"}})
    assert (times.row("a")["source"], times.row("a")["definition"]["payload"]) == ("jobqueue", {"by": "jobqueue"})
    times.apply()
    assert times.row("a")["source"] == "worker", "the declaration counts again"


def test_declarations_live_while_such_a_worker_lives(times: Timetable) -> None:
    """A rolling restart neither skips nor doubles: the last tick is kept while nobody declares."""
    times.declare("old", {"name": "a", "overlap": "Allow"})
    assert times.run() == {"added": 1}
    times.due("a")
    times.rows.worker("old", until=-1)
    assert times.run() == {"absent": 1}
    assert (times.row("a")["state"], times.jobs("a")) == ("absent", [])
    before = times.row("a")["last_tick"]
    times.declare("new", {"name": "a", "overlap": "Allow"})
    assert times.run() == {"changed": 1, "fired": 1}, "the tick that was due meanwhile"
    assert times.row("a")["last_tick"] > before
    assert times.run() == {}


def test_the_worker_that_started_last_is_heard(times: Timetable) -> None:
    """While a release rolls out both are alive; the new one's word counts, and stays when the old one goes."""
    times.declare("old", {"name": "a", "payload": {"release": 1}}, started=3600)
    times.declare("new", {"name": "a", "payload": {"release": 2}}, started=5)
    times.run()
    assert times.row("a")["definition"]["payload"] == {"release": 2}
    times.rows.worker("old", until=-1)
    assert times.run() == {}
    times.rows.worker("old", until=60)
    times.rows.worker("new", until=-1)
    times.run()
    assert times.row("a")["definition"]["payload"] == {"release": 1}


def test_a_declaration_counts_from_its_workers_start(times: Timetable) -> None:
    """The runner may look a little later; a tick between the two is not lost, and no earlier one is fired."""
    times.declare("w", {"name": "a", "everySeconds": 1, "overlap": "Allow"}, started=10)
    assert times.run(batch_ticks=100)["fired"] in range(9, 13)
    times.declare("w", {"name": "b", "everySeconds": 1, "overlap": "Allow"}, started=5000)
    assert times.run(batch_ticks=100)["fired"] in range(58, 63)


@pytest.mark.parametrize(("suspended", "minutes", "left"), [(False, 125, False), (False, 115, True), (True, 125, True)])
def test_a_declaration_is_forgotten_after_a_while(times: Timetable, suspended: bool, minutes: int, left: bool) -> None:
    """After its catch-up window; but never one that people have suspended: the next start of the application must not wake it."""
    times.declare("w", {"name": "a"})
    times.run()
    if suspended:
        times.rows.conn.execute("select tailrace.suspend_schedule('q', 'a')")
    times.rows.worker("w", until=-1)
    times.run()
    ago = "update tailrace.schedule set absent_since = clock_timestamp() - %s * interval '1 minute'"
    times.rows.conn.execute(ago, [minutes])
    times.run()
    assert (times.find("a") is not None) == left


# ---- each tick once -------------------------------------------------------------------------------------------------
def test_a_tick_is_fired_once_however_often_it_is_asked_for(times: Timetable) -> None:
    """CJ-21: last_tick moves with the enqueue, guarded by itself."""
    times.apply({"name": "a", "overlap": "Allow"})
    for _ in range(3):
        assert times.plan("a", EARLY, LATE) is not None
    assert [job["meta"]["tick"] for job in times.jobs("a")] == ["2090-01-01T00:00:00Z", "2090-01-01T00:01:00Z"]
    assert times.row("a")["fired"] == 2


def test_a_runner_with_an_old_reading_fires_nothing(times: Timetable) -> None:
    """What it knew is not what is there now: changed, suspended, absent, or gone."""
    times.apply({"name": "a"})
    old = times.rows.value("select hashtextextended(definition::text, 0)::text from tailrace.schedule")
    times.apply({"name": "a", "payload": {"n": 2}})
    assert times.plan("a", EARLY, revision=old) is None
    times.rows.conn.execute("select tailrace.suspend_schedule('q', 'a')")
    assert times.plan("a", EARLY) is None
    assert times.jobs("a") == []


def test_a_locked_row_keeps_nobody_waiting(times: Timetable, other: Rows) -> None:
    """Somebody's open transaction holds one schedule; the others are fired, and that one when it is free."""
    times.apply({"name": "a"}, {"name": "b"})
    times.due("a")
    times.due("b")
    other.conn.execute("select tailrace.suspend_schedule('q', 'a')")
    assert times.run()["fired"] == 1
    assert len(times.jobs("b")) == 1
    other.conn.rollback()
    assert times.run()["fired"] == 1
    assert len(times.jobs("a")) == 1


def test_a_batch_of_locked_rows_hides_nothing_behind_it(times: Timetable, other: Rows) -> None:
    """Case k3: the first of a full batch are all somebody's; the one behind them fires, and nobody spins."""
    names = ("a", "b", "c", "d")
    times.apply(*({"name": name} for name in names))
    for name in names:
        times.due(name)
    for name in names[:3]:
        other.conn.execute("select tailrace.suspend_schedule('q', %s)", [name])
    assert times.run(batch_schedules=3)["fired"] == 1
    assert len(times.jobs("d")) == 1


def test_another_runner_at_work_makes_it_a_skip(times: Timetable, other: Rows) -> None:
    times.apply({"name": "a"})
    other.value("select tailrace.cron_due_v1()")
    assert [one.result for one in times.tick()] == ["skipped"]


def test_a_clock_that_was_far_ahead_does_not_silence_a_schedule(times: Timetable) -> None:
    times.apply({"name": "a", "overlap": "Allow"})
    times.past("a", -1800)
    assert times.run() == {}, "half an hour back: nothing is fired twice"
    assert times.row("a")["ago"] < -1700
    times.past("a", -86_400)
    assert times.run() == {"changed": 1}
    assert 0 <= times.row("a")["ago"] < 5


# ---- outages --------------------------------------------------------------------------------------------------------
def test_a_long_outage_is_leapt_over(times: Timetable) -> None:
    times.apply({"name": "a", "cron": "* * * * *", "overlap": "Allow"})
    times.past("a", 86_400)
    counts = times.run()
    assert counts["missed"] in range(999, 1001)
    assert counts["fired"] in (1, 2), "a minute may begin while it runs"
    row = times.row("a")
    assert (row["missed"], row["fired"]) == (counts["missed"], counts["fired"])
    assert times.run() in ({}, {"fired": 1})


def test_the_window_is_made_up_for_in_batches(times: Timetable) -> None:
    times.apply({"name": "a", "everySeconds": 60, "catchUpSeconds": 3600, "overlap": "Allow"})
    times.past("a", 7200)
    counts = times.run(batch_ticks=7)
    assert counts["fired"] in (60, 61), "a minute may begin while it runs"
    assert counts["missed"] in (59, 60, 61)
    ticks = [job["meta"]["tick"] for job in times.jobs("a")]
    assert len(set(ticks)) == counts["fired"]
    assert ticks == sorted(ticks)
