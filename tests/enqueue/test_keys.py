"""Dedupe: scope, modes, outcomes, and many producers at once (suite dedupe and enqueue)."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from tailrace import Receipt
from tailrace.policy import OnDuplicate
from tests.enqueue.conftest import Shop
from tests.rig.servers import Connection, RigDatabase

MODES = get_args(OnDuplicate)


def run(database: RigDatabase, job_id: int, *, token: int = 7) -> None:
    """A worker claims the job."""
    database.query("update tailrace.job set token = %s, attempts = attempts + 1 where id = %s", [token, job_id])


def rows(database: RigDatabase) -> list[tuple[Any, ...]]:
    return database.query("select id, payload ->> 'text', priority, attempts, token from tailrace.job order by id")


@pytest.mark.parametrize("mode", MODES)
def test_fifty_at_once_make_one_row(shop: Shop, database: RigDatabase, mode: OnDuplicate) -> None:
    """FQ-07: enforced by a unique index; every call gets the same id."""
    barrier = threading.Barrier(50)
    receipts: list[Receipt] = []

    def produce(n: int) -> None:
        with database.connect() as conn:
            barrier.wait()
            receipts.append(shop.plain.using(conn, key="k", on_duplicate=mode).enqueue(str(n)))

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = "skipped" if mode == "skip" else "replaced"
    assert Counter(receipt.outcome for receipt in receipts) == {"created": 1, other: 49}
    [row] = rows(database)
    assert {receipt.id for receipt in receipts} == {row[0]}


def test_a_key_belongs_to_tenant_queue_and_task(shop: Shop) -> None:
    """FQ-08."""
    words = [
        shop.plain.using(key="k"),
        shop.plain.using(key="k", tenant="a"),
        shop.plain.using(key="k", queue="other"),
        shop.deliver.using(key="k"),
    ]
    first = [w.enqueue(1, "u") if w._spec.name == "deliver" else w.enqueue() for w in words]
    again = [w.enqueue(1, "u") if w._spec.name == "deliver" else w.enqueue() for w in words]
    assert [r.outcome for r in first] == ["created"] * 4
    assert [r.outcome for r in again] == ["skipped"] * 4
    assert [r.id for r in first] == [r.id for r in again]


def test_skip_gives_the_holder_waiting_or_running(shop: Shop, database: RigDatabase) -> None:
    """FQ-09; case a3: a refused enqueue says so and names who holds the key."""
    words = shop.plain.using(key="k", priority=5)
    created = words.enqueue("one")
    assert words.enqueue("two") == Receipt(created.id, "skipped")
    run(database, created.id)
    assert words.enqueue("three") == Receipt(created.id, "in_progress")
    assert rows(database) == [(created.id, "one", 5, 1, 7)]
    database.query("delete from tailrace.job")
    assert words.enqueue("four").outcome == "created"


@pytest.mark.parametrize("mode", ["replace", "preserve_run_at"])
def test_replace_keeps_the_id_and_never_touches_a_running_row(shop: Shop, database: RigDatabase, mode: OnDuplicate) -> None:
    """BF-02."""
    created = shop.plain.using(key="k", delay=60).enqueue("one")
    [(due,)] = database.query("select run_at from tailrace.job")
    database.query("update tailrace.job set attempts = 2, lost = 1, errors = '[1]', saved = '1', snoozes = 3")
    words = shop.plain.using(key="k", on_duplicate=mode, priority=9, timeout=5, meta={"m": 1}, max_attempts=2)
    assert words.enqueue("one") == Receipt(created.id, "replaced")
    columns = "priority, attempts, lost, errors, saved, timeout::text, meta, max_attempts"
    assert database.query(f"select {columns} from tailrace.job") == [(9, 2, 1, [1], 1, "00:00:05", {"m": 1}, 2)]
    assert (database.value("select run_at from tailrace.job") == due) == (mode == "preserve_run_at")
    assert words.enqueue("two") == Receipt(created.id, "replaced")
    assert database.query("select payload, attempts, lost, errors, saved from tailrace.job") == [
        ({"text": "two"}, 0, 0, None, None)
    ]
    run(database, created.id)
    before = database.query("select j::text from tailrace.job j")
    assert words.enqueue("three") == Receipt(created.id, "in_progress")
    assert database.query("select j::text from tailrace.job j") == before


def test_replace_never_waits_for_a_row_that_runs(shop: Shop, database: RigDatabase, conn: Connection) -> None:
    """A worker that is finishing holds its row's lock; a producer of the same key must neither wait nor hold it."""
    created = shop.plain.using(key="k").enqueue("one")
    run(database, created.id)
    with database.connect(autocommit=False) as worker:
        worker.execute("select from tailrace.job for update")
        conn.execute("set statement_timeout = '3s'")
        with conn.transaction():
            for mode in ("replace", "preserve_run_at", "skip"):
                assert shop.plain.using(conn, key="k", on_duplicate=mode).enqueue("two").outcome == "in_progress"
            # and the other way round: the worker's finish passes the producer's open transaction
            worker.execute("set statement_timeout = '3s'")
            worker.execute("delete from tailrace.job where id = %s and token = 7", [created.id])
            worker.commit()


