"""PostgreSQL servers and fresh databases for the tests.

One server for each test process, one database for each test, cloned from a migrated template; a test that breaks its
server asks for `private_server`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tailrace_cli.embedded import EmbeddedPostgres
from tests.rig.waiting import eventually

Connection = psycopg.Connection[tuple[Any, ...]]

SETTINGS = {"max_connections": "200", "shared_buffers": "64MB", "max_wal_size": "512MB", "log_lock_waits": "on"}
_PREFIX = "tailrace-test-"


@dataclass(frozen=True)
class RigDatabase:
    """A database that lives for one test."""

    server: Server
    name: str

    @property
    def dsn(self) -> str:
        """Its connection string, password included."""
        return self.server.dsn_of(self.name)

    def connect(self, *, autocommit: bool = True, application_name: str = "test", **options: Any) -> Connection:
        """Open a connection; the caller closes it (`with database.connect() as conn`)."""
        return psycopg.connect(self.dsn, autocommit=autocommit, application_name=application_name, **options)

    def query(self, text: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, commit, and return its rows."""
        with self.connect() as conn:
            cursor = conn.execute(text, parameters)
            return cursor.fetchall() if cursor.description else []

    def value(self, text: str, parameters: Any = None) -> Any:
        """Return the first column of the first row of one statement."""
        return self.query(text, parameters)[0][0]

    def backends(self, application: str = "tailrace%") -> list[int]:
        """Return the process ids of the sessions whose application_name is like the pattern."""
        found = self.query(
            "select pid from pg_stat_activity where datname = current_database() and application_name like %s", [application]
        )
        return [pid for (pid,) in found]

    def terminate_backends(self, application: str = "tailrace%") -> int:
        """End the sessions whose application_name is like the pattern, and return how many there were."""
        pids = self.backends(application)
        self.query("select pg_terminate_backend(pid) from unnest(%s::int[]) as pid", [pids])
        return len(pids)


class Server:
    """A server that databases can be made on; an embedded one can also be stopped, crashed and started."""

    def __init__(self, dsn: str, postgres: EmbeddedPostgres | None = None) -> None:
        """Take a running server.

        Args:
            dsn: An address with the right to create databases.
            postgres: Its launcher, if it is ours.
        """
        self.dsn = dsn
        self._postgres = postgres
        self._template: str | None = None

    @property
    def postgres(self) -> EmbeddedPostgres:
        """The launcher: start, stop, restart, kill, port, log_file."""
        assert self._postgres is not None, "this server is not ours to stop; ask for private_server"
        return self._postgres

    def dsn_of(self, database: str) -> str:
        """Return the address of a database of this server."""
        if self._postgres is not None:
            return self._postgres.dsn_of(database)
        return make_conninfo(self.dsn, dbname=database)

    def create(self, template: str = "template0") -> RigDatabase:
        """Create a database, empty unless a template is named."""
        database = RigDatabase(self, f"t_{secrets.token_hex(6)}")
        with self._admin() as conn:
            conn.execute(
                sql.SQL("create database {} template {} encoding 'UTF8'").format(
                    sql.Identifier(database.name), sql.Identifier(template)
                )
            )
        return database

    def migrated(self) -> RigDatabase:
        """Create a database with the current schema `tailrace`, by cloning one that was migrated once."""
        if self._template is None:
            from tailrace.db.migrate import migrate  # late: the rig's own tests need no schema

            template = self.create()
            try:
                migrate(template.dsn, schema="tailrace")
            except BaseException:
                self.drop(template)
                raise
            self._template = template.name
        return self.create(self._template)

    def drop(self, database: RigDatabase) -> None:
        """Drop a database, ending the sessions that are still in it."""
        with self._admin() as conn:
            conn.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database.name)))

    def close(self) -> None:
        """Drop the template."""
        if self._template is not None:
            self.drop(RigDatabase(self, self._template))
            self._template = None

    def _admin(self) -> Connection:
        return psycopg.connect(self.dsn, autocommit=True, application_name="rig")


# ---- fixtures --------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """The server of this test process: TAILRACE_TEST_DSN, or an embedded one as `--pg` says."""
    given = os.environ.get("TAILRACE_TEST_DSN")
    if given:
        server = Server(given)
        yield server
        server.close()
        return
    _end_left_over_servers()
    yield from own_server(pytestconfig.getoption("--pg"))


@pytest.fixture
def private_server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A server for one test, which may stop, kill and restart it by `.postgres`; `.migrated()` makes a database on it."""
    yield from own_server(pytestconfig.getoption("--pg"))


@pytest.fixture
def database(server: Server) -> Iterator[RigDatabase]:
    """A fresh database with the current schema `tailrace`."""
    made = server.migrated()
    yield made
    server.drop(made)


@pytest.fixture
def empty_database(server: Server) -> Iterator[RigDatabase]:
    """A fresh database without anything in it."""
    made = server.create()
    yield made
    server.drop(made)


@pytest.fixture
def dsn(database: RigDatabase) -> str:
    """The connection string of `database`."""
    return database.dsn


@pytest.fixture
def conn(database: RigDatabase) -> Iterator[Connection]:
    """An autocommit connection to `database`."""
    with database.connect() as opened:
        yield opened


def binaries_of(choice: str) -> Path | None:
    """Return the bin folder that `--pg` means; None for the launcher's own choice."""
    if choice == "embedded":
        return None
    return Path(f"/usr/lib/postgresql/{choice}/bin") if choice.isdigit() else Path(choice)


def own_server(choice: str) -> Iterator[Server]:
    """Start a server of the PostgreSQL that `--pg` would mean, and end it after the yield."""
    state = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    postgres = EmbeddedPostgres(state, binaries=binaries_of(choice), settings=SETTINGS, fsync=False)
    try:
        postgres.start()
        yield Server(postgres.dsn, postgres)
    finally:
        postgres.stop("immediate")
        shutil.rmtree(state, ignore_errors=True)


def _end_left_over_servers() -> None:
    """End the servers of test runs that were killed, known by the process id in the name of their folder."""
    for state in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = state.name.removeprefix(_PREFIX).split("-")[0]
        if not owner.isdigit() or Path(f"/proc/{owner}").exists() or not Path("/proc").exists():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):  # another process of this run has just ended it
            number = int((state / "data" / "postmaster.pid").read_text().split()[0])
            command = Path(f"/proc/{number}/cmdline")
            if str(state) in command.read_text():
                os.kill(number, signal.SIGQUIT)
                _wait_for_end(command)
        shutil.rmtree(state, ignore_errors=True)


def _wait_for_end(command: Path) -> None:
    eventually(lambda: not command.exists(), what="the end of a left-over server")
