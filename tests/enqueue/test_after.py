"""Mode `after`: while the holder of a key runs, one successor is kept, and whatever ends the holder lets it follow."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tailrace import InvalidOption, Receipt
from tests.enqueue.conftest import Shop
from tests.enqueue.succession import STATES, TOKEN, followed, hold, settle, slots, successor_of
from tests.rig.servers import Connection, RigDatabase


# ---- one producer ----------------------------------------------------------------------------------------------------
def test_a_waiting_holder_is_replaced(shop: Shop, database: RigDatabase) -> None:
    words = shop.plain.using(key="k", on_duplicate="after")
    created = words.enqueue("one")
    assert created.outcome == "created"
    assert words.enqueue("two") == Receipt(created.id, "replaced")
    assert slots(database) == [("two", 0)]


def test_a_running_holder_gets_one_successor(shop: Shop, database: RigDatabase) -> None:
    """Case a3: accepted means that a run starts after it; the successor waits as `blocked` and is replaced in place."""
    words = shop.plain.using(key="k", on_duplicate="after")
    holder = words.enqueue("one")
    hold(database, holder.id)
    successor = words.enqueue("two")
    assert successor.outcome == "created"
    assert successor.id != holder.id
    assert words.enqueue("three") == Receipt(successor.id, "replaced")
    assert database.query(STATES) == [(holder.id, "one", 0, "running"), (successor.id, "three", 1, "blocked")]
    assert database.value("select blocked from tailrace.queue_stats('webhooks')") == 1
    assert shop.plain.using(key="k").enqueue("four") == Receipt(holder.id, "in_progress")
    assert shop.plain.using(key="k", on_duplicate="replace").enqueue("five") == Receipt(successor.id, "replaced")


def test_a_holder_that_waits_for_its_retry_does_not_run(shop: Shop, database: RigDatabase) -> None:
    """It is replaced; but while a successor waits, that is the newest word and stays so: an old payload must not run last."""
    words = shop.plain.using(key="k", on_duplicate="after")
    holder = words.enqueue("one")
    hold(database, holder.id)
    database.query(*settle(holder.id, "error", delay=60))
    assert words.enqueue("two") == Receipt(holder.id, "replaced")
    database.query("update tailrace.job set token = 7")
    successor = words.enqueue("three")
    database.query("update tailrace.job set token = null where key_slot = 0")
    for mode in ("after", "replace", "preserve_run_at"):
        assert shop.plain.using(key="k", on_duplicate=mode).enqueue(mode) == Receipt(successor.id, "replaced")
    assert slots(database) == [("two", 0), ("preserve_run_at", 1)]


def test_nobody_claims_a_successor(shop: Shop, database: RigDatabase) -> None:
    holder = shop.plain.using(key="k").enqueue("one")
    hold(database, holder.id)
    successor = shop.plain.using(key="k", on_duplicate="after").enqueue("two")
    for index in ("job_ready", "job_suspect"):
        predicate = database.value(
            "select pg_get_expr(indpred, indrelid) from pg_index where indexrelid = %s::regclass", [f"tailrace.{index}"]
        )
        assert "(key_slot = 0)" in predicate
    database.query("select tailrace.run_now(%s)", [successor.id])
    assert database.query("select state from tailrace.jobs where id = %s", [successor.id]) == [("blocked",)]


def test_modes_in_a_batch_and_in_sql(shop: Shop, database: RigDatabase) -> None:
    """GW-06: by row; the words of SQL are the same."""
    holder = shop.plain.using(key="k").enqueue("one")
    hold(database, holder.id)
    receipts = shop.app.enqueue_many([shop.plain.using(key="k", on_duplicate="after").job(str(n)) for n in range(3)])
    assert [r.outcome for r in receipts] == ["created", "replaced", "replaced"]
    options = Jsonb({"key": "k", "on_duplicate": "after"})
    payload = Jsonb({"text": "sql"})
    rows = database.query("select id, outcome from tailrace.enqueue('webhooks', 'plain', %s, %s)", [payload, options])
    assert rows == [(receipts[0].id, "replaced")]
    task: Any = shop.plain
    with pytest.raises(InvalidOption):
        task.using(key="k", on_duplicate="behind")


# ---- every end lets it follow ----------------------------------------------------------------------------------------
ENDS: dict[str, tuple[str, str]] = {
    "success": ("success", "succeeded"),
    "permanent": ("permanent", "dead"),
    "cancelled": ("cancelled", "cancelled"),
    "expired": ("expired", "expired"),
}


@pytest.mark.parametrize("kind", ENDS)
def test_an_end_in_settle(shop: Shop, database: RigDatabase, kind: str) -> None:
    holder, successor = successor_of(shop, database)
    told, result = ENDS[kind]
    assert database.value(*settle(holder, told)) == result
    followed(database, successor)


@pytest.mark.parametrize("kind", ["error", "snooze", "interrupted", "handback"])
def test_what_goes_back_keeps_its_key(shop: Shop, database: RigDatabase, kind: str) -> None:
    holder, _ = successor_of(shop, database)
    database.query(*settle(holder, kind, delay=0))
    assert slots(database) == [("one", 0), ("two", 1)]


def test_the_fast_finish(shop: Shop, database: RigDatabase) -> None:
    holder, successor = successor_of(shop, database)
    finish = "select id, result from tailrace.finish_keyed_v1('w', %s, %s, %s)"
    assert database.query(finish, [[holder, 10**9], [TOKEN, TOKEN], [TOKEN]]) == [(holder, "succeeded"), (10**9, "fenced")]
    followed(database, successor)
    assert database.query("select what, n from tailrace.tally") == [("succeeded", 1)]
    assert database.value("select count(*) from tailrace.lease") == 0


def test_the_reaper(shop: Shop, database: RigDatabase) -> None:
    holder, successor = successor_of(shop, database, until="-1 min", max_attempts=1)
    database.query("select tailrace.take_over_v1('{7}', 0, 'gone')")
    assert database.value("select reason from tailrace.dead_letter where job_id = %s", [holder]) == "lease_expired"
    followed(database, successor)


def test_the_walk_ends_an_exhausted_holder(shop: Shop, database: RigDatabase) -> None:
    holder, successor = successor_of(shop, database)
    database.query("update tailrace.job set token = null, attempts = 9 where id = %s", [holder])
    database.query("select tailrace.walk_v1(0)")
    followed(database, successor)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_completion_by_the_handler(shop: Shop, database: RigDatabase, end: str) -> None:
    holder, successor = successor_of(shop, database)
    with database.connect(autocommit=False) as handler:
        handler.execute("select tailrace.complete_v1(%s, %s, 'w')", [holder, TOKEN])
        getattr(handler, end)()
    if end == "commit":
        followed(database, successor)
    else:
        assert slots(database) == [("one", 0), ("two", 1)]


def test_cancel_and_purge(shop: Shop, database: RigDatabase) -> None:
    holder, successor = successor_of(shop, database)
    database.query("update tailrace.job set token = null where id = %s", [holder])
    assert database.value("select tailrace.cancel(%s)", [holder]) == "cancelled"
    followed(database, successor)
    database.query("delete from tailrace.lease")
    database.query("delete from tailrace.worker")
    hold(database, successor)
    last = shop.plain.using(key="k", on_duplicate="after").enqueue("three").id
    assert database.value("select tailrace.purge_queue('webhooks', true)") == 1
    assert database.query("select id, key_slot from tailrace.job") == [(successor, 0)]
    assert last not in (holder, successor)


def test_cancel_by_key_means_both(shop: Shop, database: RigDatabase) -> None:
    holder, _ = successor_of(shop, database)
    assert database.value("select tailrace.cancel_by_key('', 'webhooks', 'plain', 'k')") == "requested"
    assert database.query("select id from tailrace.job") == [(holder,)]
    assert database.query("select job_id from tailrace.cancel_request") == [(holder,)]


def test_a_forced_requeue_takes_the_holders_place_and_keeps_the_successor(shop: Shop, database: RigDatabase) -> None:
    """BF-20: the newest payload is kept; it runs after the requeued one."""
    dead = shop.plain.using(key="k").enqueue("dead").id
    hold(database, dead)
    database.query(*settle(dead, "permanent"))
    database.query("delete from tailrace.worker")
    holder, successor = successor_of(shop, database)
    database.query("update tailrace.job set token = null where id = %s", [holder])
    database.query("select tailrace.requeue_dead_letter(%s, true)", [dead])
    assert database.query("select id, key_slot from tailrace.job order by key_slot") == [(dead, 0), (successor, 1)]


def test_a_plain_insert_is_held_to_the_same_rules(conn: Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="key_slot"):
        conn.execute("insert into tailrace.job (queue, task, payload, key_slot) values ('q', 't', '{}', 1)")
    conn.execute("insert into tailrace.job (queue, task, payload, key, key_slot) values ('q', 't', '{}', 'k', 1)")
    assert conn.execute("select key_slot from tailrace.job").fetchall() == [(0,)], "nobody holds the key: it need not wait"
