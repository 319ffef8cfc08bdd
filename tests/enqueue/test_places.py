"""Where jobs go: own pools of threads and loops, any schema, and databases that are away or not migrated."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tailrace import App, DatabaseUnavailable, NewJob, SchemaTooOld
from tailrace.db.migrate import migrate
from tests.enqueue.conftest import Shop
from tests.rig.servers import RigDatabase, Server
from tests.rig.waiting import aeventually

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'transactionid'"


def count(database: RigDatabase) -> int:
    found: int = database.value("select count(*) from tailrace.job")
    return found


async def test_the_awaited_words_have_a_pool_of_their_own(shop: Shop, database: RigDatabase) -> None:
    async with shop.app:
        receipts = await asyncio.gather(*(shop.plain.aenqueue(str(n)) for n in range(20)))
        receipts += await shop.app.aenqueue_many(shop.plain.job(str(n)) for n in range(20))
        receipts.append(await shop.app.aenqueue(NewJob("plain", {"text": "x"})))
    assert len({receipt.id for receipt in receipts}) == count(database) == 41


def test_each_loop_has_its_own_pool(shop: Shop, database: RigDatabase) -> None:
    async def one() -> None:
        async with shop.app:
            await shop.plain.aenqueue()

    for _ in range(2):
        asyncio.run(one())
    assert count(database) == 2


def test_a_schema_may_have_any_name(server: Server) -> None:
    """BF-41."""
    for name in ('My"Schema', "it's %s {x}"):
        database = server.create()
        try:
            migrate(database.dsn, schema=name)
            shop = Shop(database.dsn, schema_name=name)
            with shop.app, database.connect(autocommit=False) as conn:
                shop.deliver.using(conn, key="k").enqueue(1, "u")
                assert shop.deliver.using(conn, key="k").enqueue(1, "u").outcome == "skipped"
                assert len(shop.app.using(conn).enqueue_many([shop.plain.job()] * 3)) == 3
                conn.commit()
                quoted = name.replace('"', '""')
                assert conn.execute(f'select count(*) from "{quoted}".job').fetchone() == (4,)
        finally:
            server.drop(database)


def test_a_database_that_is_away_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_DATABASE_URL", raising=False)
    shop = Shop("postgresql://someone:hunter2@127.0.0.1:1/x")
    monkeypatch.setattr("tailrace.db.pools._WAIT_SECONDS", 0.5)
    with shop.app, pytest.raises(DatabaseUnavailable) as away:
        shop.plain.enqueue()
    assert away.value.retryable
    assert "hunter2" not in str(away.value)
    assert "127.0.0.1:1" in str(away.value)


async def test_awaiting_leaves_the_loop_free(shop: Shop, database: RigDatabase) -> None:
    """A keyed enqueue that waits for another transaction blocks nobody else in the loop."""
    with database.connect(autocommit=False) as holder:
        shop.plain.using(holder, key="k").enqueue()
        async with shop.app:
            waiting = asyncio.create_task(shop.plain.using(key="k").aenqueue())
            await aeventually(lambda: database.value(WAITING) == 1, what="the enqueue waits for the other transaction")
            assert not waiting.done()
            holder.commit()
            assert (await waiting).outcome == "skipped"


def test_threads_share_the_pool(shop: Shop, database: RigDatabase) -> None:
    threads = [threading.Thread(target=lambda: [shop.plain.enqueue() for _ in range(20)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(database) == 160


def test_no_environment_means_no_inline_mode() -> None:
    """FQ-24: an enqueue without a database fails; it never runs the job here."""
    ran: list[int] = []
    app = App("q", database_url="postgresql://127.0.0.1:1/x?connect_timeout=1")

    @app.task
    def note(n: int) -> None:
        ran.append(n)

    with pytest.raises(DatabaseUnavailable), app.database.connect() as conn:
        note.using(conn).enqueue(1)
    assert not ran


def test_a_database_without_the_schema_says_what_to_run(empty_database: RigDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """BF-14."""
    monkeypatch.delenv("TAILRACE_DATABASE_URL", raising=False)
    shop = Shop(empty_database.dsn)
    with shop.app, empty_database.connect(autocommit=False) as conn:
        for send in (shop.plain.enqueue, shop.plain.using(conn).enqueue, lambda: shop.app.enqueue_many([shop.plain.job()])):
            with pytest.raises(SchemaTooOld, match="tailrace migrate"):
                send()
