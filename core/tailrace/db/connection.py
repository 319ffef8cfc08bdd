"""Where the database is, and connections to it.

One object holds the secret, hands out sync and async connections and pools, and knows the schema and its SQL blocks.
`addresses` builds the connection strings, `pools` keeps the producers' pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import DatabaseError, IsolationLevel, OperationalError
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from pydantic import SecretStr

from tailrace.db import addresses, pools
from tailrace.db.refusals import translated
from tailrace.db.statements import Blocks, quote_schema
from tailrace.errors import DatabaseUnavailable, TailraceError

__all__ = [
    "AsyncConnection",
    "AsyncConnectionPool",
    "Connection",
    "ConnectionPool",
    "Database",
    "DatabaseError",
    "OperationalError",
]

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]

# PgBouncer's answer to a start-up parameter that it does not pass on (SQLSTATE 08P01).
_REFUSED_BY_POOLER: Final = "unsupported startup parameter"
_LENT: Final = "session.lent"


class Database:
    """Where a Tailrace database is; opening one connects nothing.

    Attributes:
        schema: The bare name of the schema.
        quoted: The same as a quoted identifier.
        blocks: The SQL blocks rendered for it.
        application_name: The first word of the sessions' application_name.
    """

    def __init__(
        self,
        *,
        url: SecretStr | None = None,
        url_file: Path | None = None,
        direct_url: SecretStr | None = None,
        schema: str = "tailrace",
        application_name: str = "tailrace",
    ) -> None:
        """Remember the place.

        Args:
            url: A connection string; None leaves all to libpq's PG* variables and service file.
            url_file: A file that holds the connection string, read again at each connect; wins over `url`.
            direct_url: Where to connect past a transaction pooler: for migrations, LISTEN and heartbeats.
            schema: The schema of Tailrace's objects, 1 to 63 bytes.
            application_name: The first word of the sessions' application_name.

        Raises:
            InvalidOption: The schema's name cannot be one.
        """
        self._url = url
        self._url_file = url_file
        self._direct_url = direct_url
        self.schema = schema
        self.quoted = quote_schema(schema)
        self.blocks = Blocks(schema)
        self.application_name = application_name
        self._pools = pools.Pools()

    def __repr__(self) -> str:
        return f"Database(schema={self.schema!r})"

    # ---- where -------------------------------------------------------------------------------------------------------
    def use(self, url: SecretStr) -> None:
        """Take another connection string from the next connect on, as after a rotation of the password.

        Args:
            url: It leads to the same database.
        """
        self._url = url

    def conninfo(self, *, direct: bool = False) -> str:
        """Return the connection string as it was given, with its secret.

        Args:
            direct: Take the one past the pooler, where there is one.

        Raises:
            DatabaseUnavailable: The file that should hold it cannot be read or is empty.
        """
        if direct and self._direct_url is not None:
            return self._direct_url.get_secret_value()
        if self._url_file is not None:
            return _read_url(self._url_file)
        return "" if self._url is None else self._url.get_secret_value()

    @property
    def knows_direct(self) -> bool:
        """Whether a way past a pooler was given; what answers there is taken for the server itself."""
        return self._direct_url is not None

    @property
    def address(self) -> str:
        """host:port/dbname for messages; never a user or a password."""
        try:
            return addresses.shown(addresses.parse(self.conninfo()))
        except TailraceError:
            return "(address unreadable)"

    def _complete(self, *, direct: bool, role: str, options: Mapping[str, str] | None, session: bool) -> str:
        parameters = addresses.parse(self.conninfo(direct=direct))
        if self._url_file is not None and not (direct and self.knows_direct):
            parameters = addresses.beside(parameters, self._url_file.parent)
        return addresses.complete(
            parameters,
            application_name=f"{self.application_name} {role}",
            options=options,
            session=session,
        )

    # ---- one connection ----------------------------------------------------------------------------------------------
    def connect(
        self, *, autocommit: bool = True, direct: bool = False, options: Mapping[str, str] | None = None, role: str = "work"
    ) -> Connection:
        """Open a connection: READ COMMITTED, READ WRITE, time zone UTC, UTF-8.

        Behind a pooler the session has none of `options` and prepares no statement: see `pooled`, whose `settled` gives a
        transaction its settings. A pooler is known by its refusal of start-up settings, or by what it does to them.

        Args:
            autocommit: Whether each statement commits by itself.
            direct: Go past the pooler, where a direct URL is set.
            options: More settings of the session, such as {"lock_timeout": "500ms"}.
            role: The second word of the application_name: what the connection is for.

        Raises:
            DatabaseUnavailable: No connection within the connect timeout (10 s unless the URL says otherwise).
            InvalidOption: The connection string is none.
        """
        with translated(self.address):
            try:
                info = self._complete(direct=direct, role=role, options=options, session=True)
                conn: Connection = psycopg.Connection.connect(info, autocommit=True)
            except OperationalError as exc:
                if _REFUSED_BY_POOLER not in str(exc):
                    raise
                info = self._complete(direct=direct, role=role, options=None, session=False)
                conn = psycopg.Connection.connect(info, autocommit=True, prepare_threshold=None)
            try:
                if self._may_be_lent(conn, direct=direct):
                    asked = conn.execute(self.blocks[_LENT], {"pid": conn.info.backend_pid}, prepare=False)
                    if asked.fetchone() != (False,):
                        conn.prepare_threshold = None
                conn.isolation_level = IsolationLevel.READ_COMMITTED
                conn.read_only = False
                conn.autocommit = autocommit
            except BaseException:
                conn.close()
                raise
            return conn

    def _may_be_lent(self, conn: Connection | AsyncConnection, *, direct: bool) -> bool:
        """Whether to ask: a pooler that refused is known, and the direct way is taken for what it is called."""
        return conn.prepare_threshold is not None and not (direct and self.knows_direct)

    async def aconnect(
        self, *, autocommit: bool = True, direct: bool = False, options: Mapping[str, str] | None = None, role: str = "work"
    ) -> AsyncConnection:
        """Open an async connection; arguments and errors as `connect`.

        Args:
            autocommit: Whether each statement commits by itself.
            direct: Go past the pooler, where a direct URL is set.
            options: More settings of the session.
            role: The second word of the application_name.

        Raises:
            DatabaseUnavailable: No connection within the connect timeout.
            InvalidOption: The connection string is none.
        """
        async with translated(self.address):
            try:
                info = self._complete(direct=direct, role=role, options=options, session=True)
                conn: AsyncConnection = await psycopg.AsyncConnection.connect(info, autocommit=True)
            except OperationalError as exc:
                if _REFUSED_BY_POOLER not in str(exc):
                    raise
                info = self._complete(direct=direct, role=role, options=None, session=False)
                conn = await psycopg.AsyncConnection.connect(info, autocommit=True, prepare_threshold=None)
            try:
                if self._may_be_lent(conn, direct=direct):
                    asked = await conn.execute(self.blocks[_LENT], {"pid": conn.info.backend_pid}, prepare=False)
                    if await asked.fetchone() != (False,):
                        conn.prepare_threshold = None
                await conn.set_isolation_level(IsolationLevel.READ_COMMITTED)
                await conn.set_read_only(False)
                await conn.set_autocommit(autocommit)
            except BaseException:
                await conn.close()
                raise
            return conn

    # ---- pools of producers ------------------------------------------------------------------------------------------
    def pool(self) -> ConnectionPool[Connection]:
        """Return this process's pool, opened at first use; its connections autocommit."""
        return self._pools.sync_pool(lambda: self.connect(role="enqueue"))

    async def apool(self) -> AsyncConnectionPool[AsyncConnection]:
        """Return the running loop's pool, opened at first use; its connections autocommit."""
        return await self._pools.async_pool(lambda: self.aconnect(role="enqueue"))

    def close(self) -> None:
        """Close this process's sync pool, if one is open."""
        self._pools.close()

    async def aclose(self) -> None:
        """Close the running loop's pool, if one is open."""
        await self._pools.aclose()


def _read_url(path: Path) -> str:
    hint = "Check that the secret is mounted and readable"
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise DatabaseUnavailable(f"{path} cannot be read: {exc}", field="database_url_file", hint=hint) from exc
    if not text:
        raise DatabaseUnavailable(f"{path} is empty", field="database_url_file", hint=hint)
    return text
