"""Connections to one database: two at most, each question within a time, and none after a failure until a pause is over.

One pool belongs to (host, port, database, user); all queues there share it, so that one dead database delays no other. A
login is a user's password and certificate: a connection is only ever used for the login that opened it, since another
JobQueue may name the same user without knowing the password. `database` asks through it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tailrace.db import AsyncConnection, Blocks, Database, Statement, TransactionStatus, arun, errors, is_pooled, settings_of
from tailrace.db.allowed import Target
from tailrace.db.silence import bounded
from tailrace.errors import AuthenticationFailed, DatabaseUnavailable, TailraceError
from tailrace_controller.databases.breaker import Breaker

__all__ = ["Budget", "Login", "Pool"]

T = TypeVar("T")

SESSION: Final = {"lock_timeout": "5s", "statement_timeout": "8s", "idle_in_transaction_session_timeout": "15s"}
"""Settings of each session: the server gives up before we hang up. A reading of the statistics may hold a queue's row for a
while, which is waited for."""

_MOST_LOGINS: Final = 16
_AGAIN: Final = "It is tried again"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one database may cost.

    Attributes:
        connections: At a time.
        connect_seconds: For one connect, name look-up included.
        answer_seconds: For one statement; then the connection is given up.
        wait_seconds: For a connection while all are in use.
        idle_seconds: How long an unused connection is kept.
        first_pause_seconds: After the first failure.
        longest_pause_seconds: After many.
    """

    connections: int = 2
    connect_seconds: float = 5.0
    answer_seconds: float = 10.0
    wait_seconds: float = 5.0
    idle_seconds: float = 30.0
    first_pause_seconds: float = 1.0
    longest_pause_seconds: float = 30.0


@dataclass(eq=False)
class Login:
    """One way in: where to connect, whether that failed lately, and whether it ever worked."""

    database: Database
    breaker: Breaker
    worked: bool = False


@dataclass(frozen=True)
class _Idle:
    conn: AsyncConnection
    login: Login
    since: float


class _Silent(DatabaseUnavailable):
    """The server did not answer in time: no use to try again at once."""


