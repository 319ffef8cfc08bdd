"""Which ticks of a schedule are to be fired now, and which are too far back. Pure.

`tailrace.maintenance.cron` is told the database's time and the last tick, asks here, and has the database fire the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tailrace.schedules.times import Timing

__all__ = ["LATE_SECONDS", "Plan", "plan_ticks"]

LATE_SECONDS: Final = 60.0
"""A tick that is late by no more than this is fired in any case: a runner was restarted, or another had to step in."""

_MOST_COUNTED: Final = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one schedule.

    Attributes:
        ticks: To fire, oldest first.
        passed: Up to here ticks are too far back, or None.
        missed: How many these are; after a very long time only the first thousand are counted.
        next: The first tick that is not in this plan; it may be due already when the plan is full.
    """

    ticks: tuple[datetime, ...]
    passed: datetime | None
    missed: int
    next: datetime


def plan_ticks(timing: Timing, *, last_tick: datetime, now: datetime, catch_up_seconds: float, most: int) -> Plan:
    """Plan one schedule.

    Args:
        timing: When it fires.
        last_tick: The last tick that was dealt with.
        now: The database's time.
        catch_up_seconds: How far back missed ticks are made up for.
        most: The most ticks in one plan.
    """
    horizon = now - timedelta(seconds=max(catch_up_seconds, LATE_SECONDS))
    passed, missed = _missed(timing, last_tick, horizon)
    source = timing.ticks(max(last_tick, horizon))
    ticks: list[datetime] = []
    tick = next(source)
    while tick <= now and len(ticks) < most:
        ticks.append(tick)
        tick = next(source)
    return Plan(tuple(ticks), passed, missed, tick)


def _missed(timing: Timing, last_tick: datetime, horizon: datetime) -> tuple[datetime | None, int]:
    passed, missed = None, 0
    if last_tick < horizon:
        for tick in timing.ticks(last_tick):
            if tick > horizon:
                break
            passed, missed = tick, missed + 1
            if missed == _MOST_COUNTED:
                return horizon, missed
    return passed, missed
