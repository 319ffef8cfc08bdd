"""Floors: a scan starts a little behind what was examined, and forgets what is further back."""

from __future__ import annotations

import itertools
import random

from tailrace_worker.floors import LOWEST, ROWS_BEHIND, SECONDS_BEHIND, STEP, Floors, Trail
from tests.worker.claimed import row


def test_a_new_priority_is_scanned_from_the_start() -> None:
    floors = Floors()
    assert floors.add(0)
    assert not floors.add(0)
    assert floors.starts(1.0) == {"priorities": [0], "run_ats": [LOWEST[0]], "ids": [LOWEST[1]]}


def test_priorities_are_claimed_from_high_to_low() -> None:
    """CJ-10, CJ-11: strict priority."""
    floors = Floors()
    for priority in (0, 5, -3, 20):
        floors.add(priority)
    assert floors.known == [20, 5, 0, -3]
    assert floors.starts(0.0)["priorities"] == [20, 5, 0, -3]


def test_gaps_lie_between_the_known_priorities_and_cover_all_others() -> None:
    floors = Floors()
    for priority in (10, 0):
        floors.add(priority)
    gaps = floors.gaps()
    pairs = list(zip(gaps["lows"], gaps["highs"], strict=True))
    assert pairs == [(-1001, 0), (0, 10), (10, 1001)]
    covered = {p for low, high in pairs for p in range(low + 1, high)}
    assert covered == set(range(-1000, 1001)) - {0, 10}


def test_a_scan_starts_at_most_256_rows_behind() -> None:
    floors = Floors()
    floors.add(0)
    for batch in range(20):
        floors.claimed([row(batch * 100 + n, run_at=float(batch * 100 + n)) for n in range(100)], now=0.0)
    [start] = floors.starts(0.01)["run_ats"]
    assert 2000 - 2 * ROWS_BEHIND <= start < 2000 - 1


def test_a_scan_starts_at_most_a_quarter_of_a_second_behind() -> None:
    trail = Trail((0.0, 0), 0.0)
    trail.advance((1.0, 1), 1, 9.9)
    trail.advance((2.0, 2), 1, 10.0)
    trail.advance((3.0, 3), 1, 10.2)
    trail.trim(10.0)
    assert trail.start == (1.0, 1)
    trail.trim(10.0 + SECONDS_BEHIND + 0.01)
    assert trail.start == (2.0, 2)
    trail.trim(11.0)
    assert trail.start == trail.newest == (3.0, 3)


def test_the_floor_that_a_worker_was_given_is_left_after_its_first_claim() -> None:
    """What lies between it and the first claimed row (dead, running, unknown) is walked once, not for 256 rows."""
    trail = Trail((1.0, 1), 0.0)
    trail.trim(0.1)
    assert trail.start == (1.0, 1)
    trail.advance((9.0, 9), 10, 0.1)
    trail.trim(0.1)
    assert trail.start == (9.0, 9)


def test_a_floor_never_goes_back_by_itself() -> None:
    trail = Trail((5.0, 5), 0.0)
    for key in ((4.0, 9), (5.0, 4), (5.0, 5)):
        trail.advance(key, 1, 0.0)
    assert trail.newest == (5.0, 5)
    trail.back((2.0, 1), 0.0)
    assert trail.start == trail.newest == (2.0, 1)


def test_claimed_rows_move_the_floor_of_their_own_priority() -> None:
    floors = Floors()
    for priority in (1, 0):
        floors.add(priority)
    floors.claimed([row(1, priority=1, run_at=9.0), row(2, priority=1, run_at=9.5), row(3, run_at=4.0)], now=0.0)
    assert floors.trails[1].newest == (9.5, 2)
    assert floors.trails[0].newest == (4.0, 3)


def test_a_large_claim_leaves_a_mark_every_128_rows() -> None:
    """So that the next scan starts 256 rows behind and not a whole batch."""
    floors = Floors()
    floors.add(0)
    floors.claimed([row(n, run_at=float(n)) for n in range(1000)], now=0.0)
    marks = [key[1] for key, _, _ in floors.trails[0].marks][1:]
    assert marks[0] == STEP - 1
    assert max(b - a for a, b in itertools.pairwise(marks)) <= STEP
    assert marks[-1] == 999
    [start] = floors.starts(0.01)["ids"]
    assert 1000 - ROWS_BEHIND - 2 * STEP <= start <= 1000 - ROWS_BEHIND + STEP


def test_a_short_claim_moves_every_floor_to_the_clock() -> None:
    floors = Floors()
    for priority in (1, 0):
        floors.add(priority)
    floors.examined(100.0, now=50.0)
    assert floors.starts(50.01) == {"priorities": [1, 0], "run_ats": [100.0, 100.0], "ids": [0, 0]}


def test_the_start_is_never_above_what_was_examined_and_within_the_limits() -> None:
    """A thousand random histories."""
    dice = random.Random(3)
    for _ in range(1000):
        floors, now, run_at = Floors(), 0.0, 0.0
        floors.add(0)
        noted = [(LOWEST, 0.0)]
        for _ in range(dice.randrange(1, 12)):
            now += dice.choice([0.0, 0.01, 0.2, 1.0])
            run_at += dice.random()
            n = dice.randrange(1, 300)
            floors.claimed([row(i, run_at=run_at) for i in range(n)], now)
            noted.append((floors.trails[0].newest, now))
        starts = floors.starts(now)
        start = (starts["run_ats"][0], starts["ids"][0])
        assert start <= noted[-1][0]
        for before, after in itertools.pairwise(noted):
            if after[1] < now - SECONDS_BEHIND:  # the start is not further back than the newest old one
                assert start >= after[0] or start >= before[0]
