"""All databases that Secrets lead to.

Keeps a pool for each (host, port, database, user), the places whose maintenance runs here, and the files that libpq wants for
root certificates. `service` makes it, the reconcile asks for one database at a time.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

from tailrace.clock import boot
from tailrace.db import Database
from tailrace.db.allowed import Target
from tailrace_controller.databases.credentials import Credentials
from tailrace_controller.databases.database import QueueDatabase, Release
from tailrace_controller.databases.facts import DatabaseState
from tailrace_controller.databases.pool import Budget, Pool
from tailrace_controller.settings import ControllerSettings

__all__ = ["Databases"]

PoolKey = tuple[str, str, str, str]


class Databases:
    """The databases of one controller, on one event loop."""

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        clock: Callable[[], float] = boot,
        jitter: Callable[[], float] = random.random,
        budget: Budget | None = None,
        release: Release | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            settings: The controller's settings: where its own credentials are.
            clock: Seconds that only go forward.
            jitter: A random number in [0, 1).
            budget: What one database may cost.
            release: What this controller knows of schemas.
        """
        self._clock, self._jitter = clock, jitter
        self._budget, self._release = budget or Budget(), release or Release()
        self._credentials = Credentials(settings.migration_credentials)
        self._pools: dict[PoolKey, Pool] = {}
        self._databases: dict[Target, QueueDatabase] = {}
        self._places: dict[PoolKey, tuple[Target, Database]] = {}
        self._migrating: dict[PoolKey, asyncio.Lock] = {}
        self._certificates: tempfile.TemporaryDirectory[str] | None = None

    def at(self, target: Target) -> QueueDatabase:
        """Return the database that a Secret leads to; a changed password is another target and tried at once.

        Args:
            target: What `parse_target` read.
        """
        found = self._databases.get(target)
        if found is None:
            pool = self._pools.get(target.key)
            if pool is None:
                pool = Pool(target.address, budget=self._budget, clock=self._clock, jitter=self._jitter)
                self._pools[target.key] = pool
            found = self._databases[target] = QueueDatabase(
                target,
                pool=pool,
                login=pool.login(target, self._database),
                release=self._release,
                migrating=self._migrating.setdefault(target.place, asyncio.Lock()),
                owner_of=self._credentials.of,
                database_of=self._database,
                seen=self._seen,
            )
        return found

    def targets(self) -> list[Target]:
        """Return one target for each installation that was looked at and fits: what maintenance is for."""
        return [target for target, _ in self._places.values()]

    def place(self, target: Target) -> Database:
        """Return an installation for maintenance, in a thread: from its next connect on it takes a rotated password.

        Args:
            target: One of `targets`.
        """
        return self._places[target.place][1]

    def states(self) -> list[DatabaseState]:
        """Return how each database does, for metrics; the worst of its users."""
        found: dict[str, DatabaseState] = {}
        for pool in self._pools.values():
            reached = (pool.breaker.error is None) if pool.asked else None
            known = found.get(pool.address)
            if known is None or reached is False:
                found[pool.address] = DatabaseState(address=pool.address, reached=reached, failures=pool.breaker.failures)
        return list(found.values())

    async def keep(self, targets: Iterable[Target]) -> None:
        """Forget the databases that no Secret leads to any more.

        Args:
            targets: Those in use.
        """
        wanted = set(targets)
        self._databases = {target: one for target, one in self._databases.items() if target in wanted}
        places, keys = {target.place for target in wanted}, {target.key for target in wanted}
        self._places = {place: one for place, one in self._places.items() if place in places}
        for key in [key for key in self._pools if key not in keys]:
            await self._pools.pop(key).close()

    async def close(self) -> None:
        """Close all connections."""
        await self.keep(())
        if self._certificates is not None:
            self._certificates.cleanup()
            self._certificates = None

    def _seen(self, target: Target) -> None:
        """Maintenance takes the login that worked last: another's wrong password for the same place must not stop it."""
        known = self._places.get(target.place)
        if known is None:
            self._places[target.place] = (target, self._database(target))
        elif known[0] != target:
            known[1].use(target.url(self._root_certificate(target)))
            self._places[target.place] = (target, known[1])

    def _database(self, target: Target) -> Database:
        return Database(url=target.url(self._root_certificate(target)), schema=target.schema)

    def _root_certificate(self, target: Target) -> Path | None:
        """Write the certificate to a file of our own: libpq takes no other form."""
        if target.root_certificate is None:
            return None
        if self._certificates is None:
            self._certificates = tempfile.TemporaryDirectory(prefix="tailrace-")
        file = Path(self._certificates.name) / f"{sha256(target.root_certificate).hexdigest()}.pem"
        if not file.exists():
            file.write_bytes(target.root_certificate)
        return file
