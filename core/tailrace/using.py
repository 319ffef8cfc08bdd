"""`app.using(conn)`: an application's words on the caller's connection, in the caller's transaction.

Enqueueing and administration alike; nothing here commits, rolls back or retries. Neighbours: `app`, `admin`,
`enqueue.words`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, cast

from tailrace.db import AsyncConnection, Connection
from tailrace.drivers import WrongWord
from tailrace.enqueue.words import AsyncMany, SyncMany

if TYPE_CHECKING:
    from tailrace.admin import AdminUsing, AsyncAdminUsing
    from tailrace.dead_letters import AsyncDeadLetters, SyncDeadLetters
    from tailrace.jobs import AsyncJobs, SyncJobs
    from tailrace.leases import AsyncLeases, SyncLeases
    from tailrace.queues import AsyncQueues, SyncQueues
    from tailrace.schedules.words import AsyncSchedules, SyncSchedules
    from tailrace.workers import AsyncWorkers, SyncWorkers


class AppUsing(SyncMany, WrongWord):
    """The words for a connection that blocks."""

    @functools.cached_property
    def _admin(self) -> AdminUsing:
        # only programs that administrate pay for the import
        from tailrace.admin import AdminUsing

        return AdminUsing(cast("Connection", self._conn), self._app.database, self._app.settings.namespace)

    @property
    def jobs(self) -> SyncJobs:
        """Live jobs."""
        return self._admin.jobs

    @property
    def dead_letters(self) -> SyncDeadLetters:
        """Jobs that cannot go on."""
        return self._admin.dead_letters

    @property
    def queues(self) -> SyncQueues:
        """Queues and their settings."""
        return self._admin.queues

    @property
    def schedules(self) -> SyncSchedules:
        """What fires when."""
        return self._admin.schedules

    @property
    def leases(self) -> SyncLeases:
        """Who runs what."""
        return self._admin.leases

    @property
    def workers(self) -> SyncWorkers:
        """Processes."""
        return self._admin.workers


class AsyncAppUsing(AsyncMany, WrongWord):
    """The words for a connection that is awaited."""

    @functools.cached_property
    def _admin(self) -> AsyncAdminUsing:
        from tailrace.admin import AsyncAdminUsing

        return AsyncAdminUsing(cast("AsyncConnection", self._conn), self._app.database, self._app.settings.namespace)

    @property
    def jobs(self) -> AsyncJobs:
        """Live jobs."""
        return self._admin.jobs

    @property
    def dead_letters(self) -> AsyncDeadLetters:
        """Jobs that cannot go on."""
        return self._admin.dead_letters

    @property
    def queues(self) -> AsyncQueues:
        """Queues and their settings."""
        return self._admin.queues

    @property
    def schedules(self) -> AsyncSchedules:
        """What fires when."""
        return self._admin.schedules

    @property
    def leases(self) -> AsyncLeases:
        """Who runs what."""
        return self._admin.leases

    @property
    def workers(self) -> AsyncWorkers:
        """Processes."""
        return self._admin.workers
