"""The third connection of a worker: it listens for wake-ups and runs the rescans, off the hot path.

Between statements the event loop watches the socket itself, so that a notification costs no thread and no waiting
query. A lost notification only costs time: every queue polls too.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tailrace.clock import boot
from tailrace.db import AsyncConnection, Database, OperationalError, asettled, errors, is_pooled, sql
from tailrace.errors import TailraceError
from tailrace.names.events import Event
from tailrace_worker.operations import Operations
from tailrace_worker.silence import TURN_SECONDS, Turns, bounded, hang_up
from tailrace_worker.work import PINNED

log = logging.getLogger("tailrace.worker")
T = TypeVar("T")

SESSION = {**PINNED, "lock_timeout": "0", "synchronous_commit": "off"}
"""Its settings: it waits for locks of other workers' floors, off the hot path, and may lose the last of them."""

PING_SECONDS = 30.0
"""How often a silent connection is asked whether it still lives: a dropped link says nothing by itself."""

PING_PATIENCE_SECONDS = 5.0

SHORT_LIFE_SECONDS = 2.0
REST_SECONDS = 0.5
"""A connection that is ended so soon after it was made is made again after a rest: somebody may end each of them."""

_FAULTS = (errors.Error, TailraceError, OSError)


class Ear:
    """Listens on the schema's channel and lends its connection to rescans.

    Args:
        database: Where to connect; the direct URL when there is one.
        heard: Called with each payload.
        listen: Whether to LISTEN; without it the connection serves rescans only.
    """

    def __init__(self, database: Database, *, heard: Callable[[str], None], listen: bool = True) -> None:
        self.database, self.heard, self.listening = database, heard, listen
        self.channel = ""
        self.deaf = False  # behind a pooler notifications reach whoever has the server session at that moment
        self.reconnects = 0
        self.used = 0.0
        self._conn: AsyncConnection | None = None
        self.lock = Turns()
        self._broken = asyncio.Event()
        self.operations = Operations()
        self._fd = -1
        self._opening: AsyncConnection | None = None
        self._opened_at = -math.inf
        self.on_back: Callable[[], None] | None = None

    async def open(self) -> None:
        """Connect and listen.

        Raises:
            TailraceError: The server cannot be reached.
        """
        conn = await self.database.aconnect(options=SESSION, role="listen", direct=True)
        self._opening = conn
        try:
            row = await (await conn.execute(self.database.blocks["wake.channel"], {"schema": self.database.schema})).fetchone()
            self.channel = row[0] if row else ""
            conn.add_notify_handler(lambda n: self.heard(n.payload))
            self._judge(conn)
            if self.listening and self.channel and not self.deaf:
                await conn.execute(sql.SQL("listen {}").format(sql.Identifier(self.channel)))
        except BaseException:
            await conn.close()
            raise
        finally:
            self._opening = None
        self._conn, self._opened_at = conn, boot()
        self._broken.clear()
        self._arm()

    async def within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Await something on this connection for a while; then hang up, which makes it fail: nothing is cancelled."""
        return await bounded(self._conn, work, seconds)

    def _judge(self, conn: AsyncConnection) -> None:
        """Tell whether this connection can listen, and say so when it cannot."""
        deaf = is_pooled(conn) and not self.database.knows_direct
        if deaf and self.listening and not self.deaf:
            fields = {"event": Event.LISTENER_POOLED}
            log.warning("%s is a pooler: polling only; set TAILRACE_DIRECT_DATABASE_URL", self.database.address, extra=fields)
        self.deaf = deaf

    def hang_up(self) -> None:
        """Break the connection under whoever waits for it."""
        hang_up(self._conn)
        hang_up(self._opening)

    def tick(self) -> None:
        """Hang up on a server that has not answered for longer than a statement may take. To be called twice a second."""
        if self.lock.tick() > TURN_SECONDS:
            hang_up(self._conn)

    def _arm(self) -> None:
        if self._conn is not None and not self._conn.closed:
            self._fd = self._conn.fileno()
            asyncio.get_running_loop().add_reader(self._fd, self._readable)

    def _disarm(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        conn = self._conn
        if conn is None:
            return
        try:
            conn.pgconn.consume_input()
            while (notice := conn.pgconn.notifies()) is not None:
                self.heard(notice.extra.decode())
        except OperationalError:
            self._break()

    def _break(self) -> None:
        self._disarm()
        self._broken.set()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[AsyncConnection]:
        """The connection for one statement; notifications that arrive meanwhile are heard after it.

        Raises:
            OperationalError: The connection is away; the keeper makes it again.
        """
        async with self.lock:
            conn = self._conn
            if conn is None or conn.closed or self._broken.is_set():
                raise OperationalError("the listening connection is away")
            self._disarm()
            try:
                yield conn
            except (OperationalError, errors.InterfaceError):
                self._broken.set()
                raise
            finally:
                if not self._broken.is_set():
                    self._arm()
                    self._readable()

    async def keep(self) -> None:
        """Make the connection again whenever it breaks, and ping it while it is silent. Runs until cancelled."""
        while True:
            try:
                await asyncio.wait_for(self._broken.wait(), PING_SECONDS * random.uniform(0.8, 1.2))
            except TimeoutError:
                await self._ping()
                continue
            await self._reopen()

    async def _ping(self) -> None:
        if self.lock.locked():  # somebody asks just now: he will see
            return
        try:
            await bounded(self._conn, self.ask("wake.snapshot", {}), PING_PATIENCE_SECONDS)
        except _FAULTS:
            self._break()

    async def _reopen(self) -> None:
        pause = 0.2
        if boot() - self._opened_at < SHORT_LIFE_SECONDS:
            await asyncio.sleep(REST_SECONDS * random.uniform(0.8, 1.2))
        while self._broken.is_set():
            await self.close()
            try:
                await self.open()
            except _FAULTS as error:
                log.debug("listener away: %s", type(error).__name__, extra={"event": Event.DATABASE_AWAY})
                self._broken.set()
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(5.0, pause * 2)
        self.reconnects += 1
        log.info("listening again", extra={"event": Event.LISTENER_BACK})
        if self.on_back is not None:
            self.on_back()

    async def close(self) -> None:
        """Close the connection."""
        self._disarm()
        conn, self._conn = self._conn, None
        if conn is not None:
            try:
                await conn.close()
            except _FAULTS:
                log.debug("closing a broken connection failed", extra={"event": Event.DATABASE_AWAY})

    async def ask(self, block: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run one named block on the lent connection.

        Args:
            block: Such as "floors.rescan".
            params: Its parameters.

        Returns:
            Its rows; none for a statement that returns none.
        """
        began, ok = boot(), False
        try:
            async with self.lent() as conn:
                async with asettled(conn, self.database.blocks, SESSION):
                    cursor = await conn.cursor(binary=True).execute(self.database.blocks[block], params, prepare=True)
                rows = await cursor.fetchall() if cursor.description else []
            ok = True
        finally:
            self.operations.note([block.partition(".")[2]], boot() - began, ok=ok)
        return rows
