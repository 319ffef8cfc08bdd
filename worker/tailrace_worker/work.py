"""The work connection: one dedicated session for claims and finishes, with pinned plans.

Its settings forbid the plans that an empty or stale table could tempt the planner into; every statement has one good
plan. All queues of a worker share it under a lock. When it breaks, `recover` brings it back, however long that takes,
and the lease is beaten first.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from tailrace.db import AsyncConnection, Database, OperationalError, asettled, errors, is_pooled
from tailrace.errors import DatabaseUnavailable, TailraceError
from tailrace.names.events import Event
from tailrace_worker.operations import Operations
from tailrace_worker.silence import TURN_SECONDS, Turns, hang_up

log = logging.getLogger("tailrace.worker")

PINNED: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "lock_timeout": "500ms",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "60s",
    "idle_session_timeout": "0",
}
"""Settings of the work and rescan connections: from the start, or of each transaction behind a pooler. The limits overrule
those of the role: ours are known to fit."""

BROKEN: Final = (OperationalError, DatabaseUnavailable, errors.InterfaceError)
"""What a lost or refusing server raises. LockNotAvailable and the like are OperationalErrors too: see `lost`."""

_USELESS: Final = (
    errors.ReadOnlySqlTransaction,  # a failover left us on a standby
    errors.FeatureNotSupported,  # a migration changed what a prepared statement returns
    errors.InvalidSqlStatementName,  # somebody dropped our prepared statements
    errors.UndefinedTable,
    errors.UndefinedFunction,
    errors.UndefinedColumn,
)
"""Errors that a new connection mends, or that its check of the schema explains."""

_ENDED: Final = ("08", "57P", "25P03", "25P04")
"""SQLSTATEs (or their beginnings) after which the server closes the session: its farewell comes before the end of the stream."""

_PAUSE_SECONDS = (0.1, 5.0)
"""The first and the longest pause between two tries to connect: after an outage of any length work goes on within 10 s."""
_HURRY_SECONDS = 0.5


def lost(error: BaseException, conn: AsyncConnection | None) -> bool:
    """Whether an error means that the session is gone or useless, and not that one statement failed."""
    if conn is None or conn.closed or conn.broken:
        return True
    if isinstance(error, (errors.InterfaceError, DatabaseUnavailable, *_USELESS)):
        return True
    state = error.sqlstate if isinstance(error, errors.Error) else ""
    return state.startswith(_ENDED) if state is not None else isinstance(error, OperationalError)


class Work:
    """The dedicated session.

    Args:
        database: Where to connect.
        role: The second word of the session's application_name.
        check: Called with each new connection; raises when the schema does not fit this release.

    Attributes:
        lock: Whoever uses the connection holds it.
        connected: Whether it can be used.
        stopped: Set at the end: nothing connects again.
        hurry: The worker drains: it waits less between two tries to connect.
    """

    def __init__(
        self, database: Database, *, role: str = "work", check: Callable[[AsyncConnection], Awaitable[None]] | None = None
    ) -> None:
        self.database = database
        self.lock = Turns()
        self.connected = False
        self.operations = Operations()
        self.stopped = asyncio.Event()
        self.hurry = False
        self.role = role
        self._check = check
        self._conn: AsyncConnection | None = None
        self._opening: AsyncConnection | None = None
        self._recovering = False  # whoever does so holds the lock for as long as the server is away

    @property
    def conn(self) -> AsyncConnection:
        """The session; only while `connected`."""
        if self._conn is None:
            raise DatabaseUnavailable("the work connection is not open")
        return self._conn

    @property
    def pooled(self) -> bool:
        """Whether the session is one transaction long: it keeps no settings and no prepared statements."""
        return self._conn is not None and is_pooled(self._conn)

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[AsyncConnection]:
        """The session for one transaction's statements, under our settings also behind a pooler; `lock` must be held."""
        async with asettled(self.conn, self.database.blocks, PINNED):
            yield self.conn

    async def open(self) -> None:
        """Connect once.

        Raises:
            TailraceError: The server cannot be reached, or its schema does not fit.
        """
        self._opening = conn = await self.database.aconnect(options=PINNED, role=self.role)
        try:
            if self._check is not None:
                await self._check(conn)
        except BaseException:
            await conn.close()
            raise
        finally:
            self._opening = None
        self._conn, self.connected = conn, True

    def hang_up(self) -> None:
        """Break the connection under whoever waits for it."""
        hang_up(self._conn)
        hang_up(self._opening)

    def tick(self) -> None:
        """Hang up on a server that has not answered for longer than a statement may take. To be called twice a second."""
        if self.lock.tick() > TURN_SECONDS and not self._recovering:
            self.hang_up()

    async def recover(self, after: Callable[[], Awaitable[Any]] | None = None) -> None:
        """Connect again, waiting longer each time, until it works or the worker stops.

        Args:
            after: Awaited once connected, before anybody may use the connection: the heartbeat.
        """
        await self.close()
        self._recovering = True
        try:
            await self._until_connected(after)
        finally:
            self._recovering = False

    async def _until_connected(self, after: Callable[[], Awaitable[Any]] | None) -> None:
        pause = _PAUSE_SECONDS[0]
        while not self.stopped.is_set():
            try:
                await self.open()
                if after is not None:
                    await after()
                log.warning("connected again", extra={"event": Event.DATABASE_BACK})
                return
            except TailraceError as error:
                await self.close()
                if not error.retryable:
                    raise
                log.warning("no database: %s", error, extra={"event": Event.DATABASE_AWAY})
            except BROKEN as error:
                await self.close()
                log.warning("no database: %s", str(error) or type(error).__name__, extra={"event": Event.DATABASE_AWAY})
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopped.wait(), pause * random.uniform(0.8, 1.2))
            pause = min(_HURRY_SECONDS if self.hurry else _PAUSE_SECONDS[1], pause * 2)

    async def close(self) -> None:
        """Close the session, whatever state it is in."""
        self.connected = False
        conn, self._conn = self._conn, None
        if conn is not None:
            try:
                await conn.close()
            except (OperationalError, errors.InterfaceError, OSError):
                log.debug("closing a broken connection failed", extra={"event": Event.DATABASE_AWAY})
