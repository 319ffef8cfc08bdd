"""How a word of the library reaches the database: on its own pool, or on the caller's connection.

Operations are pure statements; these drivers send them and never wrap a sync word in an async one or the other way
round. `admin` puts them below the words; enqueueing has its own, since it takes more kinds of connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from tailrace.db import AsyncConnection, Connection, Database, Statement, arun, run, translated

__all__ = ["AsyncDriver", "OwnPool", "OwnPoolAsync", "SyncDriver", "UsingAsyncConnection", "UsingConnection", "WrongWord"]

T = TypeVar("T")


class SyncDriver(Protocol):
    """Sends a statement and waits."""

    def run(self, statement: Statement[T], /) -> T:
        """Send it and return what it reads."""


class AsyncDriver(Protocol):
    """Sends a statement and is awaited."""

    async def arun(self, statement: Statement[T], /) -> T:
        """Send it and return what it reads."""


class OwnPool:
    """A connection of the process's own pool; each statement commits by itself."""

    def __init__(self, database: Database) -> None:
        """Remember the database; nothing is opened before the first statement.

        Args:
            database: Where to send.
        """
        self._database = database

    def run(self, statement: Statement[T], /) -> T:
        """Send it, commit, and return what it reads."""
        with translated(self._database.address), self._database.pool().connection() as conn:
            return run(conn, statement)


class OwnPoolAsync:
    """A connection of the running loop's own pool; each statement commits by itself."""

    def __init__(self, database: Database) -> None:
        """Remember the database; nothing is opened before the first statement.

        Args:
            database: Where to send.
        """
        self._database = database

    async def arun(self, statement: Statement[T], /) -> T:
        """Send it, commit, and return what it reads."""
        pool = await self._database.apool()
        async with translated(self._database.address), pool.connection() as conn:
            return await arun(conn, statement)


class UsingConnection:
    """The caller's sync connection, inside the caller's transaction."""

    def __init__(self, conn: Connection) -> None:
        """Borrow a connection.

        Args:
            conn: Stays the caller's; never committed, rolled back or closed here.
        """
        self._conn = conn

    def run(self, statement: Statement[T], /) -> T:
        """Send it and return what it reads."""
        return run(self._conn, statement)


class UsingAsyncConnection:
    """The caller's async connection, inside the caller's transaction."""

    def __init__(self, conn: AsyncConnection) -> None:
        """Borrow a connection.

        Args:
            conn: Stays the caller's; never committed, rolled back or closed here.
        """
        self._conn = conn

    async def arun(self, statement: Statement[T], /) -> T:
        """Send it and return what it reads."""
        return await arun(self._conn, statement)


class WrongWord:
    """Makes the wrong word on a borrowed connection an error that names the right one."""

    if not TYPE_CHECKING:  # checkers should see the missing attribute themselves

        def __getattr__(self, name: str) -> object:
            if not name.startswith("_"):
                for twin, kind in (("a" + name, "async"), (name[1:], "sync")):
                    if hasattr(type(self), twin) and (kind == "async" or name.startswith("a")):
                        raise AttributeError(f"this connection is {kind}: use {twin}, not {name}")
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
