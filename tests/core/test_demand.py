"""How many workers a queue needs, from what is known of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.demand import STALE_SECONDS, Bounds, LimitedBy, Load, Terms, demand, recommend
from tailrace.queue_spec import JobQueueSpec

TERMS = Terms(slots=4, latency_target_seconds=60, utilization=0.75)
BOUNDS = Bounds(minimum=0, maximum=20)
AUTO = {"mode": "Operator", "minReplicas": 1, "maxReplicas": 7, "targetUtilizationPercent": 50}


def advice(current: int = 1, *, bounds: Bounds = BOUNDS, terms: Terms = TERMS, step: int = 4, **known: Any) -> Any:
    """A recommendation for a queue of which this is known."""
    load = Load(**{"claimable": 0, "running": 0, **known})
    return recommend(load, terms=terms, bounds=bounds, current=current, step=step)


# ---- the number ------------------------------------------------------------------------------------------------------
def test_flow_drain_and_busy() -> None:
    """Flow = λS / cρ, drain = BS / cT, busy = R / c; the total never falls below what is busy."""
    found = demand(Load(claimable=120, running=6, arrivals=3.0, run_seconds=2.0), TERMS)
    assert found.flow == pytest.approx(3 * 2 / (4 * 0.75))
    assert found.drain == pytest.approx(120 * 2 / (4 * 60))
    assert found.busy == pytest.approx(6 / 4)
    assert found.total == pytest.approx(3.0)
    assert demand(Load(claimable=0, running=30, arrivals=0.1, run_seconds=2.0), TERMS).total == 7.5
    assert found.as_json() == {"flow": 2.0, "drain": 1.0, "busy": 1.5, "total": 3.0}


def test_before_the_first_run_a_run_counts_as_a_quarter_of_the_target() -> None:
    """One worker for each 4c jobs, at least."""
    assert demand(Load(claimable=160, running=0), TERMS).drain == 10.0
    for target, slots in itertools.product((1, 60, 3600), (1, 10)):
        terms = Terms(slots=slots, latency_target_seconds=target)
        assert demand(Load(claimable=4 * slots * 3, running=0), terms).total == pytest.approx(3)


def test_a_run_costs_at_least_ten_milliseconds() -> None:
    short, shortest = (demand(Load(claimable=24_000, running=0, run_seconds=s), TERMS) for s in (0.0001, 0.01))
    assert short == shortest
    assert shortest.drain == 1.0


# ---- rounding and bounds ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("claimable", "workers"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2), (160, 10)], ids=lambda value: str(value)
)
def test_it_is_rounded_up(claimable: int, workers: int) -> None:
    found = advice(claimable=claimable)
    assert (found.workers, found.limited_by) == (workers, LimitedBy.NONE)


def test_bounds_win_and_say_so() -> None:
    bounds = Bounds(minimum=2, maximum=5)
    assert (advice(3, bounds=bounds).workers, advice(3, bounds=bounds).limited_by) == (2, LimitedBy.MIN)
    found = advice(3, bounds=bounds, claimable=10_000)
    assert (found.workers, found.limited_by) == (5, LimitedBy.MAX)
    assert found.demand.total > 5, "the demand itself is told unclamped"
    assert advice(3, bounds=bounds, claimable=48).limited_by == LimitedBy.NONE


def test_the_most_may_be_zero_and_equal_the_fewest() -> None:
    assert advice(0, bounds=Bounds(minimum=0, maximum=0), claimable=500).workers == 0
    assert advice(7, bounds=Bounds(minimum=7, maximum=7), claimable=0).workers == 7


# ---- zero ------------------------------------------------------------------------------------------------------------
def test_an_idle_queue_goes_to_zero_when_no_job_is_expected_within_the_target() -> None:
    """The average of arrivals only fades: rounded up it would keep a worker for ever."""
    assert advice(arrivals=0.016, run_seconds=1.0).workers == 0
    assert advice(arrivals=0.017, run_seconds=1.0).workers == 1, "bursts between two readings look idle too"
    assert advice(arrivals=0.001, run_seconds=1.0, running=1).workers == 1
    assert advice(arrivals=0.001, run_seconds=1.0, claimable=1).workers == 1


def test_from_zero_it_starts_in_one_step() -> None:
    found = advice(0, claimable=10_000)
    assert (found.workers, found.limited_by) == (4, LimitedBy.SCALE_UP_RATE)
    assert advice(0, claimable=20).workers == 2, "not one: as many as are asked for, up to the step"
    assert advice(4, claimable=10_000).workers == 20
    assert advice(0, bounds=Bounds(minimum=9, maximum=20), claimable=10_000).workers == 9


def test_a_queue_at_zero_wakes_when_its_next_job_is_due() -> None:
    later = advice(0, next_due_seconds=90.0, age_seconds=10.0)
    assert (later.workers, later.wake_in_seconds) == (0, 80.0)
    due = advice(0, next_due_seconds=9.0, age_seconds=10.0)
    assert (due.workers, due.wake_in_seconds) == (1, None)
    assert advice(0).wake_in_seconds is None
    assert advice(3, next_due_seconds=90.0, claimable=48).wake_in_seconds is None
    assert advice(0, bounds=Bounds(minimum=0, maximum=0), next_due_seconds=0.0).workers == 0


def test_what_cannot_run_asks_for_nothing() -> None:
    """h2: scheduled, held, blocked and unclaimable jobs are not claimable, however many there are."""
    assert advice(0, next_due_seconds=604_800.0).workers == 0
    assert advice(1, bounds=Bounds(minimum=1, maximum=9)).workers == 1


# ---- no knowledge, no change -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("current", [0, 1, 7])
@pytest.mark.parametrize("load", [None, Load(claimable=9_999, running=0, age_seconds=STALE_SECONDS + 1)], ids=["none", "stale"])
def test_without_a_fresh_reading_nothing_changes(load: Load | None, current: int) -> None:
    """An outage that read as a length of 0 has scaled fleets to zero elsewhere."""
    found = recommend(load, terms=TERMS, bounds=BOUNDS, current=current)
    assert (found.workers, found.limited_by, found.demand) == (current, LimitedBy.STALE_READING, None)


def test_bounds_hold_without_a_reading_too() -> None:
    """They are no guess: a file that asks for two workers gets them from the start."""
    bounds = Bounds(minimum=2, maximum=3)
    assert [recommend(None, terms=TERMS, bounds=bounds, current=n).workers for n in (0, 2, 9)] == [2, 2, 3]
    assert recommend(None, terms=TERMS, bounds=bounds, current=0).limited_by == LimitedBy.MIN


def test_a_reading_counts_up_to_its_age() -> None:
    assert advice(0, claimable=16, age_seconds=STALE_SECONDS).workers == 1


# ---- holds -----------------------------------------------------------------------------------------------------------
def test_a_held_queue_keeps_its_fleet() -> None:
    for found in (advice(3, held=True, claimable=999), advice(3, bounds=Bounds(minimum=0, maximum=9, stop_policy="Hold"))):
        assert (found.workers, found.limited_by) == (3, LimitedBy.HOLD)
    assert advice(0, bounds=Bounds(minimum=0, maximum=9, stop_policy="Hold"), claimable=999).workers == 0


def test_hold_and_drain_goes_to_zero_whatever_is_known() -> None:
    bounds = Bounds(minimum=3, maximum=9, stop_policy="HoldAndDrain")
    assert advice(5, bounds=bounds, claimable=999).workers == 0
    stopped = recommend(None, terms=TERMS, bounds=bounds, current=5)
    assert (stopped.workers, stopped.limited_by) == (0, LimitedBy.HOLD)


# ---- from resources and rows -----------------------------------------------------------------------------------------
def test_terms_and_bounds_of_a_resource() -> None:
    spec = JobQueueSpec.model_validate({"latencyTargetSeconds": 5, "worker": {"slots": 3}, "autoscaling": AUTO, "replicas": 4})
    assert Terms.of(spec) == Terms(slots=3, latency_target_seconds=5, utilization=0.5)
    assert Bounds.of(spec) == Bounds(minimum=1, maximum=7)
    assert Terms.of_settings(spec.database_part()) == Terms.of(spec), "the row tells the same as the resource"
    fixed = JobQueueSpec.model_validate({"replicas": 4, "stopPolicy": "Hold"})
    assert Bounds.of(fixed) == Bounds(minimum=4, maximum=4, stop_policy="Hold")
    assert Terms.of_settings(fixed.database_part()) == Terms.of(fixed) == Terms()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"worker": None},
        {"worker": {"slots": "4"}},
        {"worker": {"slots": -1}, "latencyTargetSeconds": 0},
        {"autoscaling": [1]},
    ],
    ids=str,
)
def test_settings_that_say_nothing_useful_are_the_defaults(settings: dict[str, Any]) -> None:
    """Anybody may write a queue's settings by SQL; the statistics must not fail on them."""
    assert Terms.of_settings(settings) == Terms()


