"""Migrations: apply what is missing, one migrator at a time, each step in its own transaction.

A step gives up its wait for locks after two seconds and tries again, so that it never queues an application behind it; one
that repairs rows before it makes a unique index is tried again too when rows of the wrong kind came in meanwhile.
`migration_files` reads the steps; workers and the command line call `check` and `migrate`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg import sql
from pydantic import SecretStr

from tailrace.db.connection import Connection, Database
from tailrace.db.migration_files import MIGRATIONS, Migration
from tailrace.db.pooled import is_pooled
from tailrace.db.refusals import translate
from tailrace.db.statements import Blocks, Statement, run
from tailrace.db.versions import REQUIRED, Applied, acheck, applied_migrations, check, find_table_statement, schema_version
from tailrace.errors import Conflict, DatabaseUnavailable, InvalidOption, PrivilegeMissing, TailraceError
from tailrace.names.events import Event

__all__ = ["REQUIRED", "Applied", "acheck", "check", "migrate", "pending", "printed", "schema_version"]

_LOCK_TIMEOUT: Final = "2s"
_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0
_log = logging.getLogger("tailrace.migrate")


def migrate(
    database: Database | str,
    *,
    schema: str = "tailrace",
    until: int | None = None,
    migrations: Sequence[Migration] = MIGRATIONS,
    wait_seconds: float = 300.0,
) -> list[Applied]:
    """Apply what is missing, in order, and return it; an empty list when nothing was.

    Any number may run at once: one works, the others wait for it. An interrupted run is taken up by the next.

    Args:
        database: Where; a string is a connection string. Connects past the pooler where a direct URL is set.
        schema: The schema when `database` is a string.
        until: The last version to apply; None for all.
        migrations: The steps to choose from.
        wait_seconds: How long to wait for another migrator, and for the locks of each step.

    Raises:
        Conflict: An applied file differs from this release's, or a lock was not to be had in time.
        DatabaseUnavailable: No connection.
        InvalidOption: The address is that of a pooler, and no direct one is known.
        TailraceError: A step failed; nothing of it was kept.
    """
    place = database if isinstance(database, Database) else Database(url=SecretStr(database), schema=schema)
    with place.connect(direct=True, role="migrate") as conn:
        if not _missing(conn, place, until=until, migrations=migrations):
            return []
        if is_pooled(conn) and not place.knows_direct:
            raise InvalidOption(
                f"{place.address} is a pooler, which cannot hold the migrator's lock",
                field="direct_database_url",
                hint="Set TAILRACE_DIRECT_DATABASE_URL to the address of the server itself",
            )
        _become_the_only_one(conn, place, deadline=time.monotonic() + wait_seconds)
        _prepare(conn, place)
        todo = _missing(conn, place, until=until, migrations=migrations)
        return [_apply(conn, place, step, deadline=time.monotonic() + wait_seconds) for step in todo]


def pending(database: Database) -> list[Migration]:
    """Return the migrations of this release that the database lacks, in order; changes nothing.

    Args:
        database: Where.

    Raises:
        Conflict: An applied file differs from this release's.
        DatabaseUnavailable: No connection.
    """
    with database.connect(direct=True, role="migrate") as conn:
        return _missing(conn, database, until=None, migrations=MIGRATIONS)


def printed(schema: str = "tailrace", *, migrations: Sequence[Migration] = MIGRATIONS) -> str:
    """Return all that `migrate` would run on an empty database, for psql.

    Args:
        schema: The bare name of the schema.
        migrations: The steps to print.
    """
    blocks = Blocks(schema)
    head = [_create_schema(schema).as_string(None) + ";", blocks["migrate.create_table"].replace("%%", "%") + ";"]
    return "\n\n".join(head + [_printed_step(step, schema) for step in migrations]) + "\n"


# ---- the steps of migrate --------------------------------------------------------------------------------------------
def _missing(conn: Connection, place: Database, *, until: int | None, migrations: Sequence[Migration]) -> list[Migration]:
    applied = {one.version: one for one in applied_migrations(conn, place.schema)}
    for step in migrations:
        known = applied.get(step.version)
        if known is not None and known.checksum != step.checksum:
            raise Conflict(
                f"migration {step.label}: its text differs from what was applied at {known.applied_at:%Y-%m-%d %H:%M} UTC",
                hint="Use the release that migrated this schema, or a newer one; never edit an applied migration",
            )
    return [step for step in migrations if step.version not in applied and (until is None or step.version <= until)]


def _become_the_only_one(conn: Connection, place: Database, *, deadline: float) -> None:
    statement = Statement(place.blocks["migrate.try_lock"], {"schema": place.schema}, lambda rows: bool(rows[0][0]))
    told = False
    while not run(conn, statement):
        if not told:
            _log.info("another migrator works in schema %s; waiting", place.schema, extra={"event": Event.MIGRATION_LOCKED})
            told = True
        if time.monotonic() > deadline:
            raise Conflict(
                f"migration: another migrator has been at work in schema {place.schema}",
                hint="Wait for it, or end its session: application_name 'tailrace migrate' in pg_stat_activity",
            )
        time.sleep(_PAUSE_SECONDS * random.uniform(0.5, 1.5))


def _prepare(conn: Connection, place: Database) -> None:
    found = run(conn, find_table_statement(place.blocks, place.schema))
    if found.table:
        return
    try:
        with conn.transaction():
            if not found.schema:
                conn.execute(_create_schema(place.schema))
            conn.execute(place.blocks["migrate.create_table"], {})
    except psycopg.errors.InsufficientPrivilege as exc:
        raise PrivilegeMissing(
            f"migration: {exc.diag.message_primary}",
            hint=f"Migrate as the owner of the database, or let its owner run: create schema {place.quoted} authorization …",
        ) from exc


def _apply(conn: Connection, place: Database, step: Migration, *, deadline: float) -> Applied:
    attempt = 0
    while True:
        attempt += 1
        try:
            done = _apply_concurrently(conn, place, step) if step.is_concurrent else _apply_at_once(conn, place, step)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation) as exc:
            if isinstance(exc, psycopg.errors.UniqueViolation) and not step.repairs:
                raise _failed(exc, place, step) from exc
            pause = min(_PAUSE_SECONDS * attempt, _LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.5)
            if time.monotonic() + pause > deadline:
                raise Conflict(
                    f"migration {step.label}: {exc.diag.message_primary}, {attempt} times",
                    hint="End the transaction that holds the lock; `tailrace doctor` shows the oldest",
                ) from exc
            _log.warning("migration %s waits for locks", step.label, extra=_fields(Event.MIGRATION_WAITING, place, step, attempt))
            time.sleep(pause)
        except psycopg.Error as exc:
            raise _failed(exc, place, step) from exc
        else:
            _log.info("migration %s applied", step.label, extra=_fields(Event.MIGRATION_APPLIED, place, step, attempt))
            return done


def _apply_at_once(conn: Connection, place: Database, step: Migration) -> Applied:
    with conn.transaction():
        conn.execute(place.blocks["migrate.settle_session"], {"lock_timeout": _LOCK_TIMEOUT})
        conn.execute(step.rendered(place.schema).encode())  # bytes: a migration has no placeholders
        return _record(conn, place, step)


def _apply_concurrently(conn: Connection, place: Database, step: Migration) -> Applied:
    """Run the statements one by one; each waits for transactions that are open, and blocks none of them."""
    names = conn.execute(place.blocks["migrate.invalid_index"], {"schema": place.schema, "names": list(step.indexes)}).fetchall()
    for (name,) in names:
        conn.execute(sql.SQL("drop index concurrently {}").format(sql.Identifier(place.schema, name)))
    for statement in step.statements(place.schema):
        conn.execute(statement.encode())
    return _record(conn, place, step)


def _record(conn: Connection, place: Database, step: Migration) -> Applied:
    row = conn.execute(place.blocks["migrate.record"], _recorded(step)).fetchone()
    if row is None:
        raise TailraceError(f"migration {step.label}: its row was not returned", hint="Look for a trigger on table migration")
    return Applied(*row)


def _recorded(step: Migration) -> dict[str, object]:
    """The columns of its row in table migration."""
    return {
        "version": step.version,
        "name": step.name,
        "checksum": step.checksum,
        "min_worker": step.min_worker,
        "min_controller": step.min_controller,
    }


def _failed(exc: psycopg.Error, place: Database, step: Migration) -> BaseException:
    better = translate(exc, address=place.address)
    if isinstance(better, DatabaseUnavailable):
        return better
    said = f"migration {step.label}: {exc.diag.message_primary or exc}"
    if exc.sqlstate == "42501":
        return PrivilegeMissing(said, hint="Nothing of this step was kept; migrate as the owner of the schema")
    return TailraceError(said, hint="Nothing of this step was kept")


def _fields(event: Event, place: Database, step: Migration, attempt: int) -> dict[str, object]:
    return {"event": event, "version": step.version, "migration": step.name, "schema": place.schema, "attempt": attempt}


# ---- printing --------------------------------------------------------------------------------------------------------
def _create_schema(schema: str) -> sql.Composed:
    return sql.SQL("create schema {}").format(sql.Identifier(schema))


def _printed_step(step: Migration, schema: str) -> str:
    values = _recorded(step)
    record = sql.SQL("insert into {} ({}) values ({});").format(
        sql.Identifier(schema, "migration"),
        sql.SQL(", ").join(sql.Identifier(name) for name in values),
        sql.SQL(", ").join(sql.Literal(value) for value in values.values()),
    )
    text = f"-- {step.label}\n{step.rendered(schema).rstrip()}\n\n{record.as_string(None)}"
    return text if step.is_concurrent else f"begin;\n{text}\ncommit;"
