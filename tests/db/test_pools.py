"""The producers' pools after the server was away: they come back by themselves, however long it took."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest
from pydantic import SecretStr

from tailrace.db import Database, pools
from tailrace.errors import DatabaseUnavailable
from tests.rig.servers import RigDatabase, Server
from tests.rig.waiting import eventually

GIVES_UP_SECONDS = 0.5
ALL = 10


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools that soon give up to connect again: the outage need not last for minutes."""
    monkeypatch.setattr(pools, "_RECONNECT_SECONDS", GIVES_UP_SECONDS)
    monkeypatch.setattr(pools, "_WAIT_SECONDS", 2.0)


def place(database: RigDatabase) -> Database:
    return Database(url=SecretStr(database.dsn))


def answers(where: Database) -> bool:
    """Whether a pool's connection can be used now."""
    try:
        with where.pool().connection() as conn:
            return conn.execute("select 1").fetchone() == (1,)
    except (DatabaseUnavailable, psycopg.Error):  # PoolTimeout is one
        return False


def fill(where: Database) -> None:
    """Make the pool open as many connections as it may."""
    with ExitStack() as stack:
        for _ in range(ALL):
            stack.enter_context(where.pool().connection())


@pytest.mark.usefixtures("hasty")
def test_a_pool_comes_back_after_an_outage_that_outlasts_its_patience(private_server: Server) -> None:
    """d2: no restart, no stale connection; the first use after the database's return may be the one that connects."""
    where = place(private_server.migrated())
    fill(where)
    private_server.postgres.stop("fast")
    away = time.monotonic()
    assert not answers(where)
    eventually(lambda: time.monotonic() > away + 6 * GIVES_UP_SECONDS, what="the end of its patience")
    assert not answers(where)
    private_server.postgres.start()
    eventually(lambda: answers(where), 30, what="a connection")
    with ThreadPoolExecutor(ALL) as threads:
        assert all(threads.map(lambda _: answers(where), range(3 * ALL)))
    where.close()


@pytest.mark.usefixtures("hasty")
async def test_an_awaited_pool_comes_back_too(private_server: Server) -> None:
    """d2."""
    where = place(private_server.migrated())

    async def awaited() -> bool:
        try:
            async with (await where.apool()).connection() as conn:
                return await (await conn.execute("select 1")).fetchone() == (1,)
        except (DatabaseUnavailable, psycopg.Error):
            return False

    assert all(await asyncio.gather(*(awaited() for _ in range(ALL))))
    private_server.postgres.stop("fast")
    away = time.monotonic()
    assert not await awaited()
    assert not await awaited()
    assert time.monotonic() > away + 2 * GIVES_UP_SECONDS
    private_server.postgres.start()
    deadline = time.monotonic() + 30
    while not await awaited():
        assert time.monotonic() < deadline, "no connection"
    assert all(await asyncio.gather(*(awaited() for _ in range(3 * ALL))))
    await where.aclose()


def test_all_sessions_ended_at_once_cost_no_failed_use(database: RigDatabase) -> None:
    """d2: none of ten dead connections is handed out, nor tried one after the other with growing waits."""
    where = place(database)
    fill(where)
    assert database.terminate_backends("tailrace enqueue") == ALL
    eventually(lambda: not database.backends("tailrace enqueue"), what="the end of all sessions")
    began = time.monotonic()
    assert answers(where)
    assert time.monotonic() - began < 5
    with ThreadPoolExecutor(ALL) as threads:
        assert all(threads.map(lambda _: answers(where), range(3 * ALL)))
    where.close()
