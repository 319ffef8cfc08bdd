"""Notifications: only for a queue that somebody waits for, only for jobs that are due, and never with a payload."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.enqueue.conftest import Shop
from tests.rig.servers import Connection, RigDatabase


@pytest.fixture
def heard(database: RigDatabase, conn: Connection) -> Ear:
    return Ear(database, conn)


class Ear:
    """Listens on the schema's channel."""

    def __init__(self, database: RigDatabase, conn: Connection) -> None:
        self.database = database
        self.conn = conn
        [(oid,)] = conn.execute("select 'tailrace'::regnamespace::oid").fetchall()
        conn.execute(f"listen tailrace_{oid}")

    def wait_for(self, queue: str, *, seconds: int = 60) -> None:
        """A worker goes idle."""
        self.conn.execute(
            "insert into tailrace.waiter (queue, worker, until) values (%s, 'w', clock_timestamp() + make_interval(secs => %s))",
            [queue, seconds],
        )

    def all(self) -> list[str]:
        """What was heard; a marker of our own ends the wait."""
        self.database.query("select pg_notify('tailrace_' || 'tailrace'::regnamespace::oid, 'end')")
        found: list[str] = []
        for notification in self.conn.notifies(timeout=10):
            if notification.payload == "end":
                return found
            found.append(notification.payload)
        raise AssertionError("the marker did not come")


def test_nobody_waits_nobody_is_woken(shop: Shop, heard: Ear) -> None:
    shop.plain.enqueue()
    shop.app.enqueue_many([shop.plain.job()])
    heard.wait_for("other")
    heard.wait_for("webhooks", seconds=-1)  # expired
    shop.plain.enqueue()
    shop.app.enqueue_many([shop.plain.job()])
    assert heard.all() == []


def test_a_waiting_queue_is_woken_once_a_transaction(shop: Shop, heard: Ear, database: RigDatabase) -> None:
    """Case e3: the notification is the queue's name and nothing else."""
    heard.wait_for("webhooks")
    heard.wait_for("images")
    shop.plain.enqueue("x" * 100_000)
    assert heard.all() == ["webhooks"]
    with database.connect(autocommit=False) as conn:
        for _ in range(5):
            shop.plain.using(conn).enqueue()
        shop.app.using(conn).enqueue_many([shop.plain.job()] * 5 + [shop.resize.job(__import__("pathlib").Path("x"))])
        assert heard.all() == []
        conn.commit()
    assert sorted(heard.all()) == ["images", "webhooks"]


def test_what_is_not_due_or_changes_nothing_wakes_nobody(shop: Shop, heard: Ear) -> None:
    heard.wait_for("webhooks")
    shop.plain.using(delay=60).enqueue()
    shop.app.enqueue_many([shop.plain.using(delay=60).job()])
    shop.plain.using(key="k", delay=60).enqueue()
    shop.plain.using(key="k").enqueue()
    assert heard.all() == []
    shop.plain.using(key="k", on_duplicate="replace").enqueue()
    assert heard.all() == ["webhooks"]


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_a_fixed_snapshot_always_notifies(shop: Shop, heard: Ear, database: RigDatabase, level: psycopg.IsolationLevel) -> None:
    """Such a producer cannot see who began to wait after its snapshot."""
    with database.connect(autocommit=False) as conn:
        conn.isolation_level = level
        conn.execute("select 1 from tailrace.waiter")
        heard.wait_for("webhooks")
        shop.plain.using(conn).enqueue()
        conn.commit()
        assert heard.all() == ["webhooks"]
        shop.app.using(conn).enqueue_many([shop.plain.job()])
        conn.commit()
    assert heard.all() == ["webhooks"]


def test_the_check_sees_who_registered_after_the_insert_began(heard: Ear, database: RigDatabase) -> None:
    """The look for waiters is a statement of its own: a keyed insert that waited for another transaction sees them."""
    import threading

    with database.connect(autocommit=False) as holder:
        holder.execute("select * from tailrace.enqueue('webhooks', 't', '{}', %s)", [json.dumps({"key": "k"})])
        options = json.dumps({"key": "k", "on_duplicate": "replace"})
        late = threading.Thread(
            target=database.query, args=("select * from tailrace.enqueue('webhooks', 't', '{\"n\": 2}', %s)", [options])
        )
        late.start()
        from tests.rig.waiting import eventually

        eventually(lambda: database.value("select count(*) from pg_stat_activity where wait_event = 'transactionid'") == 1)
        heard.wait_for("webhooks")
        holder.rollback()
        late.join(10)
    assert heard.all() == ["webhooks"]
