"""What a JobQueue says about its jobs: defaults, tasks, limits, dead letters, history.

All of it goes to the queue's row, so a change of these fields starts no pod anew. The engine reads the row at enqueue
(defaults), at each claim (holds) and when a job fails (backoff, attempts).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from tailrace.queue_spec.base import Count, DaySeconds, DnsLabel, LongSeconds, Part, Priority, Sequence, TaskName, too_long

__all__ = [
    "AutoRequeue",
    "Backoff",
    "DeadLetters",
    "History",
    "JobDefaults",
    "Limits",
    "Rate",
    "TaskOverride",
    "repeated",
]

ErrorType = Literal[
    "timeout", "network", "not_found", "unauthorized", "forbidden", "validation", "rate_limit", "unavailable", "unknown"
]
"""The labels of metrics for kinds of error, as they are."""


class Backoff(Part):
    """How long a failed job waits before its next run."""

    strategy: Literal["Exponential", "Fixed", "FullJitter"] = "Exponential"
    """Exponential doubles the wait each time, Fixed keeps it, FullJitter draws one between 1 s and the doubled value."""
    base_seconds: Annotated[int, Field(ge=0, le=86_400)] = 5
    """The wait after the first failure, in seconds."""
    max_seconds: Annotated[int, Field(ge=0, le=31_622_400)] = 900
    """The longest wait, in seconds."""
    jitter_percent: Annotated[int, Field(ge=0, le=100)] = 20
    """By how many percent a wait is moved at random, up or down."""

    @model_validator(mode="after")
    def _base_below_max(self) -> Self:
        if self.base_seconds > self.max_seconds:
            raise ValueError("baseSeconds must not exceed maxSeconds: lower baseSeconds or raise maxSeconds")
        return self


class JobDefaults(Part):
    """Taken at enqueue unless the enqueue, the task's entry or the decorator says otherwise."""

    priority: Priority = 0
    """High first, -1000 to 1000."""
    timeout_seconds: Annotated[int, Field(ge=0, le=31_622_400)] = 300
    """The longest one run may take, in seconds; 0 = no limit."""
    max_attempts: Count = 5
    """Runs that may end by error, timeout or crash before the job is dead."""
    max_interruptions: Annotated[int, Field(ge=0, le=1000)] = 10
    """Runs given back uncharged because a worker stopped; later ones count as attempts."""
    payload_limit_bytes: Annotated[int, Field(ge=1, le=262_144)] = 262_144
    """The largest payload, in bytes of its JSON text."""
    backoff: Backoff = Backoff()
    """The wait before the next run."""


class TaskOverride(Part):
    """Settings of one task; a field that is left out comes from the decorator, then from jobDefaults."""

    name: TaskName
    """The task's name."""
    priority: Priority | None = None
    """High first, -1000 to 1000."""
    timeout_seconds: Annotated[int, Field(ge=0, le=31_622_400)] | None = None
    """The longest one run may take, in seconds; 0 = no limit."""
    max_attempts: Count | None = None
    """Runs that may end by error, timeout or crash before the job is dead."""
    max_interruptions: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Runs given back uncharged because a worker stopped."""
    backoff: Backoff | None = None
    """The wait before the next run."""
    concurrency_limit: Count | None = None
    """How many jobs of the task run at a time in the whole queue."""

    @field_validator("name")
    @classmethod
    def _fits(cls, value: str) -> str:
        return _in_bytes(value, 200)


class Rate(Part):
    """So many jobs in a period, over all workers."""

    name: DnsLabel
    """The limit's name, unique in the queue."""
    jobs: Count
    """Jobs per period."""
    period_seconds: DaySeconds
    """The period, in seconds."""
    burst: Count | None = None
    """Jobs that may start at once; default: `jobs`."""
    tasks: Annotated[tuple[TaskName, ...], Sequence, Field(max_length=100)] = ()
    """The tasks that are counted; none = every task."""


class Limits(Part):
    """What runs at a time and per period in the whole queue."""

    concurrency: Count | None = None
    """How many jobs run at a time, exact across workers; absent = no limit."""
    rates: Annotated[tuple[Rate, ...], Sequence, Field(max_length=20)] = ()
    """Rate limits; a job needs a unit of each that names its task."""

    @model_validator(mode="after")
    def _unique(self) -> Self:
        if twice := repeated(rate.name for rate in self.rates):
            raise ValueError(f"rates has the name {twice!r} twice: give each limit a name of its own")
        return self


class AutoRequeue(Part):
    """Requeues dead letters of passing errors by itself."""

    after_seconds: Annotated[int, Field(ge=60, le=31_622_400)]
    """How long after the failure, in seconds."""
    max_times: Annotated[int, Field(ge=1, le=100)]
    """How often one job is requeued."""
    error_types: Annotated[tuple[ErrorType, ...], Sequence, Field(min_length=1, max_length=9)]
    """The kinds of error that pass."""


class DeadLetters(Part):
    """How long dead letters stay and whether they come back by themselves."""

    retention_seconds: LongSeconds = 7_776_000
    """How long a dead letter is kept, in seconds (90 days)."""
    resolved_retention_seconds: LongSeconds = 604_800
    """How long a resolved one is kept, in seconds (7 days)."""
    auto_requeue: AutoRequeue | None = None
    """Absent = off."""


class History(Part):
    """Keeps a row for each job that has ended."""

    retention_seconds: LongSeconds
    """How long it is kept, in seconds."""


def repeated(names: Iterable[str]) -> str | None:
    """Return the first name that comes twice, or None.

    Args:
        names: The names of a list that is keyed by name.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _in_bytes(value: str, limit: int) -> str:
    if too_long(value, limit):
        raise ValueError(f"must be at most {limit} bytes of UTF-8: shorten it")
    return value
