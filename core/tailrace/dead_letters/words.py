"""The words on dead letters: plain ones for sync code, their twins with an `a` for async code.

`DeadLetters` has both, each on a pool of its own; on a borrowed connection only the words of its kind exist. Requeueing by
filter, deleting, resolving and noting come with a later release and are refused until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypedDict

from typing_extensions import Unpack

from tailrace.db import Blocks, Database
from tailrace.dead_letters.records import DeadLetter, DeadLetterInfo, DeadLetterStats
from tailrace.dead_letters.statements import DeadLetterFilter, DeadLetterStatements
from tailrace.drivers import AsyncDriver, OwnPool, OwnPoolAsync, SyncDriver, WrongWord
from tailrace.errors import InvalidOption
from tailrace.jobs.records import Change
from tailrace.pages import DEFAULT_LIMIT, Page

__all__ = ["AsyncDeadLetters", "DeadLetters", "FilterWords", "SyncDeadLetters"]


class FilterWords(TypedDict, total=False):
    """The filter of a list, as keyword arguments; see `DeadLetterFilter`."""

    queue: str | None
    task: str | None
    key: str | None
    tenant: str | None
    reason: str | None
    error_type: str | None
    fingerprint: str | None
    state: str
    failed_after: datetime | None
    failed_before: datetime | None
    text: str | None


class SyncDeadLetters(WrongWord):
    """Words that wait. Each raises InvalidOption for a bad argument and NotFound for an unknown id."""

    def __init__(self, blocks: Blocks, driver: SyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._sync = driver
        self._statements = DeadLetterStatements(blocks)

    def get(self, job_id: int) -> DeadLetter:
        """Return a dead letter with everything."""
        return self._sync.run(self._statements.get(job_id))

    def list(self, *, limit: int = DEFAULT_LIMIT, after: str | None = None, **which: Unpack[FilterWords]) -> Page[DeadLetterInfo]:
        """Return a page of dead letters, newest failure first; `after` continues a page."""
        return self._sync.run(self._statements.list(_filter(which), limit=limit, after=after))

    def count(self, **which: Unpack[FilterWords]) -> int:
        """Return how many dead letters a list of this filter has in all."""
        return self._sync.run(self._statements.count(_filter(which)))

    def stats(self, queue: str | None = None) -> DeadLetterStats:
        """Return counts of one queue or of all."""
        return self._sync.run(self._statements.stats(queue))

    def requeue(self, job_ids: int | Iterable[int] = (), *, force: bool = False, **which: Any) -> tuple[Change, ...]:
        """Put jobs back under their ids; all or none. `force` replaces a waiting holder of the same key.

        Raises:
            Conflict: A job lives again already, or another holds its key.
            NotFound: An id is unknown.
        """
        _refuse_filter(which)
        return self._sync.run(self._statements.requeue(job_ids, force=force))


class AsyncDeadLetters(WrongWord):
    """The same words, awaited."""

    def __init__(self, blocks: Blocks, driver: AsyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._async = driver
        self._statements = DeadLetterStatements(blocks)

    async def aget(self, job_id: int) -> DeadLetter:
        """Return a dead letter with everything."""
        return await self._async.arun(self._statements.get(job_id))

    async def alist(
        self, *, limit: int = DEFAULT_LIMIT, after: str | None = None, **which: Unpack[FilterWords]
    ) -> Page[DeadLetterInfo]:
        """Return a page of dead letters, newest failure first; `after` continues a page."""
        return await self._async.arun(self._statements.list(_filter(which), limit=limit, after=after))

    async def acount(self, **which: Unpack[FilterWords]) -> int:
        """Return how many dead letters a list of this filter has in all."""
        return await self._async.arun(self._statements.count(_filter(which)))

    async def astats(self, queue: str | None = None) -> DeadLetterStats:
        """Return counts of one queue or of all."""
        return await self._async.arun(self._statements.stats(queue))

    async def arequeue(self, job_ids: int | Iterable[int] = (), *, force: bool = False, **which: Any) -> tuple[Change, ...]:
        """Put jobs back under their ids; all or none. `force` replaces a waiting holder of the same key.

        Raises:
            Conflict: A job lives again already, or another holds its key.
            NotFound: An id is unknown.
        """
        _refuse_filter(which)
        return await self._async.arun(self._statements.requeue(job_ids, force=force))


class DeadLetters(SyncDeadLetters, AsyncDeadLetters):
    """Both kinds of words, each on a pool of its own that opens at first use."""

    def __init__(self, database: Database) -> None:
        """Open nothing.

        Args:
            database: Where the dead letters are.
        """
        SyncDeadLetters.__init__(self, database.blocks, OwnPool(database))
        AsyncDeadLetters.__init__(self, database.blocks, OwnPoolAsync(database))


def _filter(which: FilterWords) -> DeadLetterFilter:
    unknown = [name for name in which if name not in FilterWords.__annotations__]
    if unknown:
        raise InvalidOption(
            "is no filter of dead letters", field=unknown[0], hint=f"one of {', '.join(FilterWords.__annotations__)}"
        )
    return DeadLetterFilter(**which)


def _refuse_filter(which: dict[str, Any]) -> None:
    if which:
        raise InvalidOption("not in this release", field=next(iter(which)), hint="List first and requeue by ids")
