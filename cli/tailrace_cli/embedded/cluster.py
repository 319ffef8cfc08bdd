"""The state folder of an embedded server: its data, its password, its socket.

Created under the account that runs the server, which for root is another one; `server` starts what is here.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

from tailrace_cli.embedded.binaries import Account, EmbeddedPostgresError

USER = "tailrace"
_SOCKET_PATH_BYTES = 103  # what macOS allows; Linux has a few more


def default_state_dir(name: str) -> Path:
    """Return the folder where a server of this name keeps its data between runs.

    Below `XDG_STATE_HOME` or `~/.local/state` for an ordinary user; below `/var/tmp` for root, whose server runs as
    another user that cannot enter root's home.

    Args:
        name: A word for the purpose, such as "demo".
    """
    if os.geteuid() == 0:
        return Path("/var/tmp/tailrace-0") / name
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "tailrace" / name


class Cluster:
    """One state folder."""

    def __init__(self, state: Path, account: Account, *, durable: bool) -> None:
        """Take a folder that may not exist yet.

        Args:
            state: The state folder, absolute.
            account: Who runs the server.
            durable: Whether files are synced to the disk when the data is created.
        """
        self.state = state
        self.data = state / "data"
        self.log = state / "server.log"
        self._account = account
        self._durable = durable
        self._sockets: Path | None = None

    def password(self) -> str:
        """Return the password of the only user.

        Raises:
            EmbeddedPostgresError: The data was never created.
        """
        try:
            return (self.state / "password").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise EmbeddedPostgresError(f"there is no server in {self.state} yet", remedy="Start it first") from None

    def create(self, binaries: Path) -> None:
        """Create the data unless it is there.

        Raises:
            EmbeddedPostgresError: The server's account cannot reach the folder, or initdb failed.
        """
        if self.data.exists():
            return
        self.state.mkdir(parents=True, exist_ok=True)
        self.state.chmod(0o711)  # the server's account passes through; only we list it
        made = self.state / "data.new"  # renamed when it is whole, so that a cut-off creation leaves nothing half done
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(mode=0o700)
        self._account.own(made)
        self._require_reach(made)
        self._initdb(binaries, made)
        made.rename(self.data)

    def socket_dir(self, port: int) -> Path:
        """Return the folder of the socket: in the state folder, or below /tmp where that makes too long a path."""
        if self._sockets is None:
            folder = self.state / "socket"
            if len(os.fsencode(folder / f".s.PGSQL.{port}")) > _SOCKET_PATH_BYTES:
                folder = Path(tempfile.mkdtemp(prefix="tailrace-", dir="/tmp"))
            folder.mkdir(mode=0o700, exist_ok=True)
            self._account.own(folder)
            self._sockets = folder
        return self._sockets

    def remove_socket_dir(self) -> None:
        """Remove a socket folder that lies outside the state folder."""
        if self._sockets is not None and self._sockets.parent != self.state:
            shutil.rmtree(self._sockets, ignore_errors=True)
        self._sockets = None

    def pid_file(self) -> tuple[str, str]:
        """Return process id and status of the running server from one reading of its pid file; empty without one."""
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "", ""
        lines += [""] * 8
        return lines[0].strip(), lines[7].strip()

    def _require_reach(self, folder: Path) -> None:
        check = ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)]
        if subprocess.run(check, check=False, capture_output=True, **self._account.process_options()).returncode != 0:
            raise EmbeddedPostgresError(
                f"user {self._account.name}, who runs the server for root, cannot reach {self.state}",
                field="state_dir",
                remedy="Choose a folder that every user may enter, such as one below /var/tmp",
            )

    def _initdb(self, binaries: Path, data: Path) -> None:
        password = secrets.token_hex(16)
        _write_private(self.state / "password", password)
        handed_over = self.state / "password.initdb"  # a pipe would not be readable after the switch of user
        _write_private(handed_over, password)
        self._account.own(handed_over)
        command = [str(binaries / "initdb"), "-D", str(data), "-U", USER, "-A", "scram-sha-256", f"--pwfile={handed_over}"]
        command += ["-E", "UTF8", "--no-locale", *([] if self._durable else ["--no-sync"])]
        try:
            done = subprocess.run(command, check=False, capture_output=True, env=environment(), **self._account.process_options())
        finally:
            handed_over.unlink()
        if done.returncode != 0:
            shutil.rmtree(data, ignore_errors=True)
            said = done.stderr.decode(errors="replace").strip()
            raise EmbeddedPostgresError(f"initdb failed: {said}", remedy="Correct the cause and start again")


def environment() -> dict[str, str]:
    """Return our environment without what would turn the server to another database or language."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))} | {"LC_ALL": "C"}


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
