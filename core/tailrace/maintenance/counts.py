"""What the maintenance routines of a process did, as plain numbers that its metrics show.

Written by the threads that run them, read by whoever scrapes. Gauges of the last success come from the database, so they
are true whoever ran the routine. Workers and controllers use it as the `Counters` of their loops.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tailrace.histogram import Histogram
from tailrace.maintenance.routine import Verdict

__all__ = ["RoutineCounts"]

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


@dataclass
class RoutineCounts:
    """Counters of routines.

    Attributes:
        runs: Runs by (routine, result).
        errors: Errors by (routine, type).
        durations: How long runs took, by routine.
        leases: Jobs taken over, by (queue, result, evidence).
        died: Jobs moved to the dead letters, by (queue, task, reason).
        back: Dead letters that came back, by (queue, task).
        gone: Dead letters that were deleted, by (queue, task).
        fired: Ticks of schedules, by (queue, result).
        orphans: Jobs with a token and without a lease.
        last_success: When each routine last succeeded, in seconds since 1970 by the database's clock.
    """

    runs: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    durations: dict[str, Histogram] = field(default_factory=dict)
    leases: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    died: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    back: Counter[tuple[str, str]] = field(default_factory=Counter)
    gone: Counter[tuple[str, str]] = field(default_factory=Counter)
    fired: Counter[tuple[str, str]] = field(default_factory=Counter)
    orphans: int = 0
    last_success: dict[str, float] = field(default_factory=dict)

    def ran(self, routine: str, result: Verdict, seconds: float) -> None:
        """One run of a routine."""
        self.runs[routine, result] += 1
        self.durations.setdefault(routine, Histogram(BOUNDS)).observe(seconds)

    def failed(self, routine: str, error_type: str, n: int) -> None:
        """Errors of a run."""
        self.errors[routine, error_type] += n

    def reclaimed(self, queue: str, result: str, evidence: str, n: int) -> None:
        """Jobs whose lease was taken over."""
        self.leases[queue, result, evidence] += n

    def dead(self, queue: str, task: str, reason: str, n: int) -> None:
        """Jobs that a routine moved to the dead letters."""
        self.died[queue, task, reason] += n

    def orphaned(self, n: int) -> None:
        """Jobs that had a token without a lease."""
        self.orphans += n

    def requeued(self, queue: str, task: str, n: int) -> None:
        """Dead letters that came back as jobs."""
        self.back[queue, task] += n

    def deleted(self, queue: str, task: str, n: int) -> None:
        """Dead letters that were too old."""
        self.gone[queue, task] += n

    def ticks(self, queue: str, result: str, n: int) -> None:
        """Ticks of schedules: fired, skipped, missed or failed."""
        self.fired[queue, result] += n
