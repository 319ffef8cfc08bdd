"""What a look at dead letters gives: frozen records with the field names of the view `dead_letters`.

A list leaves out what can be large (payload, errors), a single one has it all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

__all__ = [
    "DEAD_LETTER_STATES",
    "ERROR_TYPES",
    "REASONS",
    "BulkChange",
    "DeadLetter",
    "DeadLetterInfo",
    "DeadLetterStats",
    "Problem",
    "TaskCount",
]

DEAD_LETTER_STATES: Final = ("dead", "requeued", "resolved")
"""dead = waits for somebody; requeued = its job lives again; resolved = dealt with."""

REASONS: Final = ("max_attempts", "permanent", "timeout", "lease_expired", "interrupted", "manual")
"""Why a job is here."""

ERROR_TYPES: Final = (
    "timeout",
    "network",
    "not_found",
    "unauthorized",
    "forbidden",
    "validation",
    "rate_limit",
    "unavailable",
    "unknown",
)
"""The kinds of errors."""


@dataclass(frozen=True)
class DeadLetterInfo:
    """A dead letter, without what can be large."""

    job_id: int
    """The job's id, kept when it is requeued."""
    state: str
    """dead, requeued or resolved."""
    queue: str
    """Its queue."""
    task: str
    """The task that ran it."""
    key: str | None
    """What makes it unique in (tenant, queue, task)."""
    tenant: str
    """Whose it is; empty = nobody's."""
    reason: str
    """Why it is here."""
    error_type: str
    """The kind of its last error."""
    last_error: dict[str, Any] | None
    """Its last error: type, message, traceback, attempt, worker, time."""
    fingerprint: str
    """The same for failures of one kind: task, class and place."""
    total_attempts: int
    """Charged runs over all its lives."""
    dead_count: int
    """How often it came here."""
    requeued_count: int
    """How often it was put back."""
    first_failed_at: datetime
    """When it came here first."""
    failed_at: datetime
    """When it came here last."""
    last_requeued_at: datetime | None
    """When it was last put back."""
    resolved_at: datetime | None
    """When it was dealt with."""
    created_at: datetime
    """When its job was enqueued."""
    age: float
    """Seconds since failed_at."""


@dataclass(frozen=True)
class DeadLetter(DeadLetterInfo):
    """A dead letter with everything."""

    payload: dict[str, Any]
    """The task's parameters."""
    errors: tuple[dict[str, Any], ...]
    """The last ten errors."""
    history: tuple[dict[str, Any], ...]
    """What was done with it."""
    notes: str | None
    """What people wrote."""
    resolution: str | None
    """How it was dealt with."""
    priority: int
    """The job's priority."""
    run_at: datetime
    """When the job was due last."""
    max_attempts: int
    """The job's limit of charged runs."""
    timeout: float | None
    """The longest run in seconds; 0 = no limit, None = the queue's."""
    backoff: dict[str, Any] | None
    """Its own retry policy; None = the queue's."""
    meta: dict[str, Any] | None
    """What the producer noted."""
    saved: Any
    """What its handler saved."""
    worker: str | None
    """Who ran it last."""
    serial_group: str | None
    """The group it belonged to."""
    trace: str | None
    """The trace context of its enqueue."""


@dataclass(frozen=True)
class TaskCount:
    """How many dead letters one task has."""

    task: str
    """The task."""
    dead: int
    """Its dead letters in state dead."""


@dataclass(frozen=True)
class DeadLetterStats:
    """Counts of the dead letters of one queue or of all."""

    dead: int
    """In state dead: the size that is alarmed on."""
    unique_tasks: int
    """Tasks with dead ones."""
    unique_queues: int
    """Queues with dead ones."""
    average_attempts: float
    """Charged runs of a dead one on average; 0 when there is none."""
    total_requeued: int
    """How often the dead ones were put back before."""
    oldest_failure: datetime | None
    """The oldest failed_at of the dead."""
    newest_failure: datetime | None
    """The newest failed_at of the dead."""
    tasks: tuple[TaskCount, ...]
    """The ten tasks with the most dead ones."""
    requeued: int
    """In state requeued."""
    resolved: int
    """In state resolved."""


@dataclass(frozen=True)
class Problem:
    """A dead letter that a change of many did not change."""

    job_id: int
    """Its job."""
    outcome: str
    """conflict: its state or a live job does not allow it; busy: somebody else was changing it; failed: the row was refused."""
    detail: str
    """What exactly."""


@dataclass(frozen=True)
class BulkChange:
    """What a change of many dead letters did, or did so far."""

    verb: str
    """requeue, delete, resolve or note."""
    done: int
    """How many were changed; with dry_run how many would be looked at."""
    failed: int
    """How many could not be."""
    problems: tuple[Problem, ...]
    """The first thousand of those that could not be changed."""
    finished: bool
    """Whether nothing of it is left."""
    dry_run: bool = False
    """Nothing was changed."""
    tasks: tuple[TaskCount, ...] = ()
    """The ten tasks with the most of them, with dry_run."""
    operation: int | None = None
    """Its number in table `operation`; None with dry_run."""
    as_of: datetime | None = None
    """When the set was fixed: what died later is not in it."""
    resumed: bool = False
    """It went on with a change that had been broken off."""
