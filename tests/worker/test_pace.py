"""How many jobs one claim takes: the free slots, and more only while jobs are known to be short."""

from __future__ import annotations

from tailrace_worker.pace import AHEAD_SECONDS, BATCH_BYTES, BATCH_ROWS, SINGLE_SECONDS, Pace


def measured(slots: int, *, seconds: float, jobs: int, within: float = 1.0) -> Pace:
    """A pace that has seen jobs of one length."""
    pace = Pace(slots, 0.0)
    for _ in range(jobs):
        pace.run_seconds += seconds
        pace.runs += 1
    pace.ended(jobs)
    pace.size(running=0, waiting=0, now=within)
    return pace


def test_nothing_is_taken_ahead_before_the_run_time_is_known() -> None:
    """FQ-04."""
    pace = Pace(10, 0.0)
    assert pace.size(running=0, waiting=0, now=0.1) == 10
    assert pace.size(running=4, waiting=1, now=0.2) == 5
    assert pace.size(running=10, waiting=0, now=0.3) == 0


def test_long_jobs_are_taken_one_for_each_free_slot() -> None:
    """FQ-04."""
    pace = measured(2, seconds=1.0, jobs=2)
    assert pace.ahead == 0
    assert pace.size(running=1, waiting=0, now=2.0) == 1
    assert pace.size(running=2, waiting=0, now=2.1) <= 0


def test_short_jobs_come_in_batches_of_a_thousand() -> None:
    pace = measured(10, seconds=0.00001, jobs=20_000)
    assert pace.size(running=10, waiting=0, now=1.1) == BATCH_ROWS


def test_what_is_taken_ahead_starts_within_the_horizon() -> None:
    pace = measured(10, seconds=0.01, jobs=1000)
    assert pace.ahead <= AHEAD_SECONDS * 10 / 0.01
    assert pace.ahead > 0


def test_a_rate_that_is_not_reached_does_not_count() -> None:
    """Jobs of 1 ms that come once a second are not fetched by the hundred."""
    pace = measured(10, seconds=0.001, jobs=1)
    assert pace.ahead <= 10 + 1


def test_large_payloads_make_small_batches() -> None:
    pace = measured(10, seconds=0.00001, jobs=20_000)
    for _ in range(50):
        pace.payload(200_000)
    assert pace.size(running=0, waiting=0, now=1.1) <= max(10, BATCH_BYTES // 200_000)


def test_jobs_that_turn_slow_end_the_prefetch_at_once() -> None:
    """FQ-04."""
    pace = measured(10, seconds=0.00001, jobs=20_000)
    pace.slower(0.2)
    assert pace.ahead == 0
    assert pace.size(running=10, waiting=50, now=1.1) < 0


def test_last_attempts_that_went_back_end_the_prefetch_for_a_while() -> None:
    pace = measured(10, seconds=0.00001, jobs=20_000)
    pace.last_attempts(2.0)
    assert pace.size(running=0, waiting=0, now=2.1) == 10
    assert pace.ahead == 0
    assert pace.size(running=0, waiting=0, now=2.0 + SINGLE_SECONDS + 0.1) > 10


def test_a_queue_may_forbid_taking_ahead() -> None:
    pace = measured(10, seconds=0.00001, jobs=20_000)
    pace.prefetch = False
    assert pace.size(running=0, waiting=0, now=1.1) == 10
