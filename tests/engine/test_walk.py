"""The walk over the job table: sweep and audit, and what it must not touch."""

from __future__ import annotations

import threading

import pytest
from psycopg.types.json import Jsonb

from tailrace.maintenance import Sweep, SweepConfig, run_once
from tailrace.settings import ProducerSettings
from tests.engine.rows import Rows, results
from tests.rig.servers import RigDatabase


def test_a_last_attempt_that_runs_is_never_swept(rows: Rows) -> None:
    """BF-01: attempts are at the maximum while it runs; several sweeps later it still runs, and finishes."""
    rows.worker()
    token, [ident] = rows.running(max_attempts=1, expires_at="2026-01-01T00:00:00Z")
    for _ in range(3):
        report = rows.walk()
        assert (report["seen"], report["rows"], report["orphaned"]) == (1, [], 0)
    assert rows.settle({"id": ident, "token": token, "kind": "success"})[ident] == "succeeded"
    assert rows.count("dead_letter") == 0


def test_jobs_exhausted_while_nobody_looked_become_dead_letters(rows: Rows) -> None:
    """BF-03, BF-04, BF-17: 250 of them, lowered max_attempts: 250 dead letters, in slices, and none is lost."""
    ids = [rows.job(attempts=3, max_attempts=5, key=f"k{n}" if n % 2 else None) for n in range(250)]
    keep = rows.job(attempts=1, max_attempts=5)
    rows.conn.execute("update tailrace.job set max_attempts = 2 where attempts = 3")
    after: int | None = -(2**63)
    dead = slices = 0
    while after is not None:
        report = rows.walk(after, slice_rows=100)
        dead, slices, after = dead + results(report).get("dead", 0), slices + 1, report["next"]
    assert (dead, slices) == (250, 3)
    assert all((rows.dead(i) or {}).get("reason") == "max_attempts" for i in ids)
    assert (rows.count("job"), rows.row(keep) is not None) == (1, True)
    assert rows.tally() == {"dead": 250}


def test_an_exhausted_job_that_was_lost_died_of_that(rows: Rows) -> None:
    ident = rows.job(attempts=2, max_attempts=2, lost=1)
    rows.walk()
    assert rows.dead(ident)["reason"] == "lease_expired"  # type: ignore[index]


def test_jobs_past_their_time_end_although_nobody_claims_them(rows: Rows) -> None:
    """Unknown task, held queue, scheduled: expired, counted, no dead letter; one that was requeued is dead again."""
    late = [
        rows.job(task="unknown", expires_at="2026-01-01T00:00:00Z"),
        rows.job(run_at="2999-01-01T00:00:00Z", expires_at="2026-01-01T00:00:00Z"),
    ]
    early = rows.job(expires_at="2999-01-01T00:00:00Z")
    again = rows.job()
    rows.fail(again, rows.claim(again), "permanent")
    rows.requeue(again)
    rows.conn.execute("update tailrace.job set expires_at = '2026-01-01' where id = %s", [again])
    report = rows.walk()
    assert results(report) == {"expired": 3}
    assert {row["reason"] for row in report["rows"]} == {None, "withdrawn"}
    assert all(rows.row(i) is None for i in late)
    assert rows.row(early) is not None
    assert rows.dead(again)["state"] == "dead"  # type: ignore[index]
    assert rows.tally()["expired"] == 3


def test_a_token_without_a_lease_is_found(rows: Rows) -> None:
    """CJ-13: such a row could never be claimed again; it is treated as lost, and reported for the alarm."""
    ident, last = rows.job(attempts=1, token=5), rows.job(attempts=5, token=6)
    report = rows.walk()
    assert (report["orphaned"], results(report)) == (2, {"lost": 1, "dead": 1})
    row = rows.row(ident)
    assert row is not None
    assert (row["token"], row["lost"], row["attempts"]) == (None, 1, 1)
    assert rows.dead(last)["reason"] == "lease_expired"  # type: ignore[index]


def test_a_claim_that_commits_now_is_no_orphan(rows: Rows, other: Rows) -> None:
    """The row is read again under its lock: claimed in the meantime, it is somebody's."""
    ident = rows.job(attempts=4, max_attempts=5)
    rows.conn.execute("update tailrace.job set max_attempts = 4 where id = %s", [ident])
    token = other.claim(ident)
    report = rows.walk()
    assert (report["skipped"], report["rows"]) == (1, [])
    other.conn.commit()
    assert rows.walk()["rows"] == []
    assert rows.row(ident)["token"] == token  # type: ignore[index]


def test_held_rows_are_skipped_and_counted(rows: Rows, other: Rows) -> None:
    held, free = rows.job(attempts=5), rows.job(attempts=5)
    other.conn.execute("select from tailrace.job where id = %s for update", [held])
    report = rows.walk()
    assert (report["skipped"], results(report)) == (1, {"dead": 1})
    other.conn.rollback()
    assert results(rows.walk()) == {"dead": 1}
    assert {i for i in (held, free) if rows.dead(i)} == {held, free}


def test_rows_that_cannot_be_moved_do_not_stop_the_walk(rows: Rows) -> None:
    """BF-16, BF-04: 150 of them and an error at each sweep: row 151 is moved in the same walk, none is deleted."""
    rows.conn.execute(
        """create function refuse() returns trigger language plpgsql as
             $$ begin if new.task = 'bad' then raise exception 'no'; end if; return new; end $$;
           create trigger refuse before insert on tailrace.dead_letter for each row execute function refuse()"""
    )
    for _ in range(150):
        rows.job(task="bad", attempts=5)
    good = rows.job(attempts=5)
    for _ in range(2):
        after, failed = -(2**63), 0
        while after is not None:
            report = rows.walk(after, slice_rows=60)
            failed, after = failed + results(report).get("failed", 0), report["next"]
        assert failed == 150
    assert rows.dead(good) is not None
    assert rows.count("job") == 150


