"""What the words on schedules return: frozen records, with the names of the view `schedules`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["ScheduleDetails", "ScheduleInfo"]


@dataclass(frozen=True)
class ScheduleInfo:
    """A schedule and how it stands."""

    queue: str
    """Its queue."""
    name: str
    """Unique in its queue."""
    state: str
    """active; failing = its last try went wrong; suspended; absent = no live worker declares it any more."""
    timing: str
    """The crontab line, or the period."""
    time_zone: str
    """The zone of the crontab line."""
    task: str
    """What it enqueues."""
    source: str
    """Who defines it: jobqueue, or worker (an application)."""
    overlap: str
    """What happens while its last job lives: Skip, Replace or Allow."""
    last_tick: datetime
    """The last tick that was fired, skipped or missed; at first when it was added."""
    next_tick: datetime | None
    """The next one; None while it does not run, or before a runner has looked."""
    last_job: int | None
    """The job it enqueued last."""
    last_fired_at: datetime | None
    """When that was."""
    fired: int
    """Jobs it enqueued."""
    skipped: int
    """Ticks without a job, since the one before still lived or another held its key."""
    missed: int
    """Ticks that were too far back when a runner came."""
    failed: int
    """Tries that went wrong."""
    problem: str | None
    """What is wrong with it."""


@dataclass(frozen=True)
class ScheduleDetails(ScheduleInfo):
    """A schedule with its definition."""

    fault: dict[str, Any] | None
    """What is wrong: field, problem, remedy, tick, at."""
    suspended: bool
    """Whether people suspended it."""
    absent_since: datetime | None
    """Since when no live worker declares it."""
    definition: dict[str, Any]
    """When and what, in the words of the JobQueue."""
