"""What a tick does while the schedule's last job still lives: Skip, Allow, Replace, and keys of its own."""

from __future__ import annotations

import pytest

from tests.engine.rows import Rows
from tests.engine.timetable import Timetable
from tests.rig.servers import RigDatabase

FIRST, SECOND, THIRD = (f"2090-01-01T00:0{n}:00+00:00" for n in range(3))


@pytest.fixture
def times(rows: Rows, database: RigDatabase) -> Timetable:
    """A database with the routine."""
    return Timetable(rows, database)


def fired(report: dict[str, int] | None) -> dict[str, int]:
    assert report is not None
    return {name: report[name] for name in ("fired", "skipped", "failed")}


def test_skip_leaves_out_a_tick_while_the_last_job_waits_or_runs(times: Timetable) -> None:
    """Skip is the default."""
    times.apply({"name": "a"})
    assert fired(times.plan("a", FIRST)) == {"fired": 1, "skipped": 0, "failed": 0}
    (job,) = times.jobs("a")
    assert fired(times.plan("a", SECOND)) == {"fired": 0, "skipped": 1, "failed": 0}
    token = times.rows.claim(job["id"])
    assert fired(times.plan("a", THIRD)) == {"fired": 0, "skipped": 1, "failed": 0}
    assert [one["id"] for one in times.jobs("a")] == [job["id"]]
    times.rows.settle({"id": job["id"], "token": token, "kind": "success"})
    assert fired(times.plan("a", "2090-01-01T00:03:00+00:00"))["fired"] == 1
    assert times.row("a")["skipped"] == 2


def test_a_requeued_job_counts_as_living(times: Timetable) -> None:
    """A dead letter that somebody has put back keeps its number, so Skip sees it."""
    times.apply({"name": "a"})
    times.plan("a", FIRST)
    (job,) = times.jobs("a")
    times.rows.fail(job["id"], times.rows.claim(job["id"]), kind="permanent")
    times.rows.requeue(job["id"])
    assert fired(times.plan("a", SECOND))["skipped"] == 1


def test_allow_lets_them_live_beside_each_other(times: Timetable) -> None:
    times.apply({"name": "a", "overlap": "Allow"})
    times.plan("a", FIRST, SECOND, THIRD)
    assert len(times.jobs("a")) == 3


def test_replace_removes_a_waiting_job(times: Timetable) -> None:
    times.apply({"name": "a", "overlap": "Replace"})
    times.plan("a", FIRST)
    (old,) = times.jobs("a")
    assert fired(times.plan("a", SECOND)) == {"fired": 1, "skipped": 0, "failed": 0}
    (new,) = times.jobs("a")
    assert (new["id"] != old["id"], new["meta"]["tick"]) == (True, "2090-01-01T00:01:00Z")
    assert times.rows.tally() == {"replaced": 1}
    times.plan("a", THIRD, "2090-01-01T00:03:00+00:00")
    assert [one["meta"]["tick"] for one in times.jobs("a")] == ["2090-01-01T00:03:00Z"], "several at once: only the last stays"


def test_replace_asks_a_running_job_to_stop(times: Timetable) -> None:
    times.apply({"name": "a", "overlap": "Replace"})
    times.plan("a", FIRST)
    (old,) = times.jobs("a")
    token = times.rows.claim(old["id"])
    assert fired(times.plan("a", SECOND))["fired"] == 1
    asked = times.rows.conn.execute("select job_id, requested_by from tailrace.cancel_request").fetchall()
    assert asked == [(old["id"], "schedule a")]
    assert len(times.jobs("a")) == 2
    times.rows.fail(old["id"], token)
    assert times.rows.tally() == {"cancelled": 1}


def test_a_requeued_job_that_is_replaced_is_dead_again(times: Timetable) -> None:
    """Engine rule 9: it ended without success, so its dead letter waits for somebody again."""
    times.apply({"name": "a", "overlap": "Replace"})
    times.plan("a", FIRST)
    (job,) = times.jobs("a")
    times.rows.fail(job["id"], times.rows.claim(job["id"]), kind="permanent")
    times.rows.requeue(job["id"])
    times.plan("a", SECOND)
    assert times.rows.row(job["id"]) is None
    letter = times.rows.dead(job["id"])
    assert letter is not None
    assert (letter["state"], letter["history"][-1]["event"]) == ("dead", "withdrawn")


def test_what_an_application_holds_is_replaced_later(times: Timetable, other: Rows) -> None:
    """No waiting for the row of an open transaction, and the tick is not lost."""
    times.apply({"name": "a", "overlap": "Replace"})
    times.plan("a", FIRST)
    (job,) = times.jobs("a")
    other.conn.execute("select tailrace.update_job(%s, '{\"priority\": 1}')", [job["id"]])
    assert fired(times.plan("a", SECOND)) == {"fired": 0, "skipped": 0, "failed": 1}
    other.conn.rollback()
    assert fired(times.plan("a", SECOND)) == {"fired": 1, "skipped": 0, "failed": 0}
    assert [one["meta"]["tick"] for one in times.jobs("a")] == ["2090-01-01T00:01:00Z"]


# ---- keys of its own ------------------------------------------------------------------------------------------------
def test_a_key_of_its_own_is_shared_with_other_producers(times: Timetable) -> None:
    times.apply({"name": "a", "key": "sync", "overlap": "Allow"})
    mine = times.rows.value("select id from tailrace.enqueue('q', 't', '{}', '{\"key\": \"sync\"}')")
    assert fired(times.plan("a", FIRST))["skipped"] == 1
    times.rows.conn.execute("select tailrace.cancel(%s)", [mine])
    assert fired(times.plan("a", SECOND))["fired"] == 1
    assert times.jobs("a")[0]["key"] == "sync"


@pytest.mark.parametrize("mode", ["Replace", "After", "PreserveRunAt"])
def test_the_mode_of_the_key_counts(times: Timetable, mode: str) -> None:
    times.apply({"name": "a", "key": "sync", "onDuplicate": mode, "overlap": "Allow", "payload": {"n": 2}})
    mine = times.rows.value("select id from tailrace.enqueue('q', 't', '{\"n\": 1}', '{\"key\": \"sync\"}')")
    assert fired(times.plan("a", FIRST))["fired"] == 1
    (job,) = times.jobs("a")
    assert (job["id"], job["payload"]) == (mine, {"n": 2})


def test_replace_with_a_key_of_its_own_follows_a_running_job(times: Timetable) -> None:
    """The running one is asked to stop, and the new one takes its place when it ends: the key never has two."""
    times.apply({"name": "a", "key": "sync", "overlap": "Replace"})
    times.plan("a", FIRST)
    (old,) = times.jobs("a")
    token = times.rows.claim(old["id"])
    assert fired(times.plan("a", SECOND))["fired"] == 1
    assert [one["key_slot"] for one in times.jobs("a")] == [0, 1]
    assert times.rows.count("cancel_request") == 1
    times.rows.fail(old["id"], token)
    assert [one["key_slot"] for one in times.jobs("a")] == [0]
