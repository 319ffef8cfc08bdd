"""Does a controller fit a schema, and which migrations may it apply now?

Application teams rebuild their images months later, so a controller lives with older schemas and workers than its own, and
with a schema that the next release has migrated. `versions` asks the stricter question of a worker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace.db.connection import Database
from tailrace.db.migration_files import MIGRATIONS, Migration
from tailrace.db.versions import RELEASE, Applied, migrate_command, order
from tailrace.errors import MigrationPending, SchemaMissing, SchemaTooNew, SchemaTooOld

__all__ = ["OLDEST", "Fit", "allowed_now", "fit"]

OLDEST: Final = 12
"""The oldest schema that this release's controller works with: that of two releases ago, or the first with owners."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A schema that a controller can work with.

    Attributes:
        version: The newest migration that it has.
        missing: The migrations of this release that it lacks, in order.
        pending: The same as an error for whoever may not apply them; None when nothing is missing.
    """

    version: int
    missing: tuple[Migration, ...]
    pending: MigrationPending | None


def fit(
    applied: Sequence[Applied],
    database: Database,
    *,
    release: str = RELEASE,
    migrations: Sequence[Migration] = MIGRATIONS,
    oldest: int = OLDEST,
) -> Fit:
    """Return how a schema fits a controller.

    Args:
        applied: What the schema has.
        database: For messages.
        release: The controller's version.
        migrations: The steps of that release.
        oldest: The oldest schema it can work with.

    Raises:
        SchemaMissing: There are no tables.
        SchemaTooOld: The controller needs more than is there.
        SchemaTooNew: A step needs a newer controller.
    """
    where, command = f"schema {database.schema} of {database.address}", migrate_command(database.schema)
    if not applied:
        raise SchemaMissing(f"{where} has no Tailrace tables", hint=f"As the owner of the database run: {command}")
    version = max(one.version for one in applied)
    if version < oldest:
        raise SchemaTooOld(
            f"{where} is at version {version}, this controller needs {oldest} at least", hint=f"As its owner run: {command}"
        )
    for one in applied:
        if one.min_controller is not None and order(one.min_controller) > order(release):
            raise SchemaTooNew(
                f"{where} is at version {version}, which needs a controller of Tailrace {one.min_controller}; this is {release}",
                hint=f"Deploy Tailrace {one.min_controller} or newer",
            )
    known = {one.version for one in applied}
    missing = tuple(step for step in migrations if step.version not in known)
    pending = None
    if missing:
        pending = MigrationPending(
            f"{where} is at version {version} and lacks {', '.join(step.label for step in missing)}",
            hint=f"As its owner run: {command}",
        )
    return Fit(version=version, missing=missing, pending=pending)


def allowed_now(missing: Sequence[Migration], workers: Collection[str]) -> tuple[Migration, ...]:
    """Return the leading steps that every worker of late can live with: a step that drops something waits for older ones to go.

    Args:
        missing: Steps to apply, in order.
        workers: The releases of workers seen within a week; what is no release is taken for the oldest.
    """
    oldest = min((order(version) for version in workers), default=None)
    allowed: list[Migration] = []
    for step in missing:
        if step.min_worker is not None and oldest is not None and oldest < order(step.min_worker):
            break
        allowed.append(step)
    return tuple(allowed)
