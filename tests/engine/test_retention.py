"""Retention: what is too old goes, the oldest first, and nothing else does."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.maintenance import Retention, RetentionConfig, run_once
from tests.engine.aged_letters import DAY, counted, letter, settings
from tests.engine.gentle_runs import ran
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase

REFUSE = """
create function refuse() returns trigger language plpgsql as
  $$ begin if old.task = 'bad' then raise exception 'no'; end if; return old; end $$;
create trigger refuse before delete on tailrace.dead_letter for each row execute function refuse()
"""


def retain(rows: Rows, queue: str | None = None, batch: int = 500) -> dict[str, Any]:
    """Call retain_v1."""
    return dict(rows.value("select tailrace.retain_v1(%s, %s)", [queue, batch]))


def left(rows: Rows) -> set[int]:
    """The dead letters that are there."""
    return {ident for (ident,) in rows.conn.execute("select job_id from tailrace.dead_letter").fetchall()}


def test_each_state_has_its_own_age(rows: Rows) -> None:
    """R30, CJ-18: 90 days for the dead, 7 for the resolved since they were resolved; a requeued one stays, its job lives."""
    old, young = letter(rows, age=91 * DAY), letter(rows, age=89 * DAY)
    done, fresh = letter(rows, age=200 * DAY, resolved=8 * DAY), letter(rows, age=200 * DAY, resolved=6 * DAY)
    again = letter(rows, age=300 * DAY)
    rows.requeue(again)
    report = retain(rows)
    assert (counted(report), report["more"]) == ({"dead": 1, "resolved": 1}, False)
    assert left(rows) == {young, fresh, again}
    assert not {old, done} & left(rows)
    assert rows.count("job") == 1
    assert rows.tally()["deleted"] == 2


def test_a_queue_says_how_long(rows: Rows) -> None:
    settings(rows, deadLetters={"retentionSeconds": 60, "resolvedRetentionSeconds": 10})
    gone = {letter(rows, age=61), letter(rows, age=11, resolved=11)}
    kept = {letter(rows, age=50), letter(rows, age=100, resolved=5), letter(rows, age=61, queue="other")}
    assert counted(retain(rows)) == {"dead": 1, "resolved": 1}
    assert left(rows) == kept
    assert not gone & kept


def test_the_oldest_go_first_in_batches(rows: Rows) -> None:
    """BF-45: whatever order they were written in."""
    ages = [100, 300, 200, 400]
    letters = {age: letter(rows, age=age * DAY) for age in ages}
    for expected in (400, 300, 200, 100):
        report = retain(rows, batch=1)
        assert report["more"] is True
        assert letters.pop(expected) not in left(rows)
        assert left(rows) == set(letters.values())
    assert retain(rows) == {"rows": [], "more": False}


@pytest.mark.parametrize(("full", "rests"), [(False, [3.0, 3.0]), (True, [])])
def test_it_rests_between_batches(rows: Rows, database: RigDatabase, full: bool, rests: list[float]) -> None:
    """Deleting for seconds without a rest, it made pickups beside a requeue of many wait twice as long."""
    for _ in range(5):
        letter(rows, age=91 * DAY)
    tick, noted = ran(database, Retention(RetentionConfig(batch_rows=2, budget_seconds=100)), full=full)
    assert (tick.counts["dead"], noted, tick.again) == (5, rests, None)


def test_no_rest_is_longer_than_its_budget(rows: Rows, database: RigDatabase) -> None:
    """A batch of a minute would let the reaper of the same loop wait for three more."""
    letter(rows, age=91 * DAY)
    letter(rows, age=91 * DAY)
    _, noted = ran(database, Retention(RetentionConfig(batch_rows=2, budget_seconds=2)))
    assert noted == [2.0]


def test_it_goes_on_soon_when_its_time_is_up(rows: Rows, database: RigDatabase) -> None:
    for _ in range(5):
        letter(rows, age=91 * DAY)
    tick, _ = ran(database, Retention(RetentionConfig(batch_rows=2, budget_seconds=3)))
    assert (tick.counts["dead"], tick.again) == (2, 10.0)


def test_a_named_queue_only(rows: Rows) -> None:
    mine, other = letter(rows, age=91 * DAY), letter(rows, age=91 * DAY, queue="other")
    assert counted(retain(rows, "q")) == {"dead": 1}
    assert left(rows) == {other}
    assert mine not in left(rows)
    scopes = rows.conn.execute("select scope from tailrace.maintenance where routine = 'retention'").fetchall()
    assert scopes == [("q",)], "it is no run over all queues"


def test_rows_that_cannot_be_deleted_are_passed_and_met_again_later(rows: Rows) -> None:
    """BF-16: 150 of them at the head; the next ones go in the same run, and the next run does not begin with them."""
    rows.conn.execute(REFUSE)
    bad = {letter(rows, age=100 * DAY, task="bad") for _ in range(150)}
    good = letter(rows, age=95 * DAY)
    failed = 0
    while (report := retain(rows, batch=40))["rows"]:
        failed += counted(report).get("failed", 0)
    assert (failed, left(rows), good in left(rows)) == (150, bad, False)
    assert retain(rows) == {"rows": [], "more": False}
    rows.conn.execute("update tailrace.maintenance_place set since = since - interval '61 min'")
    assert counted(retain(rows)) == {"failed": 150}


def test_a_row_that_somebody_holds_is_skipped(rows: Rows, other: Rows) -> None:
    """A note in an open transaction: nobody waits, the row is met again within the hour."""
    held, free = letter(rows, age=91 * DAY), letter(rows, age=91 * DAY)
    other.conn.execute("update tailrace.dead_letter set notes = 'mine' where job_id = %s", [held])
    assert counted(retain(rows)) == {"skipped": 1, "dead": 1}
    assert left(rows) == {held}
    assert free not in left(rows)


def test_a_row_that_was_requeued_meanwhile_stays(rows: Rows, other: Rows) -> None:
    ident = letter(rows, age=91 * DAY)
    other.requeue(ident)
    assert counted(retain(rows)) == {"skipped": 1}
    other.conn.commit()
    rows.conn.execute("delete from tailrace.maintenance_place")
    assert retain(rows)["rows"] == []
    assert rows.dead(ident)["state"] == "requeued"  # type: ignore[index]


def test_a_dry_run_tells_and_keeps(rows: Rows, database: RigDatabase) -> None:
    """BF-45: the same counts as the run that follows."""
    settings(rows, deadLetters={"retentionSeconds": 60})
    for age in (61, 62, 50):
        letter(rows, age=age)
    letter(rows, age=300 * DAY, resolved=8 * DAY)
    place = Database(url=SecretStr(database.dsn))
    (dry,) = run_once(place, [Retention()], dry_run=True)
    assert (dry.result, dict(dry.counts)) == ("dry_run", {"dead": 2, "resolved": 1, "dropped": 0})
    assert len(left(rows)) == 4
    (real,) = run_once(place, [Retention(RetentionConfig(batch_rows=1))])
    assert {what: n for what, n in real.counts.items() if n} == {"dead": 2, "resolved": 1}
    assert len(left(rows)) == 1


def test_four_at_once_do_the_work_of_one(rows: Rows, database: RigDatabase) -> None:
    """BF-10 for deletions: reports add up."""
    for _ in range(200):
        letter(rows, age=91 * DAY)
    gone: list[int] = []

    def work() -> None:
        with database.connect() as conn:
            mine = Rows(conn)
            while left(mine):
                report = retain(mine, batch=20)
                if "locked" not in report:
                    gone.append(counted(report).get("dead", 0))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (sum(gone), rows.tally()["deleted"]) == (200, 200)


@pytest.mark.parametrize("state", ["dead", "resolved"])
def test_a_run_reads_what_is_too_old_and_no_more(rows: Rows, state: str) -> None:
    """20,000 that are young cost nothing: the walk is by an index."""
    settings(rows, deadLetters={"retentionSeconds": 3600, "resolvedRetentionSeconds": 3600})
    letter(rows, age=10, resolved=None if state == "dead" else 10)
    rows.conn.execute(
        """insert into tailrace.dead_letter (job_id, state, queue, task, payload, priority, run_at, max_attempts, reason,
             error_type, fingerprint, total_attempts, first_failed_at, failed_at, resolved_at, created_at)
           select n + 1000, d.state, d.queue, d.task, d.payload, 0, d.run_at, 5, d.reason, d.error_type, 'f', 5, d.failed_at,
                  d.failed_at, d.resolved_at, d.created_at
           from tailrace.dead_letter d cross join generate_series(1, 20000) n"""
    )
    rows.conn.execute("analyze tailrace.dead_letter")
    with rows.conn.transaction():
        retain(rows)
        reads = rows.value(
            "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int from pg_stat_xact_user_tables"
            " where relname = 'dead_letter'"
        )
    assert reads < 20
