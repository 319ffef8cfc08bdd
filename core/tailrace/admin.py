"""Administration in one place: jobs, dead letters, queues, schedules, leases, workers.

`App` shows it: `app.jobs` is `Admin(app.database).jobs`, and `app.using(conn).jobs` is `AdminUsing(conn, app.database).jobs`,
in the caller's transaction. The command line uses the same objects.
"""

from __future__ import annotations

from tailrace.db import AsyncConnection, Connection, Database
from tailrace.dead_letters import AsyncDeadLetters, DeadLetters, SyncDeadLetters
from tailrace.drivers import UsingAsyncConnection, UsingConnection
from tailrace.jobs import AsyncJobs, Jobs, SyncJobs
from tailrace.leases import AsyncLeases, Leases, SyncLeases
from tailrace.queues import AsyncQueues, Queues, SyncQueues
from tailrace.schedules.words import AsyncSchedules, Schedules, SyncSchedules
from tailrace.workers import AsyncWorkers, SyncWorkers, Workers

__all__ = ["Admin", "AdminUsing", "AsyncAdminUsing"]


class Admin:
    """All words, sync and async, each on a pool of its own that opens at first use."""

    def __init__(self, database: Database, namespace: str = "") -> None:
        """Open nothing.

        Args:
            database: What is administered.
            namespace: The label of metrics.
        """
        self.jobs = Jobs(database)
        """Live jobs."""
        self.dead_letters = DeadLetters(database, namespace)
        """Jobs that cannot go on."""
        self.queues = Queues(database)
        """Queues and their settings."""
        self.schedules = Schedules(database)
        """What fires when."""
        self.leases = Leases(database)
        """Who runs what."""
        self.workers = Workers(database)
        """Processes."""


class AdminUsing:
    """The sync words on the caller's connection, in the caller's transaction."""

    def __init__(self, conn: Connection, database: Database, namespace: str = "") -> None:
        """Borrow a connection.

        Args:
            conn: Stays the caller's.
            database: Whose schema it is.
            namespace: The label of metrics.
        """
        driver = UsingConnection(conn)
        self.jobs = SyncJobs(database.blocks, driver)
        """Live jobs."""
        self.dead_letters = SyncDeadLetters(database.blocks, driver, namespace)
        """Jobs that cannot go on."""
        self.queues = SyncQueues(database.blocks, driver)
        """Queues and their settings."""
        self.schedules = SyncSchedules(database.blocks, driver)
        """What fires when."""
        self.leases = SyncLeases(database.blocks, driver)
        """Who runs what."""
        self.workers = SyncWorkers(database.blocks, driver)
        """Processes."""


class AsyncAdminUsing:
    """The awaited words on the caller's async connection, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection, database: Database, namespace: str = "") -> None:
        """Borrow a connection.

        Args:
            conn: Stays the caller's.
            database: Whose schema it is.
            namespace: The label of metrics.
        """
        driver = UsingAsyncConnection(conn)
        self.jobs = AsyncJobs(database.blocks, driver)
        """Live jobs."""
        self.dead_letters = AsyncDeadLetters(database.blocks, driver, namespace)
        """Jobs that cannot go on."""
        self.queues = AsyncQueues(database.blocks, driver)
        """Queues and their settings."""
        self.schedules = AsyncSchedules(database.blocks, driver)
        """What fires when."""
        self.leases = AsyncLeases(database.blocks, driver)
        """Who runs what."""
        self.workers = AsyncWorkers(database.blocks, driver)
        """Processes."""