def test_the_walk_goes_on_where_it_stopped(rows: Rows) -> None:
    ids = [rows.job() for _ in range(5)]
    assert [rows.walk(None, slice_rows=2)["next"] for _ in range(4)] == [ids[1], ids[3], None, ids[1]]


def test_discard_holds_for_the_walk(rows: Rows) -> None:
    rows.conn.execute("insert into tailrace.queue (name, settings) values ('q', %s)", [Jsonb({"exhaustedPolicy": "Discard"})])
    rows.job(attempts=5)
    assert results(rows.walk()) == {"dropped": 1}
    assert (rows.count("dead_letter"), rows.tally()) == (0, {"dropped": 1})


def test_two_runners_do_the_work_of_one(rows: Rows, database: RigDatabase) -> None:
    """BF-10: eight at once over 500 rows give 500 dead letters, and their reports add up to 500."""
    for n in range(500):
        rows.job(attempts=5, key=f"k{n}" if n % 2 else None)
    moved: list[int] = []

    def sweep() -> None:
        with database.connect() as conn:
            mine, after = Rows(conn), -(2**63)
            while after is not None:
                report = mine.walk(after, slice_rows=50)
                if "locked" not in report:
                    moved.append(results(report).get("dead", 0))
                    after = report["next"]

    threads = [threading.Thread(target=sweep) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (sum(moved), rows.count("dead_letter"), rows.count("job"), rows.tally()) == (500, 500, 0, {"dead": 500})


def test_a_requeued_letter_without_a_job_is_dead_again(rows: Rows, other: Rows) -> None:
    """Audit: no row stays requeued without a live job; one that somebody is requeueing now is left alone."""
    lost, live, now = (rows.job(key=f"k{n}") for n in range(3))
    for ident in (lost, live, now):
        rows.fail(ident, rows.claim(ident), "permanent")
    rows.requeue(lost)
    rows.requeue(live)
    rows.conn.execute("delete from tailrace.job where id = %s", [lost])
    rows.conn.execute("insert into tailrace.queue (name) values ('q') on conflict do nothing")
    other.requeue(now)
    assert rows.value("select tailrace.audit_requeued_v1()") == {"restored": 1, "skipped": 0, "next": None}
    other.conn.commit()
    found = rows.dead(lost)
    assert found is not None
    assert (found["state"], found["key"], found["history"][-1]["reason"]) == ("dead", "k0", "audit")
    assert [rows.dead(i)["state"] for i in (live, now)] == ["requeued", "requeued"]  # type: ignore[index]
    assert rows.value("select tailrace.audit_requeued_v1()") == {"restored": 0, "skipped": 0, "next": None}
    assert rows.tally()["withdrawn"] == 1


def test_the_audit_looks_at_a_batch_in_a_call(rows: Rows, database: RigDatabase) -> None:
    """A requeue of millions that wait was looked at in one statement; a run whose time is up goes on with the next."""
    for queue in "ab":
        for _ in range(5):
            ident = rows.job(queue=queue)
            rows.fail(ident, rows.claim(ident), "permanent")
            rows.requeue(ident)
        rows.conn.execute("insert into tailrace.queue (name) values (%s) on conflict do nothing", [queue])
    rows.conn.execute("delete from tailrace.job where id % 2 = 0")
    after, restored, calls = None, 0, 0
    while calls == 0 or after is not None:
        report = rows.value("select tailrace.audit_requeued_v1(2, after => %s)", [after and Jsonb(after)])
        after, restored, calls = report["next"], restored + report["restored"], calls + 1
    assert (restored, calls) == (5, 6), "five full batches, and the look that finds no more"
    rows.conn.execute("delete from tailrace.job")
    sweep = Sweep(SweepConfig(audit_rows=2, budget_seconds=1e-9))
    place = ProducerSettings.load({"database_url": database.dsn}).database()
    runs = [run_once(place, [sweep])[0].counts for _ in range(4)]
    assert [run.get("restored", 0) for run in runs] == [2, 2, 1, 0]


@pytest.mark.parametrize("key", ["k", None])
def test_an_audited_letter_does_not_take_a_key_that_is_dead_again(rows: Rows, key: str | None) -> None:
    first = rows.job(key=key)
    rows.fail(first, rows.claim(first), "permanent")
    rows.requeue(first)
    rows.conn.execute("delete from tailrace.job where id = %s", [first])
    second = rows.job(key=key)
    rows.fail(second, rows.claim(second), "permanent")
    rows.conn.execute("insert into tailrace.queue (name) values ('q') on conflict do nothing")
    assert rows.value("select tailrace.audit_requeued_v1()")["restored"] == 1
    assert (rows.dead(first)["key"], rows.dead(second)["key"]) == (None, key)  # type: ignore[index]


def test_every_way_to_the_dead_letters_leaves_the_same_record(rows: Rows) -> None:
    """FQ-27: a failure, a lost lease and the sweep end a job alike: one letter, one counted end, no row, no lease."""
    rows.steady()
    rows.worker()
    rows.worker("gone", until=-1)
    token, [failed] = rows.running(max_attempts=1)
    rows.fail(failed, token)
    _, [lost] = rows.running(max_attempts=1, worker="gone")
    rows.reap()
    swept = rows.job(attempts=1, max_attempts=1)
    rows.walk()
    letters = [rows.dead(i) for i in (failed, lost, swept)]
    assert [found and (found["state"], found["dead_count"], found["total_attempts"]) for found in letters] == [("dead", 1, 1)] * 3
    assert (rows.count("job"), rows.leases(), rows.tally()) == (0, set(), {"dead": 3})