def test_a_holder_that_expired_does_not_swallow_the_next(shop: Shop, database: RigDatabase) -> None:
    """It would never run, and neither would the job that was skipped for it."""
    words = shop.plain.using(key="k", expires_in=3600)
    first = words.enqueue("one")
    database.query("update tailrace.job set run_at = now() - interval '1 h', expires_at = now() - interval '1 s'")
    second = words.enqueue("two")
    assert second.outcome == "created"
    assert second.id != first.id
    assert [row[1] for row in rows(database)] == ["two"]
    assert database.value("select n from tailrace.tally where what = 'expired'") == 1


def test_modes_and_keys_go_by_row_in_a_batch(shop: Shop, database: RigDatabase) -> None:
    """GW-06; case b4: replace = last wins, skip = first wins, and each receipt says what happened to its row."""
    later = shop.plain.using(key="keep", delay=60).enqueue("old")
    [(due,)] = database.query("select run_at from tailrace.job")
    receipts = shop.app.enqueue_many(
        [
            shop.plain.using(key="s").job("s1"),
            shop.plain.using(key="r", on_duplicate="replace").job("r1"),
            shop.plain.job("free"),
            shop.plain.using(key="s").job("s2"),
            shop.plain.using(key="r", on_duplicate="replace").job("r2"),
            shop.plain.using(key="keep", on_duplicate="preserve_run_at").job("new"),
            shop.resize.job(Path("x")),
            shop.resize.job(Path("x"), width=5),
        ]
    )
    outcomes = ["created", "created", "created", "skipped", "replaced", "replaced", "created", "skipped"]
    assert [r.outcome for r in receipts] == outcomes
    assert receipts[0].id == receipts[3].id
    assert receipts[1].id == receipts[4].id
    assert receipts[5].id == later.id
    stored = dict(database.query("select id, payload ->> 'text' from tailrace.job where task = 'plain'"))
    assert stored == {receipts[0].id: "s1", receipts[1].id: "r2", receipts[2].id: "free", later.id: "new"}
    assert database.value("select run_at from tailrace.job where id = %s", [later.id]) == due
    assert database.value("select payload from tailrace.job where task = 'resize'") == {"path": "x"}


def test_arrays_in_payloads_are_replaced_and_never_merged(shop: Shop, database: RigDatabase) -> None:
    """GW-06."""
    words = shop.plain.using(key="k", on_duplicate="replace")
    words.enqueue(value=[1])
    words.enqueue(value=[2])
    assert database.value("select payload -> 'value' from tailrace.job") == [2]


def test_two_producers_of_the_same_keys_do_not_deadlock(shop: Shop, database: RigDatabase) -> None:
    """enqueue_many sorts by key, in the function and across its chunks."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(2)

    def produce(keys: list[str]) -> None:
        try:
            with database.connect() as conn:
                for _ in range(5):
                    barrier.wait()
                    shop.app.using(conn).enqueue_many(
                        [shop.plain.using(key=key, on_duplicate="replace").job(key) for key in keys]
                    )
        except BaseException as problem:  # noqa: BLE001 - shown by the test
            errors.append(problem)
            barrier.abort()

    keys = [f"{n}-ü" for n in range(200)]
    threads = [threading.Thread(target=produce, args=(order,)) for order in (keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(rows(database)) == 200


def test_a_key_is_free_again_after_a_rollback(shop: Shop, database: RigDatabase) -> None:
    with database.connect(autocommit=False) as conn:
        shop.plain.using(conn, key="k").enqueue()
        conn.rollback()
    assert shop.plain.using(key="k").enqueue().outcome == "created"


def test_a_producer_with_a_fixed_snapshot_gets_an_honest_error(shop: Shop, database: RigDatabase) -> None:
    """In REPEATABLE READ the holder may be invisible: PostgreSQL's own serialization failure, and never an empty answer."""
    import psycopg

    with database.connect(autocommit=False) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("select 1 from tailrace.job")
        shop.plain.using(key="k").enqueue()
        with pytest.raises(psycopg.errors.SerializationFailure):
            shop.plain.using(conn, key="k").enqueue()
