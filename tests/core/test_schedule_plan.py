"""Which ticks are fired now: the window that is made up for, a minute of grace, and long outages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tailrace.schedules.plan import LATE_SECONDS, Plan, plan_ticks
from tailrace.schedules.times import Cron, Every, Timing

NOON = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
MINUTELY = Cron("* * * * *")


def plan(timing: Timing, since: timedelta, *, now: datetime = NOON, catch_up: float = 0, most: int = 1000) -> Plan:
    return plan_ticks(timing, last_tick=now - since, now=now, catch_up_seconds=catch_up, most=most)


def test_nothing_is_due_before_its_time() -> None:
    found = plan(Cron("5 12 * * *"), timedelta(hours=1))
    assert found == Plan((), None, 0, NOON + timedelta(minutes=5))


def test_a_tick_is_due_at_its_very_time_and_fired_once() -> None:
    assert plan(MINUTELY, timedelta(seconds=30)) == Plan((NOON,), None, 0, NOON + timedelta(minutes=1))
    assert plan(MINUTELY, timedelta(0)) == Plan((), None, 0, NOON + timedelta(minutes=1))


def test_a_tick_that_is_a_little_late_is_fired_without_any_window() -> None:
    """A restart of the only runner must not skip the night's run."""
    late = NOON + timedelta(seconds=LATE_SECONDS - 1)
    assert plan(Cron("0 12 * * *"), timedelta(hours=2), now=late).ticks == (NOON,)


@pytest.mark.parametrize("seconds", [LATE_SECONDS + 1, 3600, 86_400 * 30])
def test_what_is_too_far_back_is_missed_and_counted(seconds: float) -> None:
    now = NOON + timedelta(seconds=seconds)
    found = plan(Cron("0 12 28 11 *"), timedelta(days=40), now=now)
    assert (found.ticks, found.passed, found.missed) == ((), NOON, 1)
    assert found.next == NOON.replace(year=2027)


def test_the_window_is_made_up_for_tick_by_tick_and_the_rest_is_missed() -> None:
    found = plan(MINUTELY, timedelta(hours=10), catch_up=300)
    assert found.ticks == tuple(NOON - timedelta(minutes=m) for m in (4, 3, 2, 1, 0))
    assert (found.missed, found.passed) == (595, NOON - timedelta(minutes=5))


def test_a_window_longer_than_the_outage_misses_nothing() -> None:
    found = plan(Cron("0 * * * *"), timedelta(hours=5), catch_up=86_400)
    assert (len(found.ticks), found.passed, found.missed) == (5, None, 0)


def test_a_plan_has_a_bound_and_tells_where_it_goes_on() -> None:
    """Long catch-up windows are fired in batches: the next tick is due already."""
    found = plan(Every(1), timedelta(seconds=50), most=10)
    assert len(found.ticks) == 10
    assert found.next == found.ticks[-1] + timedelta(seconds=1) < NOON


def test_a_very_long_outage_is_leapt_over() -> None:
    """A year of seconds is not counted one by one."""
    found = plan(Every(1), timedelta(days=365), catch_up=2, most=100)
    assert found.missed == 1000
    assert found.passed == NOON - timedelta(seconds=LATE_SECONDS)
    assert len(found.ticks) == 60


def test_a_clock_that_was_set_back_fires_nothing_twice() -> None:
    assert plan(MINUTELY, timedelta(minutes=-5)) == Plan((), None, 0, NOON + timedelta(minutes=6))
