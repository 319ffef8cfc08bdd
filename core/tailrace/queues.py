"""Queues: list, show, count, hold, resume, apply a JobQueue, purge.

Behind `app.queues` and `tailrace queues`. Changes are public SQL functions; a queue that a controller manages refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tailrace.db import Blocks, Database, Jsonb, Statement
from tailrace.drivers import AsyncDriver, OwnPool, OwnPoolAsync, SyncDriver, WrongWord
from tailrace.errors import InvalidOption, NotFound
from tailrace.jobs.records import Change
from tailrace.jobs.statements import seconds_of
from tailrace.limits import LimitUse
from tailrace.queue_spec import JobQueue, refuse_unsupported

__all__ = ["AsyncQueues", "QueueDetails", "QueueInfo", "QueueStatements", "QueueStats", "Queues", "SyncQueues"]


@dataclass(frozen=True)
class QueueInfo:
    """A queue that has a row, jobs or dead letters."""

    queue: str
    """Its name."""
    held: bool
    """Whether nothing new is claimed now."""
    held_until: datetime | None
    """Until when people hold it; the year 9999 = until it is resumed."""
    workers: int
    """Live workers that serve it."""
    running: int | None
    """Running jobs at the last reading; None before the first."""
    dead: int | None
    """Dead letters in state dead at the last reading."""
    managed_by: str | None
    """Who writes its settings: controller, cli, or nobody."""
    read_at: datetime | None
    """When it was last read."""


@dataclass(frozen=True)
class QueueDetails(QueueInfo):
    """A queue with its settings."""

    held_by_policy: bool
    """Whether its stopPolicy holds it."""
    settings: dict[str, Any]
    """The JobQueue's part that the database keeps."""
    owner: dict[str, Any] | None
    """The resource that owns it."""
    generation: int | None
    """The generation of that resource."""
    orphaned_at: datetime | None
    """Since when that resource is gone: the next that is applied has the queue."""
    reading: dict[str, Any] | None
    """The last reading of its statistics."""
    limits: tuple[LimitUse, ...]
    """Its limits and rates, and how far they are used now."""


@dataclass(frozen=True)
class QueueStats:
    """Counts of a queue's jobs now. The eight states are disjoint and sum to the rows there are."""

    queue: str
    """Its name."""
    ready: int
    """Due and claimable."""
    scheduled: int
    """First run later."""
    retrying: int
    """Waiting after a failed or interrupted run."""
    blocked: int
    """Due, but its group or a limit is taken."""
    held: int
    """Due, but the queue is on hold."""
    unclaimable: int
    """Due, but no live worker knows the task."""
    running: int
    """With a live lease."""
    stale: int
    """With an expired lease, not yet taken over."""
    total: int
    """All of them: the live jobs of the queue."""
    oldest_ready_age: float
    """Age of the oldest ready job in seconds; 0 when there is none."""
    next_due_in: float | None
    """Seconds until the next scheduled or retrying job is due."""
    dead: int
    """Dead letters in state dead."""
    oldest_dead_age: float
    """Seconds since the oldest of them failed; 0 when there is none."""
    read_at: datetime
    """When this was counted."""


