"""Where `tailrace dev` works: the database that somebody named, or an embedded PostgreSQL that keeps its data.

One program at a time uses a state folder: a second start would end the first one's server. `session` gets the opened
database and what its workers are told about it.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tailrace.db import Database
from tailrace.db.migrate import migrate, pending
from tailrace.errors import InvalidOption, SchemaTooOld
from tailrace.settings import ProducerSettings
from tailrace_cli.dev.plan import Plan
from tailrace_cli.embedded import EmbeddedPostgres, default_state_dir

__all__ = ["URL_FILE", "Place", "open_place", "prepare", "schema_of"]

URL_FILE = "database-url"
"""The file in the state folder that holds the connection string while the server runs."""

_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Place:
    """A database that is there.

    Attributes:
        database: The way to it.
        variables: What workers are told, as TAILRACE_… variables; holds the connection string.
        url_file: Where the connection string of an embedded server stands; None for a database that somebody named.
    """

    database: Database
    variables: Mapping[str, str]
    url_file: Path | None = None


@contextmanager
def open_place(
    flags: Mapping[str, Any],
    *,
    local: Mapping[str, str],
    state_dir: Path | None,
    port: int | None,
    folder: Path,
    say: Callable[[str], None],
) -> Iterator[Place]:
    """Find the database, or start one, and stop what was started at the end.

    Args:
        flags: database_url and schema_name as flags gave them, or None.
        local: The `.env`; its TAILRACE_DATABASE_URL counts where environment and flags say none.
        state_dir: Where an embedded server keeps its data; None for a folder that belongs to `folder`.
        port: Its port; None for any free one.
        folder: Where the JobQueue file is.
        say: Tells people something.

    Raises:
        InvalidOption: The port is taken, or somebody else uses the state folder.
        TailraceError: The server does not start; the message says why.
    """
    settings = ProducerSettings.load(flags)
    if settings.database_url is None and settings.database_url_file is None and local.get("TAILRACE_DATABASE_URL"):
        settings = ProducerSettings.load({**flags, "database_url": local["TAILRACE_DATABASE_URL"]})
    if settings.database_url is not None or settings.database_url_file is not None:
        _refuse_server_options(state_dir, port)
        database = settings.database("tailrace")
        say(f"works in the database at {database.address}")
        yield Place(database, _told(settings))
        return
    state = (state_dir or default_state_dir("dev") / _name_of(folder)).absolute()
    with _alone(state), _free(port), _server(state, port, say) as url:
        settings = ProducerSettings.load({**flags, "database_url": url})
        url_file = state / URL_FILE
        _write_private(url_file, url)
        try:
            yield Place(settings.database("tailrace"), _told(settings), url_file)
        finally:
            url_file.unlink(missing_ok=True)


def prepare(place: Place, plans: list[Plan], say: Callable[[str], None]) -> None:
    """Bring the schema to what this release needs.

    Args:
        place: The database.
        plans: One whose migrationPolicy is Manual keeps us from it.
        say: Tells people something.

    Raises:
        SchemaTooOld: Something is to be migrated and a queue wants that done by hand.
        TailraceError: It cannot be migrated.
    """
    manual = any(p.resource.spec.database is not None and p.resource.spec.database.migration_policy == "Manual" for p in plans)
    if manual and pending(place.database):
        raise SchemaTooOld("the schema is older than this release, and migrationPolicy is Manual", hint="run: tailrace migrate")
    if not manual and (applied := migrate(place.database)):
        say(f"migrated the schema: {len(applied)} steps")


def schema_of(plans: list[Plan]) -> str | None:
    """Return the schema that the resources name, None where they leave it open.

    Args:
        plans: All plans.

    Raises:
        InvalidOption: They name several.
    """
    named = {p.resource.spec.database.schema_name for p in plans if p.resource.spec.database is not None}
    if len(named) > 1:
        raise InvalidOption(
            f"differs: {', '.join(sorted(named))}", field="spec.database.schemaName", hint="run one `tailrace dev` for each"
        )
    return next(iter(named), None)


def _told(settings: ProducerSettings) -> dict[str, str]:
    told = {"TAILRACE_SCHEMA": settings.schema_name}
    if settings.database_url_file is not None:
        told["TAILRACE_DATABASE_URL_FILE"] = str(settings.database_url_file.absolute())
    elif settings.database_url is not None:
        told["TAILRACE_DATABASE_URL"] = settings.database_url.get_secret_value()
    if settings.direct_database_url is not None:
        told["TAILRACE_DIRECT_DATABASE_URL"] = settings.direct_database_url.get_secret_value()
    return told


def _refuse_server_options(state_dir: Path | None, port: int | None) -> None:
    for name, value in (("state-dir", state_dir), ("port", port)):
        if value is not None:
            raise InvalidOption(
                "is for the embedded PostgreSQL, but a database was named", field=name, hint="leave one of the two out"
            )


def _name_of(folder: Path) -> str:
    """A project's own folder, the same at each start."""
    path = folder.resolve()
    return f"{path.name[:40] or 'root'}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


@contextmanager
def _server(state: Path, port: int | None, say: Callable[[str], None]) -> Iterator[str]:
    server = EmbeddedPostgres(state, port=port)
    say(f"starts PostgreSQL {server.version[0]}.{server.version[1]} in {state}")
    with server:
        yield server.dsn


@contextmanager
def _free(port: int | None) -> Iterator[None]:
    if port is not None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError as error:
                said = error.strerror or str(error)
                raise InvalidOption(
                    f"{port} cannot be had on {_HOST}: {said}",
                    field="port",
                    hint="give another one, or leave it out for a free one",
                ) from None
    yield


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Hold the state folder; the kernel gives it back whatever becomes of us."""
    import fcntl  # not on Windows, where the server does not run either

    try:
        state.mkdir(parents=True, exist_ok=True)
        lock: IO[str] = (state / "dev.lock").open("a+", encoding="ascii")
    except OSError as error:
        raise InvalidOption(f"{state} cannot be used: {error.strerror}", field="state-dir", hint="choose another one") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise InvalidOption(
                f"{state} is in use by another `tailrace dev` (process {holder})",
                field="state-dir",
                hint="stop that one, or give another folder",
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text + "\n")
