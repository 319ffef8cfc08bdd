"""The reading of the queues, the totals of ends, and housekeeping."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually


def read(rows: Rows) -> dict[str, Any]:
    """Publish a reading."""
    return dict(rows.value("select tailrace.statistics_v1()"))


def reading(rows: Rows, queue: str = "q") -> dict[str, Any]:
    """What is published for a queue."""
    return dict(rows.value("select reading from tailrace.queue where name = %s", [queue]))


def test_the_dead_letters_of_each_queue_are_published(rows: Rows) -> None:
    """BF-30, BF-31: size and oldest failure, whatever wrote the dead letters; nobody has to ask for a page first."""
    rows.worker()
    rows.worker("dead", until=-1)
    token, ids = rows.running(3)
    rows.settle(*({"id": i, "token": token, "kind": "permanent"} for i in ids[:2]))
    again = ids[0]
    rows.requeue(again)
    old = rows.value("update tailrace.dead_letter set failed_at = '2026-01-01' where job_id = %s returning failed_at", [ids[1]])
    assert read(rows)["queues"] == 1
    published = reading(rows)
    assert (published["dead"], published["requeued"], published["resolved"]) == (1, 1, 0)
    assert published["oldest_dead_at"] == old.isoformat()
    assert (published["running"], published["leases"], published["workers"]) == (1, 1, 1)
    assert rows.value("select clock_timestamp() - read_at < interval '1 min' from tailrace.queue") is True


def test_a_queue_that_is_empty_again_reads_zero(rows: Rows) -> None:
    """BF-31: a vanished value does not stay."""
    token, [ident] = rows.running()
    rows.fail(ident, token, "permanent")
    read(rows)
    assert reading(rows)["dead"] == 1
    rows.conn.execute("delete from tailrace.dead_letter")
    read(rows)
    assert (reading(rows)["dead"], reading(rows)["oldest_dead_at"]) == (0, None)


def test_each_queue_that_has_anything_gets_a_row(rows: Rows) -> None:
    """Enqueue makes none; jobs that wait, jobs lost once, and dead letters each show their queue; names are taken as they are."""
    rows.job(queue="waits")
    rows.job(queue="süß 'n\" %", lost=1)
    token, [ident] = rows.running(queue="only dead")
    rows.fail(ident, token, "permanent")
    assert (read(rows)["created"], read(rows)["created"]) == (3, 0)
    names = {name for (name,) in rows.conn.execute("select name from tailrace.queue").fetchall()}
    assert names == {"waits", "süß 'n\" %", "only dead"}


def test_counted_ends_are_folded_into_totals(rows: Rows) -> None:
    """Nothing is lost or counted twice, in whatever steps it is folded."""
    token, ids = rows.running(6)
    for n, ident in enumerate(ids):
        rows.settle({"id": ident, "token": token, "kind": "success" if n % 2 else "permanent"})
    assert rows.value("select tailrace.statistics_v1(4)")["more"] is True
    assert rows.value("select tailrace.statistics_v1(4)") == {"queues": 1, "created": 0, "folded": 2, "more": False, "skipped": 0}
    totals = rows.conn.execute("select what, n from tailrace.total order by what").fetchall()
    assert totals == [("dead", 3), ("succeeded", 3)]
    assert rows.count("tally") == 0


def test_a_queue_row_that_somebody_holds_is_skipped(rows: Rows, other: Rows) -> None:
    """An `apply` in an open transaction stops no reading of the others."""
    rows.job(queue="held")
    rows.job(queue="free")
    read(rows)
    rows.conn.execute("update tailrace.queue set read_at = null")
    other.conn.execute("update tailrace.queue set settings = '{}' where name = 'held'")
    assert read(rows)["skipped"] == 1
    assert rows.value("select name from tailrace.queue where read_at is null") == "held"


def test_nobody_waits_for_the_count_of_a_queue(rows: Rows, other: Rows, database: RigDatabase) -> None:
    """Engine 8: counting a large queue takes seconds; holding it or applying its settings meanwhile takes none."""
    rows.job()
    read(rows)
    other.conn.execute("lock table tailrace.worker in access exclusive mode")
    with ThreadPoolExecutor(1) as pool, database.connect(options="-c lock_timeout=2s") as third:
        counting = pool.submit(read, rows)
        try:
            waits = "select count(*) from pg_locks where not granted and relation = 'tailrace.worker'::regclass"
            eventually(lambda: Rows(third).value(waits), what="the statistics to be counting")
            third.execute("select tailrace.hold_queue('q')")
        finally:
            other.conn.rollback()
        assert counting.result(10)["queues"] == 1


def test_a_queue_that_somebody_is_just_making_is_not_waited_for(rows: Rows, other: Rows) -> None:
    """Engine 8: its row is an open insert of an application; the others are made meanwhile, and this one later."""
    rows.conn.execute("set lock_timeout = '20s'")
    for name in ("aaa", "new", "zzz"):
        rows.job(queue=name)
    other.conn.execute("select tailrace.apply_queue('new', '{}', 'cli')")
    began = time.monotonic()
    assert read(rows)["created"] == 2
    assert time.monotonic() - began < 5
    assert rows.value("select array_agg(name order by name) from tailrace.queue") == ["aaa", "zzz"]
    other.conn.rollback()
    assert read(rows)["created"] == 1


def test_one_reader_at_a_time(rows: Rows, other: Rows) -> None:
    read(other)
    assert read(rows) == {"locked": True}


def test_the_readers_name_their_queues_by_index_entries(rows: Rows) -> None:
    """A backlog of one queue costs one entry: finding the queues does not scan the jobs."""
    rows.conn.execute("insert into tailrace.job (queue, task, payload) select 'q', 't', '{}' from generate_series(1, 5000)")
    rows.conn.execute("vacuum analyze tailrace.job")
    with rows.conn.transaction():
        assert rows.value("select count(*) from tailrace.queue_names_v1()") == 1
        reads = rows.value(
            "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int from pg_stat_xact_user_tables where relname = 'job'"
        )
    assert reads < 50


def test_housekeeping_removes_what_nobody_needs(rows: Rows) -> None:
    """CJ-22, BF-33: old waiters, workers dead for a week, requests of ended jobs; nothing that holds work."""
    rows.worker("living")
    rows.worker("dead today", until=-3600)
    rows.worker("long dead", until=-8 * 86_400)
    rows.worker("long dead with a lease", until=-8 * 86_400)
    rows.running(worker="long dead with a lease")
    ident = rows.job()
    for job in (ident, 4242):
        rows.conn.execute("insert into tailrace.cancel_request (job_id, requested_by) values (%s, 'me')", [job])
    for name, seconds in (("old", -1), ("new", 60)):
        rows.conn.execute(
            "insert into tailrace.waiter (queue, worker, until) values ('q', %s, clock_timestamp() + %s * interval '1 s')",
            [name, seconds],
        )
    gone = {"waiters": 1, "workers": 1, "cancel_requests": 1, "limit_slots": 0}
    assert rows.value("select tailrace.housekeeping_v1()") == gone
    left = {name for (name,) in rows.conn.execute("select id from tailrace.worker").fetchall()}
    assert left == {"living", "dead today", "long dead with a lease"}
    assert rows.value("select job_id from tailrace.cancel_request") == ident
    assert rows.value("select tailrace.housekeeping_v1()") == {"waiters": 0, "workers": 0, "cancel_requests": 0, "limit_slots": 0}