# ---- always ----------------------------------------------------------------------------------------------------------
@settings(deadline=None)
@given(
    claimable=st.integers(0, 10**7),
    running=st.integers(0, 10**5),
    arrivals=st.floats(0, 1e5),
    run_seconds=st.none() | st.floats(0, 1e5),
    next_due=st.none() | st.floats(-1e6, 1e6),
    age=st.floats(0, 120),
    held=st.booleans(),
    current=st.integers(0, 500),
    minimum=st.integers(0, 50),
    room=st.integers(0, 200),
)
def test_it_stays_between_its_bounds_and_gives_way_to_no_less_than_what_runs(
    claimable: int, running: int, arrivals: float, run_seconds: float | None, next_due: float | None, age: float, held: bool,
    current: int, minimum: int, room: int,
) -> None:  # fmt: skip
    bounds = Bounds(minimum=minimum, maximum=minimum + room)
    load = Load(
        claimable=claimable, running=running, arrivals=arrivals, run_seconds=run_seconds, next_due_seconds=next_due,
        age_seconds=age, held=held,
    )  # fmt: skip
    found = recommend(load, terms=TERMS, bounds=bounds, current=current)
    assert bounds.minimum <= found.workers <= bounds.maximum
    if age <= STALE_SECONDS and not held and current > 0:
        assert found.workers >= min(bounds.maximum, -(-running // TERMS.slots))
        more = recommend(Load(**{**vars(load), "claimable": claimable + 1000}), terms=TERMS, bounds=bounds, current=current)
        assert more.workers >= found.workers, "more to do never asks for fewer"
