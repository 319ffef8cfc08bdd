"""One queue's database as the reconcile asks it: every word is awaited, bounded in time, and may be repeated.

The rules of ownership stand in the database (`tailrace.owners`), what it may cost in `pool`. Errors are tailrace's own: each
has a `reason` for a condition and reads as a sentence for the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tailrace.db import Database, Statement, errors
from tailrace.db.allowed import Target
from tailrace.db.migrate import migrate
from tailrace.db.migration_files import MIGRATIONS, Migration
from tailrace.db.skew import OLDEST, allowed_now, fit
from tailrace.db.versions import RELEASE, Applied, applied_statement, find_table_statement
from tailrace.errors import (
    DatabaseUnavailable,
    MigrationFailed,
    MigrationPending,
    PrivilegeMissing,
    SchemaMissing,
    SchemaTooOld,
    TailraceError,
)
from tailrace.owners import Glance, Owned, Owner, OwnerStatements, QueueFacts, Settled
from tailrace_controller.databases.facts import DatabaseFacts
from tailrace_controller.databases.pool import Login, Pool

__all__ = ["INTERRUPTED", "QueueDatabase", "Release"]

T = TypeVar("T")

INTERRUPTED: Final = ("Evicted", "Preempted", "Deleted")
"""A death whose reason begins so was the platform's doing: the jobs get their attempt back."""

_MIGRATE_WAIT_SECONDS: Final = 60.0
_TURN_SECONDS: Final = 15.0
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class Release:
    """What this controller knows of schemas.

    Attributes:
        version: Its release.
        migrations: The steps of that release.
        oldest: The oldest schema it can work with.
    """

    version: str = RELEASE
    migrations: Sequence[Migration] = MIGRATIONS
    oldest: int = OLDEST


