"""How a queue stands, as one record: for the live table, plain lines and JSON alike.

Pure: the words of STATUS are made here from what `session` knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.demand import LimitedBy, Recommendation
from tailrace.readings import Reading
from tailrace_cli.dev.fleet import Fleet

__all__ = ["Status", "status_of"]


@dataclass(frozen=True, kw_only=True)
class Status:
    """One queue now."""

    queue: str
    """Its name."""
    status: str
    """Ready, Starting, Draining, ScaledToZero, OnHold, Failing or NoReading."""
    workers: int
    """Workers that claim."""
    wanted: int
    """Workers there should be."""
    draining: int
    """Workers that end."""
    restarts: int
    """Workers that ended by themselves, since the start."""
    ready: int
    """Jobs that a worker could take."""
    running: int
    """Jobs that run."""
    scheduled: int
    """Jobs that are due later, first runs and retries."""
    held: int
    """Due jobs of a queue on hold."""
    unclaimable: int
    """Due jobs of tasks that no worker knows."""
    dead: int
    """Dead letters."""
    oldest_ready_age: float | None
    """Age of the oldest ready job, in seconds."""
    next_due_in: float | None
    """Seconds until the next scheduled job is due."""
    arrivals: float
    """Jobs that come in a second."""
    run_seconds: float | None
    """What a run takes."""
    demand: float | None
    """Workers that the load asks for, not rounded."""
    limited_by: str
    """What keeps `wanted` from being that."""

    def facts(self) -> dict[str, Any]:
        """What is worth a new line when it changes; ages always do."""
        aging = ("oldest_ready_age", "next_due_in", "arrivals", "run_seconds", "demand")
        return {name: value for name, value in vars(self).items() if name not in aging}


def status_of(fleet: Fleet, reading: Reading | None, advice: Recommendation, *, stopping: bool) -> Status:
    """Put together how a queue stands.

    Args:
        fleet: Its workers.
        reading: Its last reading.
        advice: What was made of it.
        stopping: Whether everything ends.
    """
    counts = {} if reading is None else reading.counts
    claimable = counts.get("claimable", 0)
    next_due = None if reading is None else reading.next_due_seconds
    if reading is not None and next_due is not None:
        next_due = max(0.0, next_due - (reading.age_seconds or 0.0))
    oldest = None if reading is None else reading.oldest_ready_seconds
    return Status(
        queue=fleet.plan.queue,
        status=_word(fleet, advice, stopping=stopping),
        workers=fleet.count(ready=True),
        wanted=fleet.wanted,
        draining=fleet.count(draining=True),
        restarts=fleet.restarts,
        ready=claimable,
        running=counts.get("running", 0),
        scheduled=counts.get("scheduled", 0) + counts.get("retrying", 0),
        held=counts.get("held", 0),
        unclaimable=max(0, counts.get("ready", 0) + counts.get("unclaimable", 0) - claimable),
        dead=counts.get("dead", 0),
        oldest_ready_age=None if oldest is None else round(oldest, 1),
        next_due_in=None if next_due is None else round(next_due, 1),
        arrivals=0.0 if reading is None else round(reading.arrivals, 3),
        run_seconds=None if reading is None or reading.run_seconds is None else round(reading.run_seconds, 4),
        demand=None if advice.demand is None else round(advice.demand.total, 2),
        limited_by=str(advice.limited_by),
    )


def _word(fleet: Fleet, advice: Recommendation, *, stopping: bool) -> str:
    if stopping or (fleet.wanted == 0 and fleet.count(draining=True)):
        return "Draining"
    if fleet.failing:
        return "Failing"
    if advice.limited_by == LimitedBy.HOLD:
        return "OnHold"
    if advice.limited_by == LimitedBy.STALE_READING:
        return "NoReading"
    if fleet.wanted == 0:
        return "ScaledToZero"
    return "Ready" if fleet.count(ready=True) >= fleet.wanted else "Starting"
