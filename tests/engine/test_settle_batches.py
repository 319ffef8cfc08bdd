"""Outcomes by the hundred: isolation of bad rows, counting, leases, wake-ups, plans."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.engine.rows import Rows, error_of

UNMOVABLE = """
create function refuse() returns trigger language plpgsql as
$$ begin if new.task = 'bad' then raise exception 'not this one'; end if; return new; end $$;
create trigger refuse before insert on tailrace.dead_letter for each row execute function refuse();
"""


def permanent(token: int, ids: list[int]) -> list[dict[str, Any]]:
    """The outcomes of runs that failed for good."""
    return [{"id": i, "token": token, "kind": "permanent", "error": error_of("Boom")} for i in ids]


@pytest.mark.parametrize("bad", [1, 7])
def test_rows_that_cannot_be_moved_do_not_keep_the_others(rows: Rows, bad: int) -> None:
    """BF-16, BF-10: the batch is split around them; they stay as they are, keep their lease, and are reported."""
    rows.conn.execute(UNMOVABLE)
    ids = [rows.job(task="bad" if n % 29 == 3 and n < 29 * bad else "t", attempts=1) for n in range(210)]
    token = rows.lease(ids)
    spoilt = {i for n, i in enumerate(ids) if n % 29 == 3 and n < 29 * bad}
    results = rows.settle(*permanent(token, ids))
    assert {i for i, result in results.items() if result == "busy"} == spoilt
    assert {results[i] for i in ids if i not in spoilt} == {"dead"}
    assert rows.count("dead_letter") == 210 - bad
    assert (rows.count("job"), rows.count("job", f"token = {token}"), rows.leases()) == (bad, bad, {token})
    assert rows.tally() == {"dead": 210 - bad}
    rows.conn.execute("drop trigger refuse on tailrace.dead_letter")
    assert set(rows.settle(*permanent(token, sorted(spoilt))).values()) == {"dead"}


def test_a_fault_that_is_no_rows_is_raised(rows: Rows) -> None:
    """A server that turned read-only (a failover) must not look like busy rows."""
    token, ids = rows.running(3)
    rows.conn.execute("set default_transaction_read_only = on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        rows.settle(*permanent(token, ids))
    rows.conn.execute("set default_transaction_read_only = off")
    assert rows.count("job") == 3


def test_ten_thousand_failures_are_ten_thousand_dead_letters(rows: Rows) -> None:
    """BF-10, BF-17: exactly one letter each, in calls of a thousand."""
    rows.conn.execute(
        """insert into tailrace.job (queue, task, payload, attempts, max_attempts, token, key)
           select 'q', 't', jsonb_build_object('n', n), 1, 1, n / 1000 + 1, case when n % 2 = 0 then 'k' || n end
           from generate_series(0, 9999) n"""
    )
    rows.conn.execute(
        """insert into tailrace.lease (token, worker, queue, ids)
           select token, 'w', 'q', array_agg(id) from tailrace.job group by 1"""
    )
    for token, ids in rows.conn.execute("select token, array_agg(id) from tailrace.job group by 1").fetchall():
        assert set(rows.settle(*({"id": i, "token": token, "kind": "error", "delay": 1} for i in ids)).values()) == {"dead"}
    assert (rows.count("job"), rows.count("dead_letter"), rows.leases()) == (0, 10_000, set())
    assert rows.tally() == {"dead": 10_000}


def test_each_outcome_counts_once_however_often_it_is_sent(rows: Rows) -> None:
    """An outcome whose answer was lost is sent again, in the same batch or later."""
    token, [ident] = rows.running()
    outcome = permanent(token, [ident])[0]
    assert rows.settle(outcome, outcome) == {ident: "dead"}
    assert rows.settle(outcome) == {ident: "fenced"}
    assert rows.tally() == {"dead": 1}


def test_an_empty_batch_is_nothing(rows: Rows) -> None:
    assert rows.settle() == {}


def test_ends_are_counted_by_queue_task_and_kind(rows: Rows) -> None:
    """Guarantee 1: one row per transaction and kind, in the transaction that removes the jobs."""
    token, ids = rows.running(3)
    more, others = rows.running(2, task="u")
    kinds = [*(("permanent", token, i) for i in ids[:2]), ("cancelled", token, ids[2]), *(("permanent", more, i) for i in others)]
    rows.settle(*({"id": i, "token": t, "kind": kind} for kind, t, i in kinds))
    counted = rows.conn.execute("select queue, task, what, n from tailrace.tally order by task, what").fetchall()
    assert counted == [("q", "t", "cancelled", 1), ("q", "t", "dead", 2), ("q", "u", "dead", 2)]


def test_a_lease_lives_until_its_last_job(rows: Rows) -> None:
    token, ids = rows.running(3)
    for ident in ids[:2]:
        rows.fail(ident, token)
        assert rows.leases() == {token}
    rows.fail(ids[2], token)
    assert rows.leases() == set()


def test_workers_are_told_only_of_what_they_would_miss(rows: Rows) -> None:
    """`queue!` for rows below the floors, `queue` for rows due now, nothing for rows that wait."""
    channel = rows.value("select tailrace.signal_channel_v1()")
    assert channel == "tailrace_" + str(rows.value("select 'tailrace'::regnamespace::oid"))
    rows.conn.execute(f"listen {channel}")
    token, [later, first, back, twin] = rows.running(4)
    rows.fail(later, token, delay=60)
    assert list(rows.conn.notifies(timeout=0, stop_after=1)) == []
    rows.settle({"id": first, "token": token, "kind": "interrupted"})
    assert [n.payload for n in rows.conn.notifies(timeout=5, stop_after=1)] == ["q"]
    rows.settle(*({"id": i, "token": token, "kind": "handback"} for i in (back, twin)))
    assert [n.payload for n in rows.conn.notifies(timeout=5, stop_after=1)] == ["q!"]


def entries_read(rows: Rows, table: str) -> int:
    """Index entries and rows of scans that this database has read so far in a table."""
    rows.conn.execute("select pg_stat_force_next_flush()")
    return int(
        rows.value(
            """select (select sum(idx_tup_read) from pg_stat_user_indexes where relname = %(t)s)
                    + (select seq_tup_read from pg_stat_user_tables where relname = %(t)s)""",
            {"t": table},
        )
    )


def test_plans_made_on_empty_tables_do_not_read_full_ones(rows: Rows) -> None:
    """CJ-12, FQ-17: a worker's first failures on an idle queue must not fix a scan of whole tables for its later ones."""
    for n in range(8):
        token, ids = rows.running(3, max_attempts=1)
        rows.conn.execute("update tailrace.job set key = 'k' || id")
        rows.settle(*permanent(token, ids[:1]), *({"id": i, "token": token, "kind": "snooze", "delay": 9} for i in ids[1:]))
        rows.conn.execute("delete from tailrace.job")
        rows.conn.execute("delete from tailrace.dead_letter")
        if n == 4:
            rows.conn.execute("vacuum analyze tailrace.job, tailrace.dead_letter")
    rows.conn.execute(
        """insert into tailrace.job (queue, task, payload, attempts, key) select 'q', 't', '{}', n % 2, 'k' || n
           from generate_series(1, 20000) n"""
    )
    rows.conn.execute(
        """insert into tailrace.dead_letter (job_id, queue, task, key, payload, priority, run_at, max_attempts, reason,
             error_type, fingerprint, total_attempts, first_failed_at, failed_at, created_at)
           select -id, queue, task, key, payload, 0, run_at, 5, 'permanent', 'unknown', '', 1, run_at, run_at, run_at
           from tailrace.job"""
    )
    ids = [i for (i,) in rows.conn.execute("select id from tailrace.job order by id desc limit 50").fetchall()]
    token = rows.lease(ids)
    before = {table: entries_read(rows, table) for table in ("job", "dead_letter")}
    results = rows.settle(
        *permanent(token, ids[:25]), *({"id": i, "token": token, "kind": "error", "delay": 5} for i in ids[25:])
    )
    assert set(results.values()) == {"dead", "retried"}
    assert rows.count("dead_letter", "resolution = 'superseded'") == 25
    read = {table: entries_read(rows, table) - n for table, n in before.items()}
    # the count above reads the 20,000 letters once
    assert read["job"] < 50 * 15
    assert read["dead_letter"] < 20_025 + 50 * 15
