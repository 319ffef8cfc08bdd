"""The checks of `tailrace doctor`: each looks at one thing and says what to do about it.

A check is a function of a `Patient`; it never changes anything. One that may not look says so and does not fail the
others. `doctor` runs them in order and prints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tailrace.db import Connection, Database, Statement, is_pooled, run
from tailrace.db.versions import REQUIRED, check, schema_version
from tailrace.errors import SchemaTooNew, SchemaTooOld

__all__ = ["CHECKS", "Finding", "Patient"]

_OLDEST_VERSION, _NEWEST_VERSION = 14, 18
_CLOCK_SECONDS = 1.0
_OLD_TRANSACTION_SECONDS = 300.0
_MANY_DEAD_ROWS = 100_000
_VACUUM_SECONDS = 900.0
_FEW_UPDATES = 10_000
_HOT_SHARE = 0.95
_REAPER_SECONDS = 120.0


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    check: str
    """What was looked at."""
    status: Literal["ok", "warn", "fail"]
    """ok, warn (works, but look into it) or fail (does not work)."""
    found: str
    """What is so."""
    remedy: tuple[str, ...] = ()
    """What to do, in sentences or statements; empty when all is well."""


@dataclass
class Patient:
    """The database that is looked at."""

    conn: Connection
    """A connection to it."""
    database: Database
    """Where it is."""

    def rows(self, block: str, **params: Any) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a block of doctor.sql.

        Args:
            block: Its name.
            params: Its values.
        """
        return run(self.conn, Statement(self.database.blocks[f"doctor.{block}"], params, lambda rows: rows))


def pooler(patient: Patient) -> Finding | None:
    """Where the connection goes through a pooler, there is a direct way for what a pooler cannot carry."""
    if not is_pooled(patient.conn):
        return None
    if patient.database.knows_direct:
        return Finding("pooler", "ok", "one is in between; heartbeats, LISTEN and migrations go the direct way")
    remedy = (
        "Set TAILRACE_DIRECT_DATABASE_URL to the address of the server itself: without it idle workers poll instead of "
        "being woken, and `tailrace migrate` refuses"
    )
    return Finding("pooler", "warn", "one is in between, and no direct address is set", (remedy,))


def server_version(patient: Patient) -> Finding:
    """The server is one that Tailrace is tested on, and no standby."""
    number, text, _, standby, _ = patient.rows("server")[0]
    major = number // 10_000
    if standby:
        return Finding("server", "fail", f"PostgreSQL {text}, a standby", ("Connect to the primary: workers and enqueues write",))
    if major < _OLDEST_VERSION:
        return Finding("server", "fail", f"PostgreSQL {text}", (f"Use PostgreSQL {_OLDEST_VERSION} to {_NEWEST_VERSION}",))
    if major > _NEWEST_VERSION:
        return Finding(
            "server", "warn", f"PostgreSQL {text}, newer than tested", (f"Tested on {_OLDEST_VERSION} to {_NEWEST_VERSION}",)
        )
    return Finding("server", "ok", f"PostgreSQL {text}")


def schema(patient: Patient) -> Finding:
    """The schema is migrated to what this release needs."""
    try:
        version = check(patient.conn, patient.database)
    except (SchemaTooOld, SchemaTooNew) as error:
        found = schema_version(patient.conn, patient.database.schema)
        return Finding("schema", "fail", f"version {found or 'none'}, needed {REQUIRED}", (error.hint or str(error),))
    return Finding("schema", "ok", f"version {version} in {patient.database.schema}")


def privileges(patient: Patient) -> Finding | None:
    """The user of the connection may do something."""
    user = patient.rows("server")[0][2]
    rows = patient.rows("capabilities", schema=patient.database.schema)
    if not any(exists for *_, exists in rows):
        return None  # there is nothing yet that anybody could have a right to
    may = [name for name, allowed, *_ in rows if allowed]
    may_not = [name for name, allowed, *_ in rows if not allowed]
    grants = tuple(f"{statement};" for _, allowed, statement, _ in rows if not allowed)
    if not may:
        return Finding("privileges", "fail", f"user {user} may do nothing here", ("As the owner, run what fits:", *grants))
    if may_not:
        found = f"user {user} may {', '.join(may)}; not {', '.join(may_not)}"
        return Finding("privileges", "ok", found, ("Where it should do more, run as the owner:", *grants))
    return Finding("privileges", "ok", f"user {user} may {', '.join(may)}")


def roles(patient: Patient) -> Finding:
    """The four roles exist and have their rights."""
    statements = tuple(f"{row[0]};" for row in patient.rows("missing_roles"))
    if statements:
        return Finding(
            "roles", "warn", "roles or their rights are missing", ("As a user that may create roles, run:", *statements)
        )
    return Finding("roles", "ok", "tailrace_enqueue, tailrace_worker, tailrace_admin, tailrace_reader")


