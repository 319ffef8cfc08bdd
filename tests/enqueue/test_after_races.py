"""Mode `after` with open transactions: holder and successor never wait for each other for long, and never miss each other."""

from __future__ import annotations

import threading
from collections import Counter

from tailrace import Receipt
from tests.enqueue.conftest import Shop
from tests.enqueue.succession import followed, hold, settle, slots, successor_of
from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import eventually


def test_fifty_at_once_make_one_successor(shop: Shop, database: RigDatabase) -> None:
    """FQ-07."""
    holder = shop.plain.using(key="k").enqueue("one")
    hold(database, holder.id)
    barrier = threading.Barrier(50)
    receipts: list[Receipt] = []

    def produce(n: int) -> None:
        with database.connect() as conn:
            barrier.wait()
            receipts.append(shop.plain.using(conn, key="k", on_duplicate="after").enqueue(str(n)))

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(r.outcome for r in receipts) == {"created": 1, "replaced": 49}
    assert len({r.id for r in receipts}) == 1
    assert [slot for _, slot in slots(database)] == [0, 1]


def test_the_holder_ends_while_the_enqueue_is_open(shop: Shop, database: RigDatabase, conn: Connection) -> None:
    """A worker never waits for the open transaction, and the successor follows at its commit."""
    holder = shop.plain.using(key="k").enqueue("one")
    hold(database, holder.id)
    with database.connect(autocommit=False) as producer:
        successor = shop.plain.using(producer, key="k", on_duplicate="after").enqueue("two")
        conn.execute("set statement_timeout = '3s'")
        statement, values = settle(holder.id, "success")
        assert conn.execute(statement.encode(), values).fetchone() == ("succeeded",)
        producer.commit()
    followed(database, successor.id)


def test_the_enqueue_commits_while_the_holder_ends(shop: Shop, database: RigDatabase) -> None:
    """The commit waits for the end that is just happening, and finds the place free."""
    holder = shop.plain.using(key="k").enqueue("one")
    hold(database, holder.id)
    statement, values = settle(holder.id, "success")
    with database.connect(autocommit=False) as producer, database.connect(autocommit=False) as worker:
        successor = shop.plain.using(producer, key="k", on_duplicate="after").enqueue("two")
        assert worker.execute(statement.encode(), values).fetchone() == ("succeeded",)
        committing = threading.Thread(target=producer.commit)
        committing.start()
        pid = producer.info.backend_pid
        waiting = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        eventually(lambda: database.value(waiting, [pid]), what="the commit to wait")
        worker.commit()
        committing.join()
    followed(database, successor.id)


def test_somebody_else_takes_the_place_first(shop: Shop, database: RigDatabase) -> None:
    """The successor of one who has ended becomes the successor of the one who came in between."""
    holder = shop.plain.using(key="k").enqueue("one")
    hold(database, holder.id)
    with database.connect(autocommit=False) as producer:
        successor = shop.plain.using(producer, key="k", on_duplicate="after").enqueue("two")
        database.query(*settle(holder.id, "success"))
        between = shop.plain.using(key="k").enqueue("between")
        assert between.outcome == "created"
        producer.commit()
    assert database.query("select id, key_slot from tailrace.job order by key_slot") == [(between.id, 0), (successor.id, 1)]


def test_a_successor_that_somebody_changes_keeps_its_holder(shop: Shop, database: RigDatabase) -> None:
    """The worker does not wait: the holder stays its job and is finished a second later, also after a rollback."""
    holder, successor = successor_of(shop, database)
    finish = "select result from tailrace.finish_keyed_v1('w', %s, '{7}', '{7}')"
    with database.connect(autocommit=False) as producer:
        assert shop.plain.using(producer, key="k", on_duplicate="after").enqueue("three") == Receipt(successor, "replaced")
        assert database.value(finish, [[holder]]) == "busy"
        assert database.value(*settle(holder, "success")) == "busy"
        assert database.value("select count(*) from tailrace.lease") == 1
        producer.rollback()
    assert database.value(finish, [[holder]]) == "succeeded"
    followed(database, successor)


def test_a_rolled_back_successor_leaves_nothing(shop: Shop, database: RigDatabase) -> None:
    holder = shop.plain.using(key="k").enqueue("one")
    hold(database, holder.id)
    with database.connect(autocommit=False) as producer:
        shop.plain.using(producer, key="k", on_duplicate="after").enqueue("two")
        producer.rollback()
    assert slots(database) == [("one", 0)]


def test_the_walk_finds_a_successor_that_was_left_behind(shop: Shop, database: RigDatabase) -> None:
    """Such as by a hand that deletes the holder."""
    holder, successor = successor_of(shop, database)
    database.query("delete from tailrace.job where id = %s", [holder])
    report = database.value("select tailrace.walk_v1(0)")
    assert report["followed"] == 1
    followed(database, successor)


def test_a_cancel_that_meets_the_holders_end_takes_the_successor(shop: Shop, database: RigDatabase) -> None:
    """It waits for the successor that is just following; that the holder is gone then is no reason to refuse."""
    holder, _ = successor_of(shop, database)
    statement, values = settle(holder, "success")
    told: list[str] = []
    with database.connect(autocommit=False) as worker, database.connect() as operator:
        assert worker.execute(statement.encode(), values).fetchone() == ("succeeded",)
        cancel = "select tailrace.cancel_by_key('', 'webhooks', 'plain', 'k')"
        cancelling = threading.Thread(target=lambda: told.extend(row[0] for row in operator.execute(cancel)))
        cancelling.start()
        waiting = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        eventually(lambda: database.value(waiting, [operator.info.backend_pid]), what="the cancel to wait")
        worker.commit()
        cancelling.join()
    assert told == ["cancelled"]
    assert slots(database) == []


def test_a_commit_that_waits_for_one_holder_keeps_no_worker_from_finishing_another(shop: Shop, database: RigDatabase) -> None:
    """A commit that lets two successors follow holds the first one's holder while a handler's transaction keeps the other's."""
    first, second = (shop.plain.using(key=key).enqueue("one").id for key in ("k", "l"))
    hold(database, first)
    database.query("update tailrace.lease set ids = ids || %s::bigint", [second])
    database.query("update tailrace.job set token = 7, attempts = 1 where id = %s", [second])
    finish = "select result from tailrace.finish_keyed_v1('w', %s, '{7}', '{7}')"
    with database.connect(autocommit=False) as producer, database.connect(autocommit=False) as handler:
        successors = [shop.plain.using(producer, key=key, on_duplicate="after").enqueue("two").id for key in ("k", "l")]
        handler.execute("select tailrace.complete_v1(%s, 7, 'w')", [second])
        committing = threading.Thread(target=producer.commit)
        committing.start()
        waiting = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        eventually(lambda: database.value(waiting, [producer.info.backend_pid]), what="the commit to wait")
        with database.connect() as worker:
            worker.execute("set statement_timeout = '2s'")
            assert worker.execute(finish, [[first]]).fetchone() == ("busy",)
        handler.commit()
        committing.join()
    assert database.value(finish, [[first]]) == "succeeded"
    assert database.query("select id, key_slot from tailrace.job order by id") == [(id_, 0) for id_ in successors]
