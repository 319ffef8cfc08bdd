"""A worker in place of a missing runner: when it steps in, when it steps back, and what it holds meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.db import Database
from tailrace.maintenance import Loop, RoutineResult, StandIn, routines
from tailrace.maintenance.stand_in import Seen
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually


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


def test_one_of_two_workers_runs_the_routines_and_a_real_runner_takes_over(rows: Rows, place: Database, running: Any) -> None:
    """Without a controller workers run the routines; gaps stay below three intervals, so the reaper stays steady."""
    seen: dict[str, list[RoutineResult]] = {"a": [], "b": []}
    stops = {
        name: running(Loop(place, routines(["reaper"], reaper_seconds=2), stand_in=True, on_result=ticks.append))
        for name, ticks in seen.items()
    }
    eventually(lambda: max(len(s) for s in seen.values()) >= 4, 30, what="four ticks of one")
    one = max(seen, key=lambda name: len(seen[name]))
    two = "b" if one == "a" else "a"
    assert len(seen[two]) <= 2  # both may have met the empty table at once, and each other again
    began = rows.value("select steady_since from tailrace.maintenance where routine = 'reaper'")

    stops[one].set()
    before = len(seen[two])
    eventually(lambda: len(seen[two]) >= before + 2, 30, what="the other one standing in")
    assert rows.value("select steady_since from tailrace.maintenance where routine = 'reaper'") == began

    real: list[RoutineResult] = []
    running(Loop(place, routines(["reaper"], reaper_seconds=2), on_result=real.append))
    eventually(lambda: len(real) >= 2, 30, what="the real runner")
    before = len(seen[two])
    eventually(lambda: len(real) >= 5, 30, what="the real runner going on")
    assert len(seen[two]) <= before + 1


def test_an_onlooker_keeps_no_connection(place: Database, database: RigDatabase, running: Any) -> None:
    """A worker uses three connections; looking borrows a fourth for a moment only."""
    seen: list[RoutineResult] = []
    running(Loop(place, routines(["reaper"], reaper_seconds=1), stand_in=True, on_result=seen.append))
    eventually(lambda: seen, what="a tick")
    eventually(lambda: database.backends("tailrace maintain") == [], what="the end of its connection")
