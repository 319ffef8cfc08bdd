"""How long the faults last: as the contract says, or short enough to be part of every test run."""

from __future__ import annotations

import os
from dataclasses import dataclass

VARIABLE = "TAILRACE_CHAOS_LENGTH"


@dataclass(frozen=True)
class Length:
    """Durations in seconds.

    Attributes:
        before: How long the throughput is measured before a fault.
        least: The part of what the slots can do that it must reach: less is no measure of what must be back.
        lease: Of the workers in faults that are measured in leases.
        reaper: Their reaper's interval.
        frozen: How long a worker stands still.
        outage: How long the server is away.
        losing: How long answers are lost.
        locking: How long an application holds its locks.
        crowd: How many workers claim at once…
        rounds: …so many times.
        back: The part of the throughput before a fault that must be back…
        back_seconds: …so soon after its end. Short runs share the machine with other tests, and allow for that.
        quick_lease: Of the workers in all other faults.
        quick_reaper: Their reaper's interval.
    """

    before: float
    least: float
    lease: float
    reaper: float
    frozen: float
    outage: float
    losing: float
    locking: float
    crowd: int
    rounds: int
    back: float
    back_seconds: float
    quick_lease: float = 3.0
    quick_reaper: float = 1.0


SHORT = Length(
    before=3,
    least=0.2,
    lease=3,
    reaper=1,
    frozen=6,
    outage=10,
    losing=8,
    locking=15,
    crowd=6,
    rounds=1,
    back=0.8,
    back_seconds=15,
)
FULL = Length(
    before=10, least=0.5, lease=60, reaper=15, frozen=90, outage=90, losing=60, locking=60, crowd=20, rounds=3, back=0.95,
    back_seconds=10,
)  # fmt: skip


def chosen() -> Length:
    """Return the length that the environment asks for."""
    return FULL if os.environ.get(VARIABLE) == "full" else SHORT
