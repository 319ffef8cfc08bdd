"""The words on dead letters for code that is awaited; `words` has their twins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, overload

from typing_extensions import Unpack

from tailrace.db import Blocks
from tailrace.dead_counters import Tally
from tailrace.dead_letters.filters import (
    BulkWords,
    DeadLetterFilter,
    FilterWords,
    RequeueBulkWords,
    RequeueWords,
    ResolveBulkWords,
    ResolveWords,
)
from tailrace.dead_letters.operations import Operation
from tailrace.dead_letters.records import BulkChange, DeadLetter, DeadLetterInfo, DeadLetterStats
from tailrace.dead_letters.statements import DeadLetterStatements, how_of
from tailrace.drivers import AsyncDriver, OwnPoolAsync, WrongWord
from tailrace.jobs.records import Change
from tailrace.pages import DEFAULT_LIMIT, MAX_LIMIT, Page

__all__ = ["AsyncDeadLetters"]


class AsyncDeadLetters(WrongWord):
    """The words of `SyncDeadLetters`, awaited."""

    def __init__(self, blocks: Blocks, driver: AsyncDriver, namespace: str = "") -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
            namespace: The label of the metrics.
        """
        self._async = driver
        self._statements = DeadLetterStatements(blocks)
        self._tally = Tally(namespace, tells=isinstance(driver, OwnPoolAsync))

    # ---- look --------------------------------------------------------------------------------------------------------
    async def aget(self, job_id: int) -> DeadLetter:
        """Return a dead letter with everything."""
        return await self._async.arun(self._statements.get(job_id))

    async def alist(
        self, *, limit: int = DEFAULT_LIMIT, after: str | None = None, **which: Unpack[FilterWords]
    ) -> Page[DeadLetterInfo]:
        """Return a page of dead letters, newest failure first; `after` continues a page.

        Where what is asked for is rare, a page may have fewer rows than its limit and still go on.
        """
        return await self._async.arun(self._statements.list(DeadLetterFilter.of(which), limit=limit, after=after))

    async def aexport(self, **which: Unpack[FilterWords]) -> AsyncIterator[DeadLetter]:
        """Yield all dead letters of a filter with everything, newest failure first, page by page."""
        after: str | None = None
        while True:
            page = await self._async.arun(self._statements.export(DeadLetterFilter.of(which), limit=MAX_LIMIT, after=after))
            for letter in page:
                yield letter
            after = page.after
            if after is None:
                return

    async def acount(self, **which: Unpack[FilterWords]) -> int:
        """Return how many dead letters a list of this filter has in all."""
        return (await self._async.arun(self._statements.count(DeadLetterFilter.of(which))))[0]

    async def astats(self, queue: str | None = None) -> DeadLetterStats:
        """Return counts of one queue or of all."""
        return await self._async.arun(self._statements.stats(queue))

    # ---- change ------------------------------------------------------------------------------------------------------
    @overload
    async def arequeue(self, job_ids: int | Iterable[int], **how: Unpack[RequeueWords]) -> tuple[Change, ...]: ...

    @overload
    async def arequeue(self, **words: Unpack[RequeueBulkWords]) -> BulkChange: ...

    async def arequeue(self, job_ids: int | Iterable[int] | None = None, **words: Any) -> tuple[Change, ...] | BulkChange:
        """Put jobs back under their ids: given ones, all or none, or those of a filter.

        Raises:
            Conflict: With ids: a job lives again already, or another holds its key.
            NotFound: An id is unknown.
        """
        return await self._achange("requeue", job_ids, words)

    @overload
    async def aresolve(self, job_ids: int | Iterable[int], **how: Unpack[ResolveWords]) -> tuple[Change, ...]: ...

    @overload
    async def aresolve(self, **words: Unpack[ResolveBulkWords]) -> BulkChange: ...

    async def aresolve(self, job_ids: int | Iterable[int] | None = None, **words: Any) -> tuple[Change, ...] | BulkChange:
        """Say that dead letters are dealt with, and how; raises like `arequeue`."""
        return await self._achange("resolve", job_ids, words)

    @overload
    async def adelete(self, job_ids: int | Iterable[int]) -> tuple[Change, ...]: ...

    @overload
    async def adelete(self, **words: Unpack[BulkWords]) -> BulkChange: ...

    async def adelete(self, job_ids: int | Iterable[int] | None = None, **words: Any) -> tuple[Change, ...] | BulkChange:
        """Delete dead letters for good; raises like `arequeue`. Those whose job lives are kept."""
        return await self._achange("delete", job_ids, words)

    @overload
    async def anote(self, job_ids: int | Iterable[int], note: str) -> tuple[Change, ...]: ...

    @overload
    async def anote(self, job_ids: None, note: str, **words: Unpack[BulkWords]) -> BulkChange: ...

    async def anote(self, job_ids: int | Iterable[int] | None, note: str, **words: Any) -> tuple[Change, ...] | BulkChange:
        """Append a note, with its time and writer; raises like `arequeue`."""
        return await self._achange("note", job_ids, {**words, "note": note})

    async def aadd(self, queue: str, task: str, payload: Mapping[str, Any], **options: Any) -> int:
        """Add a dead letter by hand and return its job's id; one of the same key that is dead is superseded.

        Options: error (mapping or text), error_type, attempts, note, and key, serial_group, tenant, priority, max_attempts,
        timeout, backoff, meta, trace as in enqueue.
        """
        added = await self._async.arun(self._statements.add(queue, task, payload, options))
        self._tally.add("add", [(queue, task, 1)])
        return added

    async def _achange(
        self, verb: str, job_ids: int | Iterable[int] | None, words: dict[str, Any]
    ) -> tuple[Change, ...] | BulkChange:
        if job_ids is not None:
            done = await self._async.arun(self._statements.change(verb, job_ids, how_of(verb, words)))
            self._tally.add(verb, done.counts)
            return done.changes
        operation = Operation(self._statements, self._tally, verb, words)
        if operation.dry_run:
            return operation.counted(await self._async.arun(operation.count()))
        operation.begun(await self._async.arun(operation.begin()))
        while True:
            operation.took(await self._async.arun(operation.step()))
            if operation.result.finished:
                return operation.result
            for seconds in operation.pauses():
                await asyncio.sleep(seconds)
            if operation.stopped:
                await self._async.arun(operation.stop())
                return operation.result
