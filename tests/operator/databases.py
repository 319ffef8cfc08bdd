"""Databases as a controller has them, for tests: a registry on an embedded server, and targets out of users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tailrace.owners import Owner
from tailrace_controller.databases import Budget, Databases, Release, Target, parse_target
from tailrace_controller.settings import ControllerSettings
from tests.rig.logins import RigLogin
from tests.rig.servers import RigDatabase

OWNER = Owner(cluster="c1", uid="u1", namespace="team-a", name="webhooks", generation=1)
QUICK = Budget(connect_seconds=2.0, answer_seconds=2.0, wait_seconds=0.5, first_pause_seconds=0.2, longest_pause_seconds=0.4)
"""Short enough for a test to see the end of each."""

_WORDS = ("host", "port", "dbname", "user", "password", "sslmode")


def target_of(source: RigDatabase | RigLogin | str, *, schema: str = "tailrace") -> Target:
    """Read the connection string of a database, a user, or one that is given, as out of a Secret."""
    given = conninfo_to_dict(source if isinstance(source, str) else source.dsn)
    kept: dict[str, Any] = {name: given[name] for name in _WORDS if given.get(name)}
    return parse_target(make_conninfo("", **kept).encode(), schema=schema)


@asynccontextmanager
async def databases(
    *,
    budget: Budget | None = None,
    release: Release | None = None,
    credentials: Path | None = None,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[Databases]:
    """Open a registry and close it."""
    more: dict[str, Any] = {} if clock is None else {"clock": clock}
    made = Databases(
        ControllerSettings.load({"migration_credentials": credentials}),
        jitter=lambda: 0.5,
        budget=budget,
        release=release,
        **more,
    )
    try:
        yield made
    finally:
        await made.close()