class Pool:
    """The connections to one database, on one event loop."""

    def __init__(self, address: str, *, budget: Budget, clock: Callable[[], float], jitter: Callable[[], float]) -> None:
        """Open nothing.

        Args:
            address: host:port/dbname, for messages.
            budget: What it may cost.
            clock: Seconds that only go forward.
            jitter: A random number in [0, 1).
        """
        self.address = address
        self._budget, self._clock, self._jitter = budget, clock, jitter
        self.breaker = self._new_breaker()
        """Whether the database is away."""
        self.asked = False
        """Whether it was ever asked."""
        self._slots = asyncio.Semaphore(budget.connections)
        self._busy = 0
        self._idle: list[_Idle] = []
        self._logins: OrderedDict[tuple[str, bytes | None], Login] = OrderedDict()
        self._tidying: asyncio.Task[None] | None = None
        self._closed = False

    def login(self, target: Target, make: Callable[[Target], Database]) -> Login:
        """Return the login of a target; a new password is a new one.

        Args:
            target: A target of this database.
            make: Makes the place to connect to.
        """
        key = (target.dsn.get_secret_value(), target.root_certificate)
        login = self._logins.get(key)
        if login is None:
            login = self._logins[key] = Login(make(target), self._new_breaker())
            while len(self._logins) > _MOST_LOGINS:
                self._logins.popitem(last=False)
        self._logins.move_to_end(key)
        return login

    async def ask(self, login: Login, statement: Statement[T], blocks: Blocks) -> T:
        """Send a statement that may be repeated, and return its result.

        Args:
            login: Who asks.
            statement: What.
            blocks: Of the schema asked about.

        Raises:
            DatabaseUnavailable: No answer within the budget, refused, or it failed a moment ago.
            TailraceError: The database refuses this statement.
        """
        login.breaker.peek()
        self.breaker.peek()
        await self._enter()
        self._busy += 1
        try:
            login.breaker.check()  # it may have failed for another meanwhile
            self.breaker.check()
            self.asked = True
            return await self._judged(login, self._ask(login, statement, blocks))
        finally:
            self._busy -= 1
            self._slots.release()

    async def close(self) -> None:
        """Close what is open, now and when it comes back."""
        self._closed = True
        if self._tidying is not None:
            self._tidying.cancel()
        idle, self._idle = self._idle, []
        for one in idle:
            await one.conn.close()

    # ---- one question ------------------------------------------------------------------------------------------------
    async def _judged(self, login: Login, answer: Coroutine[Any, Any, T]) -> T:
        """Await an answer, and note what it says of the database and the login."""
        try:
            result = await answer
        except AuthenticationFailed as error:
            login.breaker.failed(error)
            self.breaker.worked()
            raise
        except DatabaseUnavailable as error:
            login.breaker.failed(error)
            # A login that never worked says nothing of the database: its certificate may be wrong, for example.
            if login.worked or not any(one.worked for one in self._logins.values()):
                self.breaker.failed(error)
            raise
        except TailraceError:
            self._worked(login)
            raise
        except errors.Error as error:  # a lock not to be had, a time limit: the server lives
            self._worked(login)
            said = error.diag.message_primary or type(error).__name__
            raise DatabaseUnavailable(f"database {self.address} is busy: {said}", hint=_AGAIN) from error
        self._worked(login)
        return result

    def _worked(self, login: Login) -> None:
        login.worked = True
        login.breaker.worked()
        self.breaker.worked()

    async def _enter(self) -> None:
        try:
            async with asyncio.timeout(self._budget.wait_seconds):
                await self._slots.acquire()
        except TimeoutError:
            said = f"database {self.address} is slow: all {self._budget.connections} connections of this controller are in use"
            raise DatabaseUnavailable(said, hint=_AGAIN) from None

    async def _ask(self, login: Login, statement: Statement[T], blocks: Blocks) -> T:
        conn = self._unused(login)
        if conn is not None:
            try:
                return await self._send(conn, login, statement, blocks)
            except _Silent:
                raise
            except DatabaseUnavailable:
                if not conn.broken:
                    raise  # the session lives, so the server has said it
        conn = await self._connect(login)
        return await self._send(conn, login, statement, blocks)

    async def _send(self, conn: AsyncConnection, login: Login, statement: Statement[T], blocks: Blocks) -> T:
        began, seconds = self._clock(), self._budget.answer_seconds
        try:
            return await bounded(conn, _run(conn, statement, blocks), seconds)
        except DatabaseUnavailable as error:
            if self._clock() - began < seconds:
                raise
            raise _Silent(
                f"database {self.address}: no answer in {seconds:g} s", hint="Look at its load and its network"
            ) from error
        finally:
            await self._keep(conn, login)

    async def _connect(self, login: Login) -> AsyncConnection:
        seconds = self._budget.connect_seconds
        while self._idle and len(self._idle) + self._busy > self._budget.connections:
            await self._idle.pop(0).conn.close()  # another login's
        try:
            async with asyncio.timeout(seconds):
                return await login.database.aconnect(role="controller", options=SESSION)
        except TimeoutError:
            said = f"database {self.address}: no connection in {seconds:g} s"
            raise DatabaseUnavailable(
                said, hint="Check that it runs, and that network policies let the controller reach it"
            ) from None

    # ---- connections that nobody uses --------------------------------------------------------------------------------
    def _unused(self, login: Login) -> AsyncConnection | None:
        for number in range(len(self._idle) - 1, -1, -1):
            if self._idle[number].login is login:
                conn = self._idle.pop(number).conn
                if not conn.closed:
                    return conn
        return None

    async def _keep(self, conn: AsyncConnection, login: Login) -> None:
        settled = not conn.closed and not conn.broken and conn.info.transaction_status == TransactionStatus.IDLE
        if self._closed or not settled or len(self._idle) >= self._budget.connections:
            await conn.close()
            return
        self._idle.append(_Idle(conn, login, self._clock()))
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.get_running_loop().create_task(self._tidy(), name="idle connections")

    async def _tidy(self) -> None:
        """Close what nobody has used for a while, and end when nothing is left."""
        while self._idle:
            oldest = min(one.since for one in self._idle)
            await asyncio.sleep(max(0.05, oldest + self._budget.idle_seconds - self._clock()))
            old = [one for one in self._idle if one.since + self._budget.idle_seconds <= self._clock()]
            self._idle = [one for one in self._idle if one not in old]
            for one in old:
                with suppress(errors.Error):
                    await one.conn.close()

    def _new_breaker(self) -> Breaker:
        budget = self._budget
        return Breaker(
            clock=self._clock,
            jitter=self._jitter,
            first_seconds=budget.first_pause_seconds,
            longest_seconds=budget.longest_pause_seconds,
            trial_seconds=budget.connect_seconds + budget.answer_seconds,
        )


async def _run(conn: AsyncConnection, statement: Statement[T], blocks: Blocks) -> T:
    """Behind a pooler the settings come first in a transaction of their own."""
    if not is_pooled(conn):
        return await arun(conn, statement)
    async with conn.transaction():
        await conn.execute(blocks["session.set_local"], settings_of(SESSION))
        return await arun(conn, statement)
