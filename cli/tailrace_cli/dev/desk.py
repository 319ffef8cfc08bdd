"""What `tailrace dev` asks of the database, on one connection that is made again when it breaks.

Async, one statement at a time. What cannot be asked now is asked again by the caller; nothing here waits for a database
that is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar

from tailrace.db import AsyncConnection, Database, Statement, arun, errors
from tailrace.errors import TailraceError
from tailrace.jobs import Change
from tailrace.queue_spec import JobQueue
from tailrace.queues import QueueStatements
from tailrace.readings import Reading, ReadingStatements
from tailrace.workers import WorkerStatements

__all__ = ["FAULTS", "Desk"]

FAULTS: Final = (TailraceError, errors.Error, OSError)
"""What asking may fail with while the database is away."""

_SESSION: Final = {"lock_timeout": "5s", "statement_timeout": "10s"}

T = TypeVar("T")


class Desk:
    """The way to the database.

    Args:
        database: Which.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._conn: AsyncConnection | None = None
        self._turn = asyncio.Lock()

    async def apply(self, resource: JobQueue) -> Change:
        """Write the database part of a JobQueue, as `queues apply` does.

        Args:
            resource: The JobQueue.

        Raises:
            Conflict: A controller manages the queue.
        """
        return await self._ask(QueueStatements(self._database.blocks).apply(resource))

    async def readings(self, queues: Iterable[str]) -> dict[str, Reading]:
        """Return the last readings of some queues.

        Args:
            queues: Their names.
        """
        return await self._ask(ReadingStatements(self._database.blocks).of(queues))

    async def jobs_of_workers(self) -> dict[str, int]:
        """Return the living workers by the first part of their id, with the jobs that each holds."""
        found = await self._ask(WorkerStatements(self._database.blocks).list())
        return {worker.id.rpartition("/")[0]: worker.jobs for worker in found if worker.alive}

    async def died(self, name: str, reason: str) -> int:
        """Tell that a process has ended: the proof by which its jobs run elsewhere at once. Returns how many it had.

        Args:
            name: The first part of its id.
            reason: How it ended.
        """
        return await self._ask(WorkerStatements(self._database.blocks).died(name, reason))

    async def close(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    async def _ask(self, statement: Statement[T]) -> T:
        async with self._turn:
            if self._conn is None or self._conn.closed:
                self._conn = await self._database.aconnect(role="dev", options=_SESSION)
            try:
                return await arun(self._conn, statement)
            except BaseException:
                if self._conn.broken or self._conn.closed:
                    await self.close()
                raise
