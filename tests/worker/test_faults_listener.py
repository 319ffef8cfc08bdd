"""The listening connection by itself: it asks a silent server for a sign of life, hangs up on it and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from tailrace.db import Database
from tailrace_worker import ear as module
from tailrace_worker.ear import Ear
from tests.rig.proxy import TcpProxy
from tests.rig.servers import RigDatabase
from tests.rig.waiting import aeventually


@asynccontextmanager
async def listening(dsn: str, heard: list[str]) -> AsyncIterator[Ear]:
    """A listener that is kept, as in a worker."""
    ear = Ear(Database(url=SecretStr(dsn)), heard=heard.append)
    await ear.open()
    keeper = asyncio.create_task(ear.keep())
    try:
        yield ear
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await ear.close()


def notify(database: RigDatabase, payload: str) -> None:
    database.query("select pg_notify(tailrace.signal_channel_v1(), %s)", [payload])


async def arrival(heard: list[str], payload: str) -> None:
    """Wait until a notification has been heard."""
    await aeventually(lambda: payload in heard, what="the notification")


async def test_pings_leave_a_living_connection_alone(database: RigDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """CJ-20, d3: it goes on hearing, on the same session."""
    monkeypatch.setattr(module, "PING_SECONDS", 0.02)
    heard: list[str] = []
    async with listening(database.dsn, heard) as ear:
        before = database.backends("tailrace listen")
        for payload in map(str, range(20)):
            notify(database, payload)
            await arrival(heard, payload)
        assert database.backends("tailrace listen") == before
        assert ear.reconnects == 0


async def test_a_link_that_dropped_silently_is_noticed(
    tcp_proxy: TcpProxy, database: RigDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CJ-20, pitfall 2.10, d3: nothing says that it is dead; the ping finds out, and what it can hear again is told."""
    monkeypatch.setattr(module, "PING_SECONDS", 0.2)
    monkeypatch.setattr(module, "PING_PATIENCE_SECONDS", 0.3)
    heard: list[str] = []
    back = asyncio.Event()
    async with listening(tcp_proxy.dsn, heard) as ear:
        ear.on_back = back.set
        tcp_proxy.pause()
        await aeventually(lambda: ear._conn is None, what="hanging up")
        tcp_proxy.resume()
        await asyncio.wait_for(back.wait(), 30)
        monkeypatch.setattr(module, "PING_PATIENCE_SECONDS", 30.0)
        notify(database, "again")
        await arrival(heard, "again")
        assert ear.reconnects >= 1
