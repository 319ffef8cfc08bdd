"""A private PostgreSQL server for one benchmark run.

The product's own launcher, with durable commits and a fixed memory and WAL size, so that two runs
on one machine can be compared. Thrown away afterwards. `procfs` reads its CPU time.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

from tailrace_cli.embedded import EmbeddedPostgres

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "min_wal_size": "8GB",  # the log has its files, as after some hours of work; a new one is zeroed first, and commits wait
    "checkpoint_timeout": "1h",  # between stretches everything is written anyway; a timed one would fall into some of them
    "max_connections": "200",
}
"""What the measured server is started with; everything else is PostgreSQL's default."""


class Server:
    """A PostgreSQL server that lives as long as the `with` block."""

    def __init__(self, *, parent: Path | None = None) -> None:
        """Choose where the data goes.

        Args:
            parent: folder on the disk to be measured; a new folder is made in it. Default is the system's temporary one.
        """
        self._parent = parent
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir=self._parent))
            Path(folder).chmod(0o711)  # the server may run as another user than we
            self._postgres = EmbeddedPostgres(Path(folder) / "postgres", settings=SETTINGS)
            stack.enter_context(self._postgres)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._postgres.stop("immediate")  # the data is thrown away: no last checkpoint
        self._exit.close()

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        return self._postgres.pid

    @property
    def version(self) -> str:
        """The server's version, as in ``18.6``."""
        return ".".join(map(str, self._postgres.version))

    def dsn(self, database: str) -> str:
        """Return the connection string of a database, over loopback TCP."""
        return self._postgres.dsn_of(database)

    def connect(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        """Open an autocommit connection for set-up and control."""
        return psycopg.connect(self.dsn(database), autocommit=True)

    def recreate(self, database: str, *, template: str = "template1") -> None:
        """Drop `database` if it is there and create it from `template`."""
        name, source = sql.Identifier(database), sql.Identifier(template)
        self.drop(database)
        with self.connect("postgres") as connection:
            connection.execute(sql.SQL("create database {} template {}").format(name, source))

    def drop(self, database: str) -> None:
        """Drop `database` if it is there, whoever uses it."""
        with self.connect("postgres") as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database)))
