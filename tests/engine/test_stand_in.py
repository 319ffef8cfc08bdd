"""When a worker runs a routine itself: the rule alone, without a database."""

from __future__ import annotations

import pytest

from tailrace.maintenance import StandIn
from tailrace.maintenance.stand_in import Seen


def test_a_worker_stands_in_after_two_periods_and_steps_back() -> None:
    part = StandIn(15)
    assert part.pause == 5
    assert not part.should_run(Seen("a", 29))
    assert part.should_run(Seen("a", 31))
    part.ran(Seen("b", 0))
    assert (part.standing_in, part.pause) == (True, 15)
    assert part.should_run(Seen("b", 14))
    part.ran(Seen("c", 0))
    assert not part.should_run(Seen("d", 3))
    assert (part.standing_in, part.pause) == (False, 5)


@pytest.mark.parametrize("seen", [None, Seen("a", -3600)])
def test_never_and_in_the_future_are_too_long_ago(seen: Seen | None) -> None:
    """A clock that was set back must not keep everybody waiting."""
    assert StandIn(15).should_run(seen)


def test_a_failed_run_is_not_standing_in() -> None:
    part = StandIn(15)
    assert part.should_run(None)
    part.ran(None)
    assert not part.standing_in