def clock(patient: Patient) -> Finding:
    """The server's clock agrees with this machine's."""
    before = time.time()
    there = float(patient.rows("server")[0][4])
    after = time.time()
    difference = there - (before + after) / 2
    if abs(difference) - (after - before) / 2 > _CLOCK_SECONDS:
        return Finding(
            "clock",
            "warn",
            f"the server is {difference:+.1f} s off this machine",
            ("Only the server's clock counts, but logs and run_at of programs will not agree: check NTP on both",),
        )
    return Finding("clock", "ok", f"{difference * 1000:+.0f} ms off this machine")


def oldest_transaction(patient: Patient) -> Finding:
    """No transaction has been open so long that dead rows pile up."""
    label, age, unseen = patient.rows("oldest_transaction")[0]
    hidden = (f"{unseen} sessions of other users cannot be seen: grant pg_read_all_stats to see them",) if unseen else ()
    if label is None:
        return Finding("oldest transaction", "ok", "none is open", hidden)
    found = f"{age:.0f} s: {label}"
    if age > _OLD_TRANSACTION_SECONDS:
        remedy = "End it (pg_terminate_backend, or rollback prepared): while it is open no dead row of any table can be removed"
        return Finding("oldest transaction", "warn", found, (remedy, *hidden))
    return Finding("oldest transaction", "ok", found, hidden)


def foreign_objects(patient: Patient) -> Finding:
    """Nobody has put an index, a reference or a trigger on the hot table."""
    rows = patient.rows("foreign_objects", schema=patient.database.schema)
    if not rows:
        return Finding("foreign objects", "ok", "none on table job")
    found = ", ".join(f"{kind} {name}" for kind, name, _ in rows)
    costly = [name for kind, name, costly in rows if costly and kind == "index"]
    remedies = []
    if costly:
        remedies.append(
            f"Drop {', '.join(costly)}: an index on token, attempts, errors or saved makes each claim write every index"
        )
    if any(kind == "foreign key" for kind, _, _ in rows):
        remedies.append("Drop the foreign key: jobs are removed when they end, and a reference makes that fail")
    return Finding(
        "foreign objects", "warn", found, (*remedies, "What is not ours on table job slows every claim; keep it only on purpose")
    )


def vacuum(patient: Patient) -> Finding:
    """Autovacuum is on for the hot table and keeps up, and its updates stay cheap."""
    works, switched_off, live, dead, age, updates, hot = patient.rows("vacuum", schema=patient.database.schema)[0]
    found = f"table job: {live} live rows, {dead} dead"
    if not works or switched_off:
        return Finding(
            "autovacuum", "warn", f"off; {found}", ("Switch autovacuum and track_counts on, for the server and for table job",)
        )
    if dead > _MANY_DEAD_ROWS and (age is None or age > _VACUUM_SECONDS):
        remedy = "Look for an old transaction; raise autovacuum_max_workers or autovacuum_vacuum_cost_limit"
        return Finding("autovacuum", "warn", f"does not keep up; {found}", (remedy,))
    if updates > _FEW_UPDATES and hot < _HOT_SHARE * updates:
        remedy = "Look for a foreign index, an old transaction, or rows larger than half a page"
        return Finding("autovacuum", "warn", f"only {hot / updates:.0%} of the updates of table job are HOT; {found}", (remedy,))
    return Finding("autovacuum", "ok", found)


def connections(patient: Patient) -> Finding:
    """There is room for more connections."""
    used, limit, ours = patient.rows("connections", mine="tailrace%")[0]
    found = f"{used} of {limit} used, {ours} of them by Tailrace"
    remedy = ("Raise max_connections, lower slots of pools, or put a pooler in front; a worker uses 3",)
    if used >= limit:
        return Finding("connections", "fail", found, remedy)
    return Finding("connections", "warn" if used > 0.8 * limit else "ok", found, remedy if used > 0.8 * limit else ())


def maintenance(patient: Patient) -> Finding:
    """Somebody takes over the leases of dead workers."""
    workers, leases, age = patient.rows("maintenance")[0]
    found = f"{workers} live workers, {leases} leases, reaper " + ("never ran" if age is None else f"ran {age:.0f} s ago")
    if (leases or workers) and (age is None or age > _REAPER_SECONDS):
        remedy = "Run a worker or `tailrace maintain`: without it the jobs of dead workers stay where they are"
        return Finding("maintenance", "warn", found, (remedy,))
    return Finding("maintenance", "ok", found)


CHECKS: tuple[tuple[Callable[[Patient], Finding | None], bool], ...] = (
    (pooler, False),
    (server_version, False),
    (schema, False),
    (privileges, False),
    (clock, False),
    (oldest_transaction, False),
    (connections, False),
    (roles, True),
    (foreign_objects, True),
    (vacuum, True),
    (maintenance, True),
)
"""The checks in order; those marked True need the schema."""
