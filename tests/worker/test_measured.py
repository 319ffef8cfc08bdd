"""What a worker publishes of its run times."""

from __future__ import annotations

import math

import pytest

from tailrace_worker.measured import FADE_SECONDS, Measured
from tailrace_worker.pace import Pace
from tests.rig.processes import StartWorker
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually
from tests.worker.board import Board


def ran(pace: Pace, runs: int, seconds: float) -> None:
    """Count runs as the lanes and the next claim do."""
    pace.runs += runs
    pace.run_seconds += seconds
    pace.size(running=0, waiting=0, now=1.0)


def test_sums_fade_and_keep_their_ratio() -> None:
    """The statistics add the sums of all workers: those that ran more, and lately, count more."""
    now = [0.0]
    pace, idle = Pace(4, 0.0), Pace(4, 0.0)
    measured = Measured({"q": pace, "idle": idle}, lambda: now[0])
    assert measured() == {}
    ran(pace, 10, 5.0)
    assert measured() == {"q": {"runs": 10.0, "seconds": 5.0}}
    now[0] = FADE_SECONDS
    faded = measured()["q"]
    assert faded["runs"] == pytest.approx(10 / math.e, rel=1e-3)
    assert faded["seconds"] / faded["runs"] == pytest.approx(0.5, rel=1e-3)
    ran(pace, 1, 9.0)
    assert measured()["q"]["seconds"] == pytest.approx(5 / math.e + 9, rel=1e-3)
    now[0] = 3600.0
    assert measured() == {}, "after an hour nothing is left to say"


def test_each_heartbeat_publishes_them(database: RigDatabase, worker_process: StartWorker) -> None:
    with database.connect() as conn:
        board = Board(conn)
        worker_process("tests.worker.apps:app", "--lease-seconds", "3").wait_ready()
        board.enqueue("nap", seconds=0.3)
        measured = eventually(lambda: board.value("select measured -> 'work' from tailrace.worker"), what="a beat that tells")
        assert 0.9 < measured["runs"] <= 1
        assert 0.3 <= measured["seconds"] / measured["runs"] < 3
        board.wait_gone()
