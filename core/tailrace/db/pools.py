"""Pools of producers: one per process, one per event loop.

A pool must not be used after a fork or from another loop, so both are kept by what they belong to and made again when it
changes. `connection` gives them the way to connect.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

__all__ = ["Pools"]

_MAX_SIZE: Final = 10
_WAIT_SECONDS: Final = 10.0  # for a free connection, or for the database
_IDLE_SECONDS: Final = 300.0
_RECONNECT_SECONDS: Final = 10.0
"""For so long the pool itself tries again, with pauses that double; then the next use connects at once. More would mean that
enqueues go on failing for as long as the longest pause after the database is back."""
_instances: WeakSet[Pools] = WeakSet()


class Pools:
    """The pools of one database."""

    def __init__(self) -> None:
        """Open nothing."""
        self._forget()
        self._inherited: list[object] = []
        _instances.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._sync: ConnectionPool[psycopg.Connection[Any]] | None = None
        self._async: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncConnectionPool[psycopg.AsyncConnection[Any]]] = (
            WeakKeyDictionary()
        )

    def after_fork(self) -> None:
        """Start anew in a child; the parent's pools are kept unused, since closing them would end the parent's sessions."""
        self._inherited += [self._sync, self._async]
        self._forget()

    def sync_pool(self, connect: Callable[[], psycopg.Connection[Any]]) -> ConnectionPool[psycopg.Connection[Any]]:
        """Return this process's pool, opened.

        Args:
            connect: Opens one connection.
        """
        with self._lock:
            if self._sync is None or self._sync.closed:
                self._sync = pool = ConnectionPool(
                    connection_class=_sync_class(connect),
                    check=lambda conn: _check(conn, pool),
                    open=True,
                    name="tailrace",
                    min_size=0,
                    max_size=_MAX_SIZE,
                    timeout=_WAIT_SECONDS,
                    max_idle=_IDLE_SECONDS,
                    reconnect_timeout=_RECONNECT_SECONDS,
                )
            return self._sync

    async def async_pool(
        self, connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]
    ) -> AsyncConnectionPool[psycopg.AsyncConnection[Any]]:
        """Return the running loop's pool, opened.

        Args:
            connect: Opens one connection.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            pool = self._async.get(loop)
            if pool is None:
                pool = made = self._async[loop] = AsyncConnectionPool(
                    connection_class=_async_class(connect),
                    check=lambda conn: _acheck(conn, made),  # not by the loop: the pool must not keep it
                    open=False,
                    name="tailrace",
                    min_size=0,
                    max_size=_MAX_SIZE,
                    timeout=_WAIT_SECONDS,
                    max_idle=_IDLE_SECONDS,
                    reconnect_timeout=_RECONNECT_SECONDS,
                )
        await pool.open()
        return pool

    def close(self) -> None:
        """Close the sync pool, if one is open; the next use opens another."""
        with self._lock:
            pool, self._sync = self._sync, None
        if pool is not None:
            pool.close()

    async def aclose(self) -> None:
        """Close the running loop's pool, if one is open; the next use opens another."""
        with self._lock:
            pool = self._async.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()


def _sync_class(connect: Callable[[], psycopg.Connection[Any]]) -> type[psycopg.Connection[Any]]:
    """A connection class whose `connect` is ours: the pool then re-reads the secret and falls back behind a pooler."""

    class Pooled(psycopg.Connection[Any]):
        @classmethod
        def connect(cls, conninfo: str = "", **_: Any) -> Any:
            return connect()

    return Pooled


def _async_class(
    connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]],
) -> type[psycopg.AsyncConnection[Any]]:
    class Pooled(psycopg.AsyncConnection[Any]):
        @classmethod
        async def connect(cls, conninfo: str = "", **_: Any) -> Any:
            return await connect()

    return Pooled


def _check(conn: psycopg.Connection[Any], pool: ConnectionPool[psycopg.Connection[Any]]) -> None:
    """Refuse a connection that has ended; then look at all idle ones, which have often ended with it.

    The pool would find them one at each try, with pauses that double, and refuse a use although the database answers.
    """
    try:
        _still_open(conn)
    except psycopg.OperationalError:
        pool.check()
        raise


async def _acheck(conn: psycopg.AsyncConnection[Any], pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
    """Do what `_check` does."""
    try:
        _still_open(conn)
    except psycopg.OperationalError:
        await pool.check()
        raise


def _still_open(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Raise when the server has ended the session: read what has arrived meanwhile, which costs no round trip.

    The end may lag behind the farewell before it, so the farewell itself counts: a notice of severity FATAL.
    """
    severities: list[str | None] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        severities.append(notice.severity_nonlocalized)

    conn.add_notice_handler(note)
    try:
        conn.pgconn.consume_input()
        conn.pgconn.is_busy()  # makes libpq look at what was read
    finally:
        conn.remove_notice_handler(note)
    if "FATAL" in severities:
        raise psycopg.OperationalError("the server has ended the session")


def _start_anew() -> None:
    for pools in list(_instances):
        pools.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
