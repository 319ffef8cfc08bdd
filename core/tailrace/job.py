"""What a handler sees of its job: the job, its context, and the signal to stop.

Plain objects without a database: the worker fills them, and a test can make them by hand.
Neighbours: `app` and `task` (which parameter is the context), the worker's run of a job.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Literal

from typing_extensions import TypeVar

from tailrace.completion import Completion
from tailrace.enqueue.connections import AsyncConnection, SyncConnection
from tailrace.errors import TailraceError
from tailrace.json_text import encode

Resources = TypeVar("Resources", default=Any)
StopReason = Literal["shutdown", "timeout", "cancel", "lease_lost"]
SAVED_LIMIT_BYTES: Final = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One job as its handler sees it.

    Attributes:
        id: kept through retries and requeues.
        queue: the queue it was taken from.
        task: the task's name.
        key: the dedupe key, if it has one.
        serial_group: the group of which one job runs at a time, if it has one.
        tenant: whose job it is; empty when nobody said.
        meta: small facts from the producer; not part of the payload.
        created_at: when it was enqueued, by the database's clock.
        run_at: when this run was due, by the database's clock.
        scheduled_for: the tick of the schedule that made it, if one did.
    """

    id: int
    queue: str
    task: str
    key: str | None = None
    serial_group: str | None = None
    tenant: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime
    run_at: datetime
    scheduled_for: datetime | None = None


class Stop:
    """The signal that a run should end: readable from any thread, set once.

    `reason` is None until it is set: `shutdown` (finish if you can, you have the drain timeout), `timeout`, `cancel` or
    `lease_lost`.
    """

    __slots__ = ("_event", "_lock", "_reason", "_watchers")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._reason: StopReason | None = None
        self._watchers: list[Callable[[], None]] = []

    @property
    def reason(self) -> StopReason | None:
        """Why the run should end; the first reason stays, but what forbids going on replaces `shutdown`."""
        return self._reason

    def is_set(self) -> bool:
        """Whether the run should end."""
        return self._reason is not None

    def wait(self, seconds: float | None = None) -> bool:
        """Block this thread until the signal comes; False when `seconds` passed without it. For sync handlers."""
        return self._event.wait(seconds)

    async def until(self, seconds: float | None = None) -> bool:
        """As `wait`, for async handlers: the loop goes on meanwhile."""
        if self.is_set():
            return True
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()

        def wake() -> None:
            # set() may come from another thread, after this loop has been closed
            if not loop.is_closed():
                loop.call_soon_threadsafe(heard.set)

        self.watch(wake)
        try:
            await asyncio.wait_for(heard.wait(), seconds)
        except TimeoutError:
            return self.is_set()
        finally:
            self.unwatch(wake)
        return True

    def set(self, reason: StopReason) -> None:
        """Give the signal; the worker does. May be called from any thread."""
        with self._lock:
            if self._reason is None or self._reason == "shutdown":
                self._reason = reason
            watchers, self._watchers = self._watchers, []
            self._event.set()
        for wake in watchers:
            wake()

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when the signal comes, in the thread that gives it; at once if it has come."""
        with self._lock:
            if self._reason is None:
                self._watchers.append(wake)
                return
        wake()

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Forget a watcher."""
        with self._lock:
            if wake in self._watchers:
                self._watchers.remove(wake)


class JobContext(Generic[Resources]):
    """What a handler gets as its first parameter, when it asks for it.

    Attributes:
        resources: what `@app.lifespan` yielded.
        job: the job.
        attempt: the number of this run, from 1.
        max_attempts: how many runs it has.
        deadline: when this run times out, by this machine's clock; None without a timeout.
        log: a logger whose records carry the job.
        stop: tells that the run should end.
        saved: what an earlier run of this job saved; None when none did.
    """

    __slots__ = ("_completion", "_store", "attempt", "deadline", "job", "log", "max_attempts", "resources", "saved", "stop")

    def __init__(
        self,
        *,
        resources: Resources,
        job: Job,
        attempt: int = 1,
        max_attempts: int = 5,
        deadline: datetime | None = None,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger] | None = None,
        stop: Stop | None = None,
        saved: Any = None,
        save: Callable[[str], None] | None = None,
        completion: Completion | None = None,
    ) -> None:
        self.resources = resources
        self.job = job
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.deadline = deadline
        self.log = log if log is not None else logging.getLogger(f"tailrace.task.{job.task}")
        self.stop = stop if stop is not None else Stop()
        self.saved = saved
        self._store = save
        self._completion = completion

    def save(self, state: Any) -> None:
        """Keep a small state for the next run of this job; it survives retry, snooze and hand-back, and ends with the job.

        It is written with the outcome of this run, so a process that is killed loses it.

        Args:
            state: anything that is JSON, at most 4 KiB.

        Raises:
            InvalidPayload: it is no JSON or too large.
        """
        text = encode(state, limit=SAVED_LIMIT_BYTES, root="saved", hint="Keep large state in a table of your own")
        self.saved = json.loads(text)
        if self._store is not None:
            self._store(text)

    def complete_in(self, conn: SyncConnection, result: object = None) -> None:
        """Finish this job inside the handler's own transaction: its effects in that database happen exactly once.

        The transaction commits the effects and the end of the job together. What the handler does or raises after that
        commit changes nothing any more. If the transaction is rolled back, the run has failed with `CompletionNotCommitted`
        (or with what the handler raised), and is tried again by the policy.

        Args:
            conn: A psycopg connection to the database of the jobs, in a transaction; nothing is committed here.
            result: What is kept as the job's result, at most 64 KiB as JSON; only for tasks with `keep_result`.

        Raises:
            LeaseLost: The job is no longer this run's. The server refuses to commit the transaction.
            InvalidOption: A result was given that the task does not keep, or the connection is of another kind or not in a
                transaction.
            InvalidPayload: The result is no JSON, or too large.
            TailraceError: This context belongs to no run of a worker.
        """
        self._own_completion().complete(conn, result)

    async def acomplete_in(self, conn: AsyncConnection, result: object = None) -> None:
        """As `complete_in`, for a connection that is awaited.

        Args:
            conn: A psycopg connection to the database of the jobs, in a transaction; nothing is committed here.
            result: As there.
        """
        await self._own_completion().acomplete(conn, result)

    def _own_completion(self) -> Completion:
        if self._completion is None:
            raise TailraceError("this context belongs to no run of a worker", hint="Test handlers that complete with a worker")
        return self._completion


__all__ = ["SAVED_LIMIT_BYTES", "Job", "JobContext", "Resources", "Stop", "StopReason"]
