"""Leases: who runs what, and taking a lease from somebody by hand.

Behind `app.leases` and `tailrace leases`. A live lease is released with force only, and counts as lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tailrace.db import Blocks, Database, Statement
from tailrace.drivers import AsyncDriver, OwnPool, OwnPoolAsync, SyncDriver, WrongWord
from tailrace.errors import InvalidOption
from tailrace.pages import DEFAULT_LIMIT, Page, check_id, check_limit, frozen, page_reader, read_cursor

__all__ = ["AsyncLeases", "LeaseInfo", "LeaseStatements", "Leases", "ReleasedLease", "SyncLeases"]

_MOST_TOKENS = 1000


@dataclass(frozen=True)
class LeaseInfo:
    """A worker's right to a batch of jobs."""

    token: int
    """The random number that guards each write."""
    state: str
    """live; expired = its worker was not heard of in time; orphaned = its worker has no row."""
    queue: str
    """The jobs' queue."""
    worker: str
    """Who has it."""
    jobs: int
    """Jobs of the batch when it was claimed."""
    age: float
    """Seconds since the claim."""
    remaining: float | None
    """Seconds until it expires, negative when it has; None without a worker's row."""
    claimed_at: datetime
    """When it was claimed."""
    until: datetime | None
    """Until when its worker is known to live."""
    ids: tuple[int, ...]
    """The jobs it was claimed for; some may have ended."""


@dataclass(frozen=True)
class ReleasedLease:
    """What became of a lease that was to be released."""

    token: int
    """Which."""
    worker: str | None
    """Who had it."""
    queue: str | None
    """The jobs' queue."""
    jobs: int
    """Jobs it still held."""
    result: str
    """released; live = refused without force; busy = its rows are locked, try again; missing = no such lease."""


class LeaseStatements:
    """Builds statements for one schema."""

    def __init__(self, blocks: Blocks) -> None:
        """Take the SQL.

        Args:
            blocks: Of the database's schema.
        """
        self._blocks = blocks

    def list(
        self, *, queue: str | None = None, worker: str | None = None, limit: int = DEFAULT_LIMIT, after: str | None = None
    ) -> Statement[Page[LeaseInfo]]:
        """A page of leases by token.

        Args:
            queue: Of this queue only.
            worker: Of this worker only.
            limit: 1 to 500.
            after: The cursor of the page before.
        """
        check_limit(limit)
        (last,) = read_cursor(after, int) or (None,)
        params = {"queue": queue, "worker": worker, "after": last, "n": limit + 1}
        reader = page_reader(
            lambda row: LeaseInfo(*frozen(row)),
            lambda item: (item.token,),
            limit,
        )
        return Statement(self._blocks["leases.list"], params, reader)

    def release(self, tokens: int | Iterable[int], *, force: bool) -> Statement[tuple[ReleasedLease, ...]]:
        """Take leases from their workers.

        Args:
            tokens: One token or up to 1,000.
            force: Also from live workers.
        """
        chosen = sorted({check_id(one, field="token") for one in ([tokens] if isinstance(tokens, int) else tokens)})
        if not 1 <= len(chosen) <= _MOST_TOKENS:
            raise InvalidOption(f"give 1 to {_MOST_TOKENS} tokens", field="token", hint="Release in several calls")
        return Statement(
            self._blocks["leases.release"],
            {"tokens": chosen, "force": force},
            lambda rows: tuple(ReleasedLease(*row) for row in rows),
        )


class SyncLeases(WrongWord):
    """Words that wait."""

    def __init__(self, blocks: Blocks, driver: SyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._sync = driver
        self._statements = LeaseStatements(blocks)

    def list(
        self, *, queue: str | None = None, worker: str | None = None, limit: int = DEFAULT_LIMIT, after: str | None = None
    ) -> Page[LeaseInfo]:
        """Return a page of leases; `after` continues a page."""
        return self._sync.run(self._statements.list(queue=queue, worker=worker, limit=limit, after=after))

    def release(self, tokens: int | Iterable[int], *, force: bool = False) -> tuple[ReleasedLease, ...]:
        """Take leases from their workers and tell what became of each; a live one only with force."""
        return self._sync.run(self._statements.release(tokens, force=force))


class AsyncLeases(WrongWord):
    """The same words, awaited."""

    def __init__(self, blocks: Blocks, driver: AsyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._async = driver
        self._statements = LeaseStatements(blocks)

    async def alist(
        self, *, queue: str | None = None, worker: str | None = None, limit: int = DEFAULT_LIMIT, after: str | None = None
    ) -> Page[LeaseInfo]:
        """Return a page of leases; `after` continues a page."""
        return await self._async.arun(self._statements.list(queue=queue, worker=worker, limit=limit, after=after))

    async def arelease(self, tokens: int | Iterable[int], *, force: bool = False) -> tuple[ReleasedLease, ...]:
        """Take leases from their workers and tell what became of each; a live one only with force."""
        return await self._async.arun(self._statements.release(tokens, force=force))


class Leases(SyncLeases, AsyncLeases):
    """Both kinds of words, each on a pool of its own that opens at first use."""

    def __init__(self, database: Database) -> None:
        """Open nothing.

        Args:
            database: Where the leases are.
        """
        SyncLeases.__init__(self, database.blocks, OwnPool(database))
        AsyncLeases.__init__(self, database.blocks, OwnPoolAsync(database))
