"""A real PgBouncer in transaction mode before a test's database.

Taken from the machine, or installed by its package manager where that is possible; else the test is skipped with the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tailrace_cli.embedded.binaries import server_account
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

POOL_SIZE = 2
SETTINGS: Mapping[str, str] = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "trust",
    "pool_mode": "transaction",
    "default_pool_size": str(POOL_SIZE),
    "max_client_conn": "200",
    "server_tls_sslmode": "disable",
    "ignore_startup_parameters": "extra_float_digits",
}


@cache
def program() -> str | None:
    """Return the program, installed if need be; None where there is none. `why_not` then says why."""
    found = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        # The run level keeps the package's own service from starting.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", "pgbouncer"]):
            done = subprocess.run(["apt-get", "-q", *command], check=False, capture_output=True, text=True, env=environment)
        _reason.append((done.stderr or done.stdout).strip()[-300:])
        found = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    return found


_reason: list[str] = []


def why_not() -> str:
    """Return why there is no PgBouncer."""
    return (
        f"apt-get install pgbouncer: {_reason[-1]}" if _reason else "pgbouncer is not installed, and this user cannot install it"
    )


class PgBouncer:
    """One running pooler; `dsn` is the address of the database through it."""

    def __init__(self, database: RigDatabase, folder: Path, settings: Mapping[str, str]) -> None:
        """Start it and wait until it answers.

        Args:
            database: What it pools.
            folder: For its files; its account must be able to read them.
            settings: More settings, or others.
        """
        found = program()
        if found is None:
            pytest.skip(f"PgBouncer: {why_not()}")
        target = conninfo_to_dict(database.dsn)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._folder = folder
        self._write(target, {**SETTINGS, "listen_port": str(self.port), **settings})
        account = server_account()
        self._log = (folder / "output").open("wb")
        self._process = subprocess.Popen(
            [found, str(folder / "pgbouncer.ini")], stdout=self._log, stderr=self._log, **account.process_options()
        )
        self.dsn = make_conninfo(
            database.dsn, host="127.0.0.1", port=str(self.port), password="", sslmode="disable", gssencmode="disable"
        )
        eventually(self._answers, 15, what="PgBouncer")

    @property
    def version(self) -> tuple[int, int]:
        """Its major and minor version."""
        said = subprocess.run([str(program()), "--version"], check=True, capture_output=True, text=True).stdout
        found = re.search(r"(\d+)\.(\d+)", said)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def output(self) -> str:
        """What it has logged."""
        return (self._folder / "output").read_text(errors="replace")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(10)
        self._log.close()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.output
        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError as error:
            raise AssertionError(str(error)) from error
        return True

    def _write(self, target: Mapping[str, Any], settings: Mapping[str, str]) -> None:
        entry = f"host={target['host']} port={target['port']} user={target['user']} password={target['password']}"
        lines = ["[databases]", f"{target['dbname']} = {entry}", "[pgbouncer]"]
        users = self._folder / "users.txt"
        users.write_text(f'"{target["user"]}" "{target["password"]}"\n')
        lines += [f"{name} = {value}" for name, value in {**settings, "auth_file": str(users)}.items()]
        (self._folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        self._folder.chmod(0o755)


class StartPooler(Protocol):
    """The fixture `pgbouncer`."""

    def __call__(self, database: RigDatabase, **settings: str) -> PgBouncer:
        """Start one before a database, with other settings where given; skips the test where there is no PgBouncer."""


@pytest.fixture
def pgbouncer() -> Iterator[StartPooler]:
    """Start poolers in transaction mode with a server pool of 2; ended after the test."""
    started: list[PgBouncer] = []
    folders: list[Path] = []

    def start(database: RigDatabase, **settings: str) -> PgBouncer:
        folders.append(Path(tempfile.mkdtemp(prefix="tailrace-pgbouncer-")))
        started.append(PgBouncer(database, folders[-1], settings))
        return started[-1]

    yield start
    for one in started:
        one.close()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
