"""What a look at jobs gives: frozen records with the field names of the view `jobs`.

A list leaves out what can be large (payload, errors), a single job has it all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, get_args

__all__ = ["JOB_STATES", "Change", "JobDetails", "JobInfo", "JobState"]

JobState = Literal["ready", "scheduled", "retrying", "blocked", "held", "unclaimable", "running", "stale"]
"""The states of a live job; each is in exactly one."""

JOB_STATES: Final[tuple[str, ...]] = get_args(JobState)
"""The same as values."""


@dataclass(frozen=True)
class Change:
    """What an administrative word did."""

    target: int | str
    """The id, key or name it was for."""
    outcome: str
    """What became of it, such as cancelled or requested."""
    at: datetime | None = None
    """When the job is due now, or until when the queue is held; None for other words."""


@dataclass(frozen=True)
class JobInfo:
    """A live job, without what can be large."""

    id: int
    """Its id, kept through requeues."""
    state: str
    """One of the eight states."""
    queue: str
    """Its queue."""
    task: str
    """The task that runs it."""
    key: str | None
    """What makes it unique in (tenant, queue, task)."""
    tenant: str
    """Whose it is; empty = nobody's."""
    priority: int
    """High first."""
    run_at: datetime
    """Not before."""
    attempts: int
    """Runs that were charged, the present one included."""
    max_attempts: int
    """How many may be."""
    worker: str | None
    """Who runs it."""
    created_at: datetime
    """When it was enqueued."""
    expires_at: datetime | None
    """Started by then or never."""
    timeout: float | None
    """The longest run in seconds; 0 = no limit, None = the queue's."""
    lost: int
    """Runs whose process died."""
    interrupted: int
    """Runs given back by a stopping worker."""
    snoozes: int
    """Runs that put themselves off."""
    requeues: int
    """How often it came back from the dead letters."""
    serial_group: str | None
    """Jobs of a group run one at a time."""


@dataclass(frozen=True)
class JobDetails(JobInfo):
    """A live job with everything."""

    payload: dict[str, Any]
    """The task's parameters."""
    meta: dict[str, Any] | None
    """What the producer noted."""
    saved: Any
    """What its handler saved."""
    errors: tuple[dict[str, Any], ...]
    """The last ten errors."""
    backoff: dict[str, Any] | None
    """Its own retry policy; None = the queue's."""
    trace: str | None
    """The trace context of its enqueue."""
    claimed_at: datetime | None
    """When the batch it runs in was claimed."""
    cancel_requested: bool
    """Whether somebody asked for its end while it runs."""
