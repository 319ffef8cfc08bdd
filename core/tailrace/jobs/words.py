"""The words on jobs: plain ones for sync code, their twins with an `a` for async code.

`Jobs` has both, each on a pool of its own; on a borrowed connection only the words of its kind exist. All rules are in
`statements` and in the database.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Protocol

from tailrace.db import Blocks, Database
from tailrace.drivers import AsyncDriver, OwnPool, OwnPoolAsync, SyncDriver, WrongWord
from tailrace.errors import InvalidOption
from tailrace.jobs.records import Change, JobDetails, JobInfo
from tailrace.jobs.results import AsyncResults, SyncResults
from tailrace.jobs.statements import JobFilter, JobStatements
from tailrace.pages import DEFAULT_LIMIT, Page

__all__ = ["AsyncJobs", "Jobs", "NamedTask", "SyncJobs"]


class NamedTask(Protocol):
    """A task of an application: all that is asked of it is its name and queue."""

    @property
    def name(self) -> str:
        """The task's name."""

    @property
    def queue(self) -> str:
        """Its queue."""


class SyncJobs(SyncResults, WrongWord):
    """Words that wait. Each raises InvalidOption for a bad argument and NotFound for an unknown id."""

    def __init__(self, blocks: Blocks, driver: SyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._sync = driver
        self._blocks = blocks
        self._statements = JobStatements(blocks)

    def get(self, job_id: int) -> JobDetails:
        """Return a live job with everything."""
        return self._sync.run(self._statements.get(job_id))

    def list(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        state: str | None = None,
        limit: int = DEFAULT_LIMIT,
        after: str | None = None,
    ) -> Page[JobInfo]:
        """Return a page of live jobs by id; `state` is one of the eight or `waiting`, `after` continues a page."""
        return self._sync.run(self._statements.list(JobFilter(queue, task, key, tenant, state), limit=limit, after=after))

    def count(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        state: str | None = None,
    ) -> int:
        """Return how many jobs a list of this filter has in all."""
        return self._sync.run(self._statements.count(JobFilter(queue, task, key, tenant, state)))

    def cancel(self, job_id: int) -> Change:
        """Remove a waiting job (cancelled), or ask a running one to end (requested)."""
        return self._sync.run(self._statements.cancel(job_id))

    def cancel_by_key(self, task: NamedTask | str, key: str, *, queue: str | None = None, tenant: str = "") -> Change:
        """Cancel the job that holds a key; a task given by name needs its queue."""
        name, its_queue = _named(task, queue)
        return self._sync.run(self._statements.cancel_by_key(queue=its_queue, task=name, key=key, tenant=tenant))

    def run_now(self, job_id: int) -> Change:
        """Make a waiting job due now."""
        return self._sync.run(self._statements.run_now(job_id))

    def reschedule(self, job_id: int, *, run_at: datetime | None = None, delay: float | timedelta | None = None) -> Change:
        """Move a waiting job to an aware time, or by seconds or a timedelta from now."""
        return self._sync.run(self._statements.reschedule(job_id, run_at=run_at, delay=delay))

    def update(self, job_id: int, **changes: Any) -> Change:
        """Change priority, max_attempts, timeout or meta of a waiting job."""
        return self._sync.run(self._statements.update(job_id, changes))


class AsyncJobs(AsyncResults, WrongWord):
    """The same words, awaited."""

    def __init__(self, blocks: Blocks, driver: AsyncDriver) -> None:
        """Take the SQL and the way to the database.

        Args:
            blocks: Of the database's schema.
            driver: Sends statements.
        """
        self._async = driver
        self._blocks = blocks
        self._statements = JobStatements(blocks)

    async def aget(self, job_id: int) -> JobDetails:
        """Return a live job with everything."""
        return await self._async.arun(self._statements.get(job_id))

    async def alist(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        state: str | None = None,
        limit: int = DEFAULT_LIMIT,
        after: str | None = None,
    ) -> Page[JobInfo]:
        """Return a page of live jobs by id; `state` is one of the eight or `waiting`, `after` continues a page."""
        return await self._async.arun(self._statements.list(JobFilter(queue, task, key, tenant, state), limit=limit, after=after))

    async def acount(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        state: str | None = None,
    ) -> int:
        """Return how many jobs a list of this filter has in all."""
        return await self._async.arun(self._statements.count(JobFilter(queue, task, key, tenant, state)))

    async def acancel(self, job_id: int) -> Change:
        """Remove a waiting job (cancelled), or ask a running one to end (requested)."""
        return await self._async.arun(self._statements.cancel(job_id))

    async def acancel_by_key(self, task: NamedTask | str, key: str, *, queue: str | None = None, tenant: str = "") -> Change:
        """Cancel the job that holds a key; a task given by name needs its queue."""
        name, its_queue = _named(task, queue)
        return await self._async.arun(self._statements.cancel_by_key(queue=its_queue, task=name, key=key, tenant=tenant))

    async def arun_now(self, job_id: int) -> Change:
        """Make a waiting job due now."""
        return await self._async.arun(self._statements.run_now(job_id))

    async def areschedule(self, job_id: int, *, run_at: datetime | None = None, delay: float | timedelta | None = None) -> Change:
        """Move a waiting job to an aware time, or by seconds or a timedelta from now."""
        return await self._async.arun(self._statements.reschedule(job_id, run_at=run_at, delay=delay))

    async def aupdate(self, job_id: int, **changes: Any) -> Change:
        """Change priority, max_attempts, timeout or meta of a waiting job."""
        return await self._async.arun(self._statements.update(job_id, changes))


class Jobs(SyncJobs, AsyncJobs):
    """Both kinds of words, each on a pool of its own that opens at first use."""

    def __init__(self, database: Database) -> None:
        """Open nothing.

        Args:
            database: Where the jobs are.
        """
        SyncJobs.__init__(self, database.blocks, OwnPool(database))
        AsyncJobs.__init__(self, database.blocks, OwnPoolAsync(database))


def _named(task: NamedTask | str, queue: str | None) -> tuple[str, str]:
    if not isinstance(task, str):
        return task.name, queue or task.queue
    if queue is None:
        raise InvalidOption("is required with a task's name", field="queue", hint="Give queue=, or the task itself")
    return task, queue
