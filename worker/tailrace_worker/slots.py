"""What one slot does now, and the gate that a certain lease keeps open.

Shared by the lanes (run.py), the timer of timeouts, the heartbeat thread and the drain, which all look at the same
few fields.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from tailrace.clock import boot
from tailrace.completion import Completion
from tailrace.job import Stop, StopReason
from tailrace_worker.rows import ATTEMPT, EXTRA, ID, KEYED, MARK, TASK, TOKEN, Row

STUCK_SECONDS = 10.0
"""How long a handler may run on after it was told to stop before the worker gives up on it (engine rule 8)."""


class Slot:
    """One job at a time.

    Attributes:
        row: The job that runs, as it was claimed; None while idle.
        since: When it started, by the boot clock.
        deadline: When it times out; infinity for never.
        reason: Why it was told to stop.
        told: When it was told.
        threaded: It runs in a thread, which cannot be cancelled.
        calling: The payload was understood and the handler has been called.
        completion: The run's right to complete its job in a transaction of its own; None for handlers without a context.
        result: What the handler has returned.
    """

    __slots__ = (
        "calling",
        "completion",
        "deadline",
        "number",
        "queue",
        "reason",
        "result",
        "row",
        "since",
        "stop",
        "task",
        "threaded",
        "told",
    )

    def __init__(self, queue: str, number: int) -> None:
        self.queue, self.number = queue, number
        self.row: Row | None = None
        self.since, self.deadline, self.told = 0.0, math.inf, math.inf
        self.reason: StopReason | None = None
        self.stop: Stop | None = None
        self.completion: Completion | None = None
        self.result: object = None
        self.threaded = self.calling = False
        self.task: asyncio.Task[None] | None = None

    def tell(self, reason: StopReason) -> None:
        """Tell what runs to stop: `ctx.stop` always, cancellation too for async handlers unless it is only a shutdown notice."""
        if self.row is None or (self.reason is not None and self.reason != "shutdown"):
            return
        if self.stop is not None:
            self.stop.set(reason)
        if reason == "shutdown":
            return
        self.interrupt(reason)

    def interrupt(self, reason: StopReason) -> None:
        """Cancel what runs: an async handler at its next await, a sync one by its stop signal alone."""
        self.reason, self.told, self.deadline = reason, boot(), math.inf
        if self.stop is not None:
            self.stop.set(reason)
        if not self.threaded and self.task is not None:
            self.task.cancel()

    def clear(self) -> None:
        """Forget the run that ended; a cancellation that is still pending was for it."""
        while self.reason is not None and self.task is not None and self.task.cancelling():
            self.task.uncancel()
        self.reason, self.stop, self.told, self.threaded, self.completion = None, None, math.inf, False, None
        self.result = None

    def stuck(self, now: float) -> bool:
        """Whether the handler still runs long after it was told to stop, or should have been told."""
        return self.row is not None and (now > self.told + STUCK_SECONDS or now > self.deadline + STUCK_SECONDS)

    @property
    def completed(self) -> bool:
        """Whether the handler has completed its job in a transaction, which may or may not have been committed."""
        return self.completion is not None and self.completion.done

    def log_fields(self) -> Mapping[str, Any]:
        """The running job, for log records."""
        row = self.row
        if row is None:
            return {}
        return {"job_id": row[ID], "queue": self.queue, "task": row[TASK], "attempt": row[ATTEMPT]}

    def has_key(self, *, queue: str, task: str, tenant: str, key: str) -> bool:
        """Whether a job runs here and has this key: what it enqueues under it follows it."""
        row = self.row
        if row is None or not row[MARK] & KEYED or row[TASK] != task or self.queue != queue:
            return False
        own = row[EXTRA] or {}
        return bool(own.get("key") == key and (own.get("tenant") or "") == tenant)

    def holds(self, token: int) -> bool:
        """Whether the running job was claimed with this token."""
        return self.row is not None and self.row[TOKEN] == token


class Gate:
    """Whether jobs may start: the lease is certain until a moment on the boot clock, and the database answers.

    `until` is one attribute that each start compares with the clock; closing sets it to 0.
    """

    def __init__(self) -> None:
        self.until = 0.0
        self._certain = 0.0
        self._blocked = False
        self._opened = asyncio.Event()

    def confirm(self, until: float) -> None:
        """A heartbeat was confirmed: the lease is certain until then."""
        self._certain = until
        self._settle()

    def block(self, *, blocked: bool) -> None:
        """Close the gate, or let the lease decide again."""
        self._blocked = blocked
        self._settle()

    @property
    def certain(self) -> float:
        """Until when the lease is certain, by the boot clock, whether jobs may start or not."""
        return self._certain

    def _settle(self) -> None:
        self.until = 0.0 if self._blocked else self._certain
        if boot() < self.until:
            self._opened.set()
        else:
            self._opened.clear()

    @property
    def open(self) -> bool:
        """Whether a job may start now."""
        return boot() < self.until

    async def wait(self) -> None:
        """Wait until jobs may start."""
        while not self.open:
            self._opened.clear()
            await self._opened.wait()
