"""The words on schedules: list, show, run now, suspend, resume; plain ones for sync code, their twins with an `a`.

Behind `app.schedules` and `tailrace schedules`. Changes are public SQL functions, which check and write the audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.db import Blocks, Database, Statement
from tailrace.drivers import AsyncDriver, OwnPool, OwnPoolAsync, SyncDriver, WrongWord
from tailrace.errors import NotFound
from tailrace.jobs.records import Change
from tailrace.schedules.records import ScheduleDetails, ScheduleInfo

__all__ = ["AsyncSchedules", "ScheduleStatements", "Schedules", "SyncSchedules"]


class ScheduleStatements:
    """Builds statements for one schema."""

    def __init__(self, blocks: Blocks) -> None:
        """Take the SQL.

        Args:
            blocks: Of the database's schema.
        """
        self._blocks = blocks

    def list(self, queue: str | None) -> Statement[tuple[ScheduleInfo, ...]]:
        """The schedules of one queue or of all, by queue and name.

        Args:
            queue: None means all.
        """
        return Statement(self._blocks["schedules.list"], {"queue": queue}, lambda rows: tuple(ScheduleInfo(*row) for row in rows))

    def show(self, queue: str, name: str) -> Statement[ScheduleDetails]:
        """One schedule.

        Args:
            queue: Its queue.
            name: Its name.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> ScheduleDetails:
            if not rows:
                raise NotFound(f"queue {queue!r} has no schedule {name!r}", field="name", hint="Look at the list of schedules")
            return ScheduleDetails(*rows[0])

        return Statement(self._blocks["schedules.show"], {"queue": queue, "name": name}, read)

    def run_now(self, queue: str, name: str) -> Statement[int]:
        """Enqueue its job now.

        Args:
            queue: Its queue.
            name: Its name.
        """
        return Statement(self._blocks["schedules.run_now"], {"queue": queue, "name": name}, lambda rows: int(rows[0][0]))

    def suspend(self, queue: str, name: str) -> Statement[Change]:
        """Let it fire no more.

        Args:
            queue: Its queue.
            name: Its name.
        """
        return self._change("suspend", queue, name, "suspended")

    def resume(self, queue: str, name: str) -> Statement[Change]:
        """Let it go on.

        Args:
            queue: Its queue.
            name: Its name.
        """
        return self._change("resume", queue, name, "resumed")

    def _change(self, block: str, queue: str, name: str, outcome: str) -> Statement[Change]:
        def read(rows: Sequence[tuple[Any, ...]]) -> Change:
            return Change(f"{queue}/{name}", outcome if rows[0][0] else "unchanged")

        return Statement(self._blocks[f"schedules.{block}"], {"queue": queue, "name": name}, read)


class SyncSchedules(WrongWord):
    """Words that wait. Each raises NotFound for an unknown schedule."""

    def __init__(self, blocks: Blocks, driver: SyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._sync = driver
        self._statements = ScheduleStatements(blocks)

    def list(self, queue: str | None = None) -> tuple[ScheduleInfo, ...]:
        """Return the schedules of one queue or of all."""
        return self._sync.run(self._statements.list(queue))

    def show(self, queue: str, name: str) -> ScheduleDetails:
        """Return a schedule with its definition."""
        return self._sync.run(self._statements.show(queue, name))

    def run_now(self, queue: str, name: str) -> int:
        """Enqueue its job now, whatever its times, and return the job's number.

        Raises:
            Conflict: Its last job lives, and its overlap is Skip.
        """
        return self._sync.run(self._statements.run_now(queue, name))

    def suspend(self, queue: str, name: str) -> Change:
        """Let it fire no more until it is resumed; its jobs go on."""
        return self._sync.run(self._statements.suspend(queue, name))

    def resume(self, queue: str, name: str) -> Change:
        """Let it go on with its next tick; those of the meantime are not made up for.

        Raises:
            Conflict: Its JobQueue suspends it.
        """
        return self._sync.run(self._statements.resume(queue, name))


class AsyncSchedules(WrongWord):
    """The same words, awaited."""

    def __init__(self, blocks: Blocks, driver: AsyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._async = driver
        self._statements = ScheduleStatements(blocks)

    async def alist(self, queue: str | None = None) -> tuple[ScheduleInfo, ...]:
        """Return the schedules of one queue or of all."""
        return await self._async.arun(self._statements.list(queue))

    async def ashow(self, queue: str, name: str) -> ScheduleDetails:
        """Return a schedule with its definition."""
        return await self._async.arun(self._statements.show(queue, name))

    async def arun_now(self, queue: str, name: str) -> int:
        """Enqueue its job now, whatever its times, and return the job's number.

        Raises:
            Conflict: Its last job lives, and its overlap is Skip.
        """
        return await self._async.arun(self._statements.run_now(queue, name))

    async def asuspend(self, queue: str, name: str) -> Change:
        """Let it fire no more until it is resumed; its jobs go on."""
        return await self._async.arun(self._statements.suspend(queue, name))

    async def aresume(self, queue: str, name: str) -> Change:
        """Let it go on with its next tick; those of the meantime are not made up for.

        Raises:
            Conflict: Its JobQueue suspends it.
        """
        return await self._async.arun(self._statements.resume(queue, name))


class Schedules(SyncSchedules, AsyncSchedules):
    """Both kinds of words, each on a pool of its own that opens at first use."""

    def __init__(self, database: Database) -> None:
        """Open nothing.

        Args:
            database: Where the schedules are.
        """
        SyncSchedules.__init__(self, database.blocks, OwnPool(database))
        AsyncSchedules.__init__(self, database.blocks, OwnPoolAsync(database))