class QueueStatements:
    """Builds statements for one schema."""

    def __init__(self, blocks: Blocks) -> None:
        """Take the SQL.

        Args:
            blocks: Of the database's schema.
        """
        self._blocks = blocks

    def list(self) -> Statement[tuple[QueueInfo, ...]]:
        """All queues by name."""
        return Statement(self._blocks["queues.list"], {}, lambda rows: tuple(QueueInfo(*row) for row in rows))

    def show(self, queue: str) -> Statement[QueueDetails]:
        """One queue.

        Args:
            queue: Its name.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> QueueDetails:
            if not rows:
                raise NotFound(f"no queue {queue!r}", field="queue", hint="it has neither settings nor jobs; look at the list")
            columns = (*rows[0][:-1], LimitUse.read(rows[0][-1]))
            return QueueDetails(*columns)

        return Statement(self._blocks["queues.show"], {"queue": queue}, read)

    def stats(self, queue: str) -> Statement[QueueStats]:
        """Counts of one queue.

        Args:
            queue: Its name.
        """
        return Statement(self._blocks["queues.stats"], {"queue": queue}, lambda rows: QueueStats(queue, *rows[0]))

    def hold(self, queue: str, seconds: float | timedelta | None) -> Statement[Change]:
        """Stop claims.

        Args:
            queue: Its name.
            seconds: For how long; None = until it is resumed.
        """
        span = None if seconds is None else seconds_of(seconds, field="seconds")
        params = {"queue": queue, "seconds": span}
        return Statement(self._blocks["queues.hold"], params, lambda rows: Change(queue, "held", rows[0][0]))

    def resume(self, queue: str) -> Statement[Change]:
        """Let claims go on.

        Args:
            queue: Its name.
        """
        return Statement(
            self._blocks["queues.resume"], {"queue": queue}, lambda rows: Change(queue, "resumed" if rows[0][0] else "unchanged")
        )

    def apply(self, wanted: JobQueue) -> Statement[Change]:
        """Write the database part of a JobQueue.

        Args:
            wanted: The resource.
        """
        refuse_unsupported(wanted.spec)
        params = {"queue": wanted.queue, "settings": Jsonb(wanted.spec.database_part())}
        return Statement(self._blocks["queues.apply"], params, lambda rows: Change(wanted.queue, str(rows[0][0])))

    def purge(self, queue: str, *, force: bool) -> Statement[int]:
        """Cancel every waiting job.

        Args:
            queue: Its name.
            force: Also while workers serve it.
        """
        return Statement(self._blocks["queues.purge"], {"queue": queue, "force": force}, lambda rows: int(rows[0][0]))


class SyncQueues(WrongWord):
    """Words that wait. Changes raise Conflict where a controller manages the queue."""

    def __init__(self, blocks: Blocks, driver: SyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._sync = driver
        self._statements = QueueStatements(blocks)

    def list(self) -> tuple[QueueInfo, ...]:
        """Return all queues by name."""
        return self._sync.run(self._statements.list())

    def show(self, queue: str) -> QueueDetails:
        """Return a queue with its settings; NotFound if it has neither row nor jobs."""
        return self._sync.run(self._statements.show(queue))

    def stats(self, queue: str) -> QueueStats:
        """Return counts of a queue's jobs now; reads all of them."""
        return self._sync.run(self._statements.stats(queue))

    def hold(self, queue: str, *, seconds: float | timedelta | None = None) -> Change:
        """Stop claims, for a while or until `resume`; running jobs go on."""
        return self._sync.run(self._statements.hold(queue, seconds))

    def resume(self, queue: str) -> Change:
        """Let claims go on."""
        return self._sync.run(self._statements.resume(queue))

    def apply(self, wanted: JobQueue | str) -> Change:
        """Write the database part of a JobQueue, given as a resource or as the text of its file."""
        return self._sync.run(self._statements.apply(_resource(wanted)))

    def purge(self, queue: str, *, force: bool = False) -> int:
        """Cancel every waiting job and return how many; refused while workers serve the queue, unless forced."""
        return self._sync.run(self._statements.purge(queue, force=force))


class AsyncQueues(WrongWord):
    """The same words, awaited."""

    def __init__(self, blocks: Blocks, driver: AsyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._async = driver
        self._statements = QueueStatements(blocks)

    async def alist(self) -> tuple[QueueInfo, ...]:
        """Return all queues by name."""
        return await self._async.arun(self._statements.list())

    async def ashow(self, queue: str) -> QueueDetails:
        """Return a queue with its settings; NotFound if it has neither row nor jobs."""
        return await self._async.arun(self._statements.show(queue))

    async def astats(self, queue: str) -> QueueStats:
        """Return counts of a queue's jobs now; reads all of them."""
        return await self._async.arun(self._statements.stats(queue))

    async def ahold(self, queue: str, *, seconds: float | timedelta | None = None) -> Change:
        """Stop claims, for a while or until `aresume`; running jobs go on."""
        return await self._async.arun(self._statements.hold(queue, seconds))

    async def aresume(self, queue: str) -> Change:
        """Let claims go on."""
        return await self._async.arun(self._statements.resume(queue))

    async def aapply(self, wanted: JobQueue | str) -> Change:
        """Write the database part of a JobQueue, given as a resource or as the text of its file."""
        return await self._async.arun(self._statements.apply(_resource(wanted)))

    async def apurge(self, queue: str, *, force: bool = False) -> int:
        """Cancel every waiting job and return how many; refused while workers serve the queue, unless forced."""
        return await self._async.arun(self._statements.purge(queue, force=force))


class Queues(SyncQueues, AsyncQueues):
    """Both kinds of words, each on a pool of its own that opens at first use."""

    def __init__(self, database: Database) -> None:
        """Open nothing.

        Args:
            database: Where the queues are.
        """
        SyncQueues.__init__(self, database.blocks, OwnPool(database))
        AsyncQueues.__init__(self, database.blocks, OwnPoolAsync(database))


def _resource(wanted: JobQueue | str) -> JobQueue:
    if isinstance(wanted, JobQueue):
        return wanted
    if not isinstance(wanted, str):
        raise InvalidOption("must be a JobQueue or the text of its file", field="spec", hint="Use JobQueue.from_file")
    return JobQueue.from_file(wanted)
