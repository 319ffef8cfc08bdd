"""How long the faults last: as the contract says, or short enough to be part of every test run."""

from __future__ import annotations

import os
from dataclasses import dataclass

VARIABLE = "TAILRACE_CHAOS_LENGTH"


@dataclass(frozen=True)
class Length:
    """Durations in seconds.

    Attributes:
        lease: Of the workers in faults that are measured in leases.
        reaper: Their reaper's interval.
        frozen: How long a worker stands still.
        outage: How long the server is away.
        losing: How long answers are lost.
        locking: How long an application holds its locks.
        back: The part of the throughput before a fault that must be back…
        back_seconds: …so soon after its end. Short runs share the machine with other tests, and allow for that.
        quick_lease: Of the workers in all other faults.
        quick_reaper: Their reaper's interval.
    """

    lease: float
    reaper: float
    frozen: float
    outage: float
    losing: float
    locking: float
    back: float
    back_seconds: float
    quick_lease: float = 3.0
    quick_reaper: float = 1.0


SHORT = Length(lease=3, reaper=1, frozen=6, outage=10, losing=8, locking=15, back=0.8, back_seconds=15)
FULL = Length(lease=60, reaper=15, frozen=90, outage=90, losing=60, locking=60, back=0.95, back_seconds=10)


def chosen() -> Length:
    """Return the length that the environment asks for."""
    return FULL if os.environ.get(VARIABLE) == "full" else SHORT