class QueueDatabase:
    """A database with the eyes of one Secret; made by `Databases.at`."""

    def __init__(
        self,
        target: Target,
        *,
        pool: Pool,
        login: Login,
        release: Release,
        migrating: asyncio.Lock,
        owner_of: Callable[[Target], Target | None],
        database_of: Callable[[Target], Database],
        seen: Callable[[Target], None],
    ) -> None:
        """Ask nothing yet.

        Args:
            target: Where the Secret leads.
            pool: The connections to that database.
            login: The Secret's user and password.
            release: What this controller knows of schemas.
            migrating: Held while this process migrates that schema.
            owner_of: Gives the controller's own credential for a database, if it has one.
            database_of: Makes the place to connect to.
            seen: Told that the Secret led to a database that fits.
        """
        self.target = target
        self._pool, self._login, self._release, self._migrating = pool, login, release, migrating
        self._owner_of, self._database_of, self._seen = owner_of, database_of, seen
        self._place = database_of(target)
        self._statements = OwnerStatements(self._place.blocks, target.schema)

    @property
    def address(self) -> str:
        """host:port/dbname."""
        return self.target.address

    # ---- the schema --------------------------------------------------------------------------------------------------
    async def look(self) -> DatabaseFacts:
        """Return what the database is, if this controller can work with it.

        Raises:
            DatabaseUnavailable: No answer; AuthenticationFailed and DatabaseNotFound say more.
            SchemaMissing: No tables of Tailrace.
            SchemaTooOld: Too old to work with.
            SchemaTooNew: Too new to work with.
            PrivilegeMissing: The Secret's user lacks a right that a controller needs.
        """
        glance = await self._glance() or await self._look_closely()
        fitting = fit(glance.applied, self._place, **self._known())
        pending = fitting.pending if fitting.missing and await self._allowed(fitting.missing) else None
        self._seen(self.target)
        return DatabaseFacts(
            address=self.address,
            installation_id=glance.installation_id,
            schema_version=fitting.version,
            server_version=glance.server_version.split()[0],
            pending=pending,
        )

    async def _glance(self) -> Glance | None:
        """One statement for the usual case; what fails there is looked at closely."""
        try:
            return await self._ask(self._statements.glance())
        except DatabaseUnavailable:
            raise
        except TailraceError:
            return None

    async def _look_closely(self) -> Glance:
        """Find out what is amiss, one question at a time."""
        denied = ", ".join(await self._ask(self._statements.not_allowed()))
        if denied:
            raise PrivilegeMissing(
                f"database {self.address}: the user of the Secret may not run {denied} in schema {self.target.schema}",
                hint="As the owner grant it the role: grant tailrace_worker to …",
            )
        applied = await self._applied()
        fit(applied, self._place, **self._known())
        identity = await self._ask(self._statements.identity())
        if identity is None:
            raise SchemaMissing(
                f"schema {self.target.schema} of {self.address} has no row in its table installation",
                hint="Put the row back, as from a backup",
            )
        return Glance(applied=applied, installation_id=identity[0], server_version=identity[1])

    async def migrate(self, *, admin: Target | None = None) -> DatabaseFacts:
        """Apply the migrations that may be applied now, and look again.

        Without a credential of the controller's own the Secret's user does it, if it owns the schema.

        Args:
            admin: A credential that may change the schema; default: the controller's own for this database, if it has one.

        Raises:
            MigrationPending: Nobody here may change the schema; names the command.
            SchemaMissing: The same, and there are no tables.
            SchemaTooOld: The same, and the schema is too old to work with.
            MigrationFailed: A step failed.
            TailraceError: As `look`.
        """
        await self._become_the_only_one()
        try:
            applied = await self._applied()  # with the Secret's own login: who cannot log in makes nobody migrate
            known = {one.version for one in applied}
            missing = tuple(step for step in self._release.migrations if step.version not in known)
            allowed = await self._allowed(missing) if known else missing
            if allowed:
                await self._apply(allowed, applied, admin or self._owner_of(self.target))
        finally:
            self._migrating.release()
        return await self.look()

    async def _become_the_only_one(self) -> None:
        """Many queues may wait for one schema; not for long, since others wait behind them."""
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._migrating.acquire()
        except TimeoutError:
            where = f"schema {self.target.schema} of {self.address}"
            raise MigrationPending(f"{where} is being migrated by this controller", hint="Wait; it is looked at again") from None

    async def _apply(self, steps: Sequence[Migration], applied: Sequence[Applied], admin: Target | None) -> None:
        refused = self._refusal(applied)
        if admin is None and not await self._ask(self._statements.may_migrate()):
            raise refused
        try:
            await asyncio.to_thread(
                migrate,
                self._database_of(admin or self.target),
                until=steps[-1].version,
                migrations=self._release.migrations,
                wait_seconds=_MIGRATE_WAIT_SECONDS,
            )
        except PrivilegeMissing as error:
            raise refused from error
        except DatabaseUnavailable:
            raise
        except (TailraceError, errors.Error) as error:
            raise MigrationFailed(str(error)) from error

    def _refusal(self, applied: Sequence[Applied]) -> TailraceError:
        """What is said when the schema stays as it is. A schema that is too new is no matter of migrations."""
        try:
            fitting = fit(applied, self._place, **self._known())
        except SchemaTooOld as error:
            return error
        return fitting.pending or MigrationFailed("nothing is missing")

    async def _applied(self) -> list[Applied]:
        found = await self._ask(find_table_statement(self._place.blocks, self.target.schema))
        return await self._ask(applied_statement(self._place.blocks)) if found.table else []

    async def _allowed(self, missing: Sequence[Migration]) -> Sequence[Migration]:
        if all(step.min_worker is None for step in missing):
            return missing
        return allowed_now(missing, await self._ask(self._statements.versions()))

    def _known(self) -> dict[str, Any]:
        release = self._release
        return {"release": release.version, "migrations": release.migrations, "oldest": release.oldest}

    # ---- the queue ---------------------------------------------------------------------------------------------------
    async def settle(self, owner: Owner, queue: str, settings: Mapping[str, Any], *, take_over: str | None = None) -> Settled:
        """Write a queue's settings for its resource, unless another has the queue or a newer generation was written.

        Args:
            owner: The resource, with the generation that says so.
            queue: The queue's name.
            settings: `spec.database_part()`.
            take_over: The uid of the recorded owner, to take the queue from it: from the annotation, or after the API server
                has shown that it is gone, as when the resource was deleted and made again under its name. The resource's own
                uid, when the API server shows that an older generation is in force, as after a restore of the cluster.

        Raises:
            InvalidOption: The settings are wrong; names the field.
            TailraceError: As `look`.
        """
        return await self._ask(self._statements.settle(owner, queue, settings, take_over))

    async def facts(self, queues: Sequence[str]) -> dict[str, QueueFacts]:
        """Return what is known of some queues; one without a row is left out.

        Args:
            queues: Their names.
        """
        return await self._ask(self._statements.facts(queues))

    async def worker_died(self, worker_id: str, *, reason: str, interrupted: bool | None = None) -> int:
        """Apply a proof of death: the worker's jobs run elsewhere at once. Returns how many it had; any number of times.

        Args:
            worker_id: The id that the worker left in its last message.
            reason: What the kubelet said, for the error history of its jobs.
            interrupted: Whether the platform ended it; default: whether the reason begins with one of `INTERRUPTED`.
        """
        if interrupted is None:
            interrupted = reason.split(":")[0] in INTERRUPTED
        statement, jobs = self._statements.gone(worker_id, reason=reason, interrupted=interrupted), 0
        for _ in range(_TRIES):
            death = await self._ask(statement)
            jobs += death.jobs
            if not death.skipped:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        return jobs

    async def owned(self, cluster: str) -> list[Owned]:
        """Return the queues that resources of a cluster own or owned.

        Args:
            cluster: The uid of its namespace kube-system.
        """
        return await self._ask(self._statements.owned(cluster))

    async def orphan(self, queue: str, owner: Owner) -> bool:
        """Say that a queue's resource is gone: its schedules end, its jobs stay. False when the queue is not its own.

        Args:
            queue: The queue's name.
            owner: The resource that is gone.
        """
        return await self._ask(self._statements.orphan(queue, owner))

    async def _ask(self, statement: Statement[T]) -> T:
        return await self._pool.ask(self._login, statement, self._place.blocks)
