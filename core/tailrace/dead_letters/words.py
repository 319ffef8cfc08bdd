"""The words on dead letters for code that blocks, and both kinds together.

`async_words` has their twins. Changes take ids, which are changed all or not at all in one transaction, or a filter, whose
set is fixed at the beginning and changed batch by batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

from typing_extensions import Unpack

from tailrace.db import Blocks, Database
from tailrace.dead_counters import Tally
from tailrace.dead_letters.async_words import AsyncDeadLetters
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
from tailrace.drivers import OwnPool, OwnPoolAsync, SyncDriver, WrongWord
from tailrace.jobs.records import Change
from tailrace.pages import DEFAULT_LIMIT, MAX_LIMIT, Page

__all__ = ["DeadLetters", "SyncDeadLetters"]


class SyncDeadLetters(WrongWord):
    """Words that wait. Each raises InvalidOption for a bad argument and NotFound for an unknown id."""

    def __init__(self, blocks: Blocks, driver: SyncDriver, namespace: str = "") -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
            namespace: The label of the metrics.
        """
        self._sync = driver
        self._statements = DeadLetterStatements(blocks)
        self._tally = Tally(namespace, tells=isinstance(driver, OwnPool))

    # ---- look --------------------------------------------------------------------------------------------------------
    def get(self, job_id: int) -> DeadLetter:
        """Return a dead letter with everything."""
        return self._sync.run(self._statements.get(job_id))

    def list(self, *, limit: int = DEFAULT_LIMIT, after: str | None = None, **which: Unpack[FilterWords]) -> Page[DeadLetterInfo]:
        """Return a page of dead letters, newest failure first; `after` continues a page.

        Where what is asked for is rare, a page may have fewer rows than its limit and still go on.
        """
        return self._sync.run(self._statements.list(DeadLetterFilter.of(which), limit=limit, after=after))

    def export(self, **which: Unpack[FilterWords]) -> Iterator[DeadLetter]:
        """Yield all dead letters of a filter with everything, newest failure first, page by page."""
        after: str | None = None
        while True:
            page = self._sync.run(self._statements.export(DeadLetterFilter.of(which), limit=MAX_LIMIT, after=after))
            yield from page
            after = page.after
            if after is None:
                return

    def count(self, **which: Unpack[FilterWords]) -> int:
        """Return how many dead letters a list of this filter has in all."""
        return self._sync.run(self._statements.count(DeadLetterFilter.of(which)))[0]

    def stats(self, queue: str | None = None) -> DeadLetterStats:
        """Return counts of one queue or of all."""
        return self._sync.run(self._statements.stats(queue))

    # ---- change ------------------------------------------------------------------------------------------------------
    @overload
    def requeue(self, job_ids: int | Iterable[int], **how: Unpack[RequeueWords]) -> tuple[Change, ...]: ...

    @overload
    def requeue(self, **words: Unpack[RequeueBulkWords]) -> BulkChange: ...

    def requeue(self, job_ids: int | Iterable[int] | None = None, **words: Any) -> tuple[Change, ...] | BulkChange:
        """Put jobs back under their ids: given ones, all or none, or those of a filter.

        Raises:
            Conflict: With ids: a job lives again already, or another holds its key.
            NotFound: An id is unknown.
        """
        return self._change("requeue", job_ids, words)

    @overload
    def resolve(self, job_ids: int | Iterable[int], **how: Unpack[ResolveWords]) -> tuple[Change, ...]: ...

    @overload
    def resolve(self, **words: Unpack[ResolveBulkWords]) -> BulkChange: ...

    def resolve(self, job_ids: int | Iterable[int] | None = None, **words: Any) -> tuple[Change, ...] | BulkChange:
        """Say that dead letters are dealt with, and how; raises like `requeue`."""
        return self._change("resolve", job_ids, words)

    @overload
    def delete(self, job_ids: int | Iterable[int]) -> tuple[Change, ...]: ...

    @overload
    def delete(self, **words: Unpack[BulkWords]) -> BulkChange: ...

    def delete(self, job_ids: int | Iterable[int] | None = None, **words: Any) -> tuple[Change, ...] | BulkChange:
        """Delete dead letters for good; raises like `requeue`. Those whose job lives are kept."""
        return self._change("delete", job_ids, words)

    @overload
    def note(self, job_ids: int | Iterable[int], note: str) -> tuple[Change, ...]: ...

    @overload
    def note(self, job_ids: None, note: str, **words: Unpack[BulkWords]) -> BulkChange: ...

    def note(self, job_ids: int | Iterable[int] | None, note: str, **words: Any) -> tuple[Change, ...] | BulkChange:
        """Append a note, with its time and writer; raises like `requeue`."""
        return self._change("note", job_ids, {**words, "note": note})

    def add(self, queue: str, task: str, payload: Mapping[str, Any], **options: Any) -> int:
        """Add a dead letter by hand and return its job's id; one of the same key that is dead is superseded.

        Options: error (mapping or text), error_type, attempts, note, and key, serial_group, tenant, priority, max_attempts,
        timeout, backoff, meta, trace as in enqueue.
        """
        added = self._sync.run(self._statements.add(queue, task, payload, options))
        self._tally.add("add", [(queue, task, 1)])
        return added

    def _change(self, verb: str, job_ids: int | Iterable[int] | None, words: dict[str, Any]) -> tuple[Change, ...] | BulkChange:
        if job_ids is not None:
            done = self._sync.run(self._statements.change(verb, job_ids, how_of(verb, words)))
            self._tally.add(verb, done.counts)
            return done.changes
        operation = Operation(self._statements, self._tally, verb, words)
        if operation.dry_run:
            return operation.counted(self._sync.run(operation.count()))
        operation.begun(self._sync.run(operation.begin()))
        while True:
            operation.took(self._sync.run(operation.step()))
            if operation.result.finished:
                return operation.result
            for seconds in operation.pauses():
                time.sleep(seconds)
            if operation.stopped:
                self._sync.run(operation.stop())
                return operation.result


class DeadLetters(SyncDeadLetters, AsyncDeadLetters):
    """Both kinds of words, each on a pool of its own that opens at first use."""

    def __init__(self, database: Database, namespace: str = "") -> None:
        """Open nothing.

        Args:
            database: Where the dead letters are.
            namespace: The label of the metrics.
        """
        SyncDeadLetters.__init__(self, database.blocks, OwnPool(database), namespace)
        AsyncDeadLetters.__init__(self, database.blocks, OwnPoolAsync(database), namespace)
