"""Does this release fit the schema? Asked by workers and the command line before they work, and after each reconnect.

The schema must have every migration of this release but those that wait for older workers to go; a newer schema is fine
until one of its steps names a newer worker as the oldest that can live with it. `migrate` writes the bookkeeping table that
is read here, `skew` asks the same for a controller.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version as installed_version
from typing import Any, Final

from tailrace.db.connection import AsyncConnection, Connection, Database
from tailrace.db.migration_files import MIGRATIONS
from tailrace.db.statements import Blocks, Statement, arun, run
from tailrace.errors import SchemaMissing, SchemaTooNew, SchemaTooOld

__all__ = [
    "RELEASE",
    "REQUIRED",
    "Applied",
    "Found",
    "acheck",
    "applied_migrations",
    "applied_statement",
    "check",
    "find_table_statement",
    "judge",
    "migrate_command",
    "order",
    "schema_version",
]

RELEASE: Final = installed_version("tailrace")
"""The version of this distribution."""

REQUIRED: Final = MIGRATIONS[-1].version
"""The newest migration of this release."""


@dataclass(frozen=True)
class Applied:
    """A migration that the database has.

    Attributes:
        version: Its number.
        name: Its name without the number.
        checksum: SHA-256 of the file that was applied.
        applied_at: When, by the database's clock.
        min_worker: The oldest worker that can live with it; None if any can.
        min_controller: The oldest controller that can live with it; None if any can.
    """

    version: int
    name: str
    checksum: str
    applied_at: datetime
    min_worker: str | None
    min_controller: str | None = None


@dataclass(frozen=True)
class Found:
    """Whether the schema and its bookkeeping table exist."""

    schema: bool
    table: bool


def find_table_statement(blocks: Blocks, schema: str) -> Statement[Found]:
    """Return the statement that looks for schema and bookkeeping table.

    Args:
        blocks: The blocks of the schema.
        schema: Its bare name.
    """

    def read(rows: Sequence[tuple[Any, ...]]) -> Found:
        return Found(schema=bool(rows), table=bool(rows) and rows[0][1] is not None)

    return Statement(blocks["migrate.find_table"], {"schema": schema}, read)


def applied_statement(blocks: Blocks) -> Statement[list[Applied]]:
    """Return the statement that reads the bookkeeping table.

    Args:
        blocks: The blocks of the schema.
    """
    return Statement(blocks["migrate.applied"], {}, lambda rows: [Applied(*row) for row in rows])


def applied_migrations(conn: Connection, schema: str) -> list[Applied]:
    """Return the migrations that a schema has, in order; none when it is missing.

    Args:
        conn: Any connection to the database.
        schema: The bare name of the schema.
    """
    blocks = Blocks(schema)
    found = run(conn, find_table_statement(blocks, schema))
    return run(conn, applied_statement(blocks)) if found.table else []


def schema_version(conn: Connection, schema: str) -> int:
    """Return the newest version that a schema has; 0 when it has none.

    Args:
        conn: Any connection to the database.
        schema: The bare name of the schema.
    """
    return max((one.version for one in applied_migrations(conn, schema)), default=0)


def check(conn: Connection, database: Database) -> int:
    """Return the version of the schema if this release can work with it.

    Args:
        conn: A connection to the database.
        database: Names the schema, and the address for messages.

    Raises:
        SchemaTooOld: Migrations are missing; names the command.
        SchemaTooNew: The schema needs a newer release.
    """
    found = run(conn, find_table_statement(database.blocks, database.schema))
    return judge(run(conn, applied_statement(database.blocks)) if found.table else [], database)


async def acheck(conn: AsyncConnection, database: Database) -> int:
    """Return the version of the schema if this release can work with it; as `check`.

    Args:
        conn: A connection to the database.
        database: Names the schema, and the address for messages.

    Raises:
        SchemaTooOld: Migrations are missing.
        SchemaTooNew: The schema needs a newer release.
    """
    found = await arun(conn, find_table_statement(database.blocks, database.schema))
    return judge(await arun(conn, applied_statement(database.blocks)) if found.table else [], database)


def judge(applied: Sequence[Applied], database: Database, *, release: str = RELEASE) -> int:
    """Return the newest applied version if a release can work with what was applied.

    Args:
        applied: What the schema has.
        database: For messages.
        release: The version that wants to work.

    Raises:
        SchemaTooOld: Migrations of this release are missing.
        SchemaTooNew: A step needs newer workers.
    """
    where = f"schema {database.schema} of {database.address}"
    command = migrate_command(database.schema)
    if not applied:
        raise SchemaMissing(f"{where} has no Tailrace tables", hint=f"Run: {command}")
    newest = max(one.version for one in applied)
    if {step.version for step in MIGRATIONS if step.min_worker is None} - {one.version for one in applied}:
        raise SchemaTooOld(f"{where} is at version {newest}, this release needs {REQUIRED}", hint=f"Run: {command}")
    for one in applied:
        if one.min_worker is not None and order(one.min_worker) > order(release):
            raise SchemaTooNew(
                f"{where} is at version {newest}, which needs Tailrace {one.min_worker}; this is {release}",
                hint=f"Deploy Tailrace {one.min_worker} or newer",
            )
    return newest


def migrate_command(schema: str) -> str:
    """Return the command that migrates a schema.

    Args:
        schema: Its bare name.
    """
    return "tailrace migrate" if schema == "tailrace" else f"tailrace migrate --schema '{schema}'"


def order(version: str) -> tuple[int, ...]:
    """Return a release's number in a form that can be compared.

    Args:
        version: Such as 1.10.2.
    """
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
