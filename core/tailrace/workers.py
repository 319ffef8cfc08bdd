"""Workers: the processes that the database knows.

Behind `app.workers` and `tailrace workers`. A worker writes its own row at each heartbeat; nothing here changes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tailrace.db import Blocks, Database, Statement
from tailrace.drivers import AsyncDriver, OwnPool, OwnPoolAsync, SyncDriver, WrongWord
from tailrace.pages import frozen

__all__ = ["AsyncWorkers", "SyncWorkers", "WorkerInfo", "WorkerStatements", "Workers"]


@dataclass(frozen=True)
class WorkerInfo:
    """One process."""

    id: str
    """Its name, unique to this start."""
    state: str
    """working, cordoned (claims nothing more) or draining (ends)."""
    alive: bool
    """Whether it was heard of in time."""
    queues: tuple[str, ...]
    """The queues it serves."""
    slots: int
    """Jobs it runs at a time."""
    jobs: int
    """Jobs of its batches when they were claimed."""
    leases: int
    """Batches it holds."""
    started: datetime
    """When it started."""
    until: datetime
    """Until when it counts as alive."""
    version: str
    """Its release."""
    tasks: tuple[str, ...]
    """The tasks it knows."""
    lease_seconds: float
    """Its lease."""
    pod: str | None
    """The pod it runs in."""
    death: str | None
    """What the kubelet said of its end."""


class WorkerStatements:
    """Builds statements for one schema."""

    def __init__(self, blocks: Blocks) -> None:
        """Take the SQL.

        Args:
            blocks: Of the database's schema.
        """
        self._blocks = blocks

    def list(self, *, queue: str | None = None) -> Statement[tuple[WorkerInfo, ...]]:
        """All workers that have a row, by start.

        Args:
            queue: Those that serve this queue only.
        """
        return Statement(
            self._blocks["leases.workers"],
            {"queue": queue},
            lambda rows: tuple(WorkerInfo(*frozen(row)) for row in rows),
        )

    def died(self, name: str, reason: str) -> Statement[int]:
        """Proof of death, by whoever saw the process end: its leases end now, and its jobs run elsewhere. Returns how many.

        Args:
            name: Its id without the random part; that of one process only.
            reason: How it ended, for the error history of its jobs.
        """
        return Statement(
            self._blocks["leases.died"],
            {"name": name, "reason": reason},
            lambda rows: sum(int(ended["n"]) for _, told in rows for ended in told["rows"]),
        )


class SyncWorkers(WrongWord):
    """Words that wait."""

    def __init__(self, blocks: Blocks, driver: SyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._sync = driver
        self._statements = WorkerStatements(blocks)

    def list(self, *, queue: str | None = None) -> tuple[WorkerInfo, ...]:
        """Return all workers that have a row, or those that serve a queue."""
        return self._sync.run(self._statements.list(queue=queue))


class AsyncWorkers(WrongWord):
    """The same words, awaited."""

    def __init__(self, blocks: Blocks, driver: AsyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._async = driver
        self._statements = WorkerStatements(blocks)

    async def alist(self, *, queue: str | None = None) -> tuple[WorkerInfo, ...]:
        """Return all workers that have a row, or those that serve a queue."""
        return await self._async.arun(self._statements.list(queue=queue))


class Workers(SyncWorkers, AsyncWorkers):
    """Both kinds of words, each on a pool of its own that opens at first use."""

    def __init__(self, database: Database) -> None:
        """Open nothing.

        Args:
            database: Where the workers are known.
        """
        SyncWorkers.__init__(self, database.blocks, OwnPool(database))
        AsyncWorkers.__init__(self, database.blocks, OwnPoolAsync(database))
