"""What people type to enqueue: `enqueue`, `aenqueue`, `job`, and the same for many.

A word that begins with `a` is awaited and has a twin that is not; a class for each kind of connection, so that checkers see
the wrong word. Neighbours: `prepare` (checks), `senders` (sends), `task` and `app` (where the words are).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, cast

from tailrace.db import AsyncConnection, Connection
from tailrace.drivers import WrongWord
from tailrace.enqueue.new_job import NewJob, Receipt
from tailrace.enqueue.prepare import CallOptions, new_job, ready_call, ready_job
from tailrace.enqueue.statements import PreparedJob

if TYPE_CHECKING:
    from tailrace.app import App
    from tailrace.task import TaskSpec

P = ParamSpec("P")
_SLICE: Final = 500
"""Jobs that an awaited word checks before it lets the loop go on."""


class JobWords(Generic[P]):
    """A task with options: makes jobs.

    Args:
        spec: The task.
        app: Its application.
        conn: The caller's connection, or None for the own pool.
        options: By name.
    """

    def __init__(self, spec: TaskSpec, app: App, conn: object, options: Mapping[str, Any]) -> None:
        self._spec = spec
        self._app = app
        self._conn = conn
        self._options = CallOptions(spec, options)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return a checked job to send later, to compare, or to schedule; no I/O.

        Raises:
            InvalidPayload: An argument does not fit the task; the field is its path.
        """
        return new_job(self._spec, self._options, args, kwargs)


class SyncEnqueue(JobWords[P], WrongWord):
    """The words for a connection that blocks."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Store a job.

        Raises:
            InvalidPayload: An argument does not fit the task; nothing was sent.
            InvalidOption: The database refused an option; nothing was stored.
            DatabaseUnavailable: The database cannot be reached.
        """
        job = ready_call(self._app, self._spec, self._options, args, kwargs)
        return self._app.sync_sender(cast("Connection | None", self._conn)).one(job)


class AsyncEnqueue(JobWords[P], WrongWord):
    """The words for a connection that is awaited."""

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Store a job; the loop goes on meanwhile. Errors as `enqueue`."""
        job = ready_call(self._app, self._spec, self._options, args, kwargs)
        return await self._app.async_sender(cast("AsyncConnection | None", self._conn)).one(job)


class BothEnqueue(SyncEnqueue[P], AsyncEnqueue[P]):
    """Both words, on the process's own pools."""


class ManyWords:
    """Jobs that carry their own options, on an application."""

    def __init__(self, app: App, conn: object) -> None:
        """Borrow a connection.

        Args:
            app: The application.
            conn: The caller's, or None for the own pool.
        """
        self._app = app
        self._conn = conn


class SyncMany(ManyWords):
    """The words for a connection that blocks."""

    def enqueue(self, job: NewJob, /) -> Receipt:
        """Store a job by its task's name; the payload is not checked against the task.

        Args:
            job: What to store.

        Raises:
            UnknownTask: The application knows the tasks of this queue, and this is none of them.
            InvalidPayload: The payload is no JSON object that PostgreSQL can keep.
            InvalidOption: It names the option.
        """
        return self._app.sync_sender(cast("Connection | None", self._conn)).one(ready_job(self._app, job))

    def enqueue_many(self, jobs: Iterable[NewJob], /) -> list[Receipt]:
        """Store many jobs, of any tasks; all are checked before the first is sent.

        Args:
            jobs: Such as `task.job(...)` for each row.

        Returns:
            The receipts in the order of the jobs.
        """
        prepared = [ready_job(self._app, job) for job in jobs]
        return self._app.sync_sender(cast("Connection | None", self._conn)).many(prepared)


class AsyncMany(ManyWords):
    """The words for a connection that is awaited."""

    async def aenqueue(self, job: NewJob, /) -> Receipt:
        """As `enqueue`; the loop goes on meanwhile.

        Args:
            job: What to store.
        """
        return await self._app.async_sender(cast("AsyncConnection | None", self._conn)).one(ready_job(self._app, job))

    async def aenqueue_many(self, jobs: Iterable[NewJob], /) -> list[Receipt]:
        """As `enqueue_many`; the loop goes on meanwhile, also while the jobs are checked.

        Args:
            jobs: Such as `task.job(...)` for each row.
        """
        prepared: list[PreparedJob] = []
        for job in jobs:
            prepared.append(ready_job(self._app, job))
            if len(prepared) % _SLICE == 0:
                await asyncio.sleep(0)
        return await self._app.async_sender(cast("AsyncConnection | None", self._conn)).many(prepared)
