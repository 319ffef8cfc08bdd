"""When groups have their turn, and how slots are shared: pure, with a clock of its own."""

from __future__ import annotations

from typing import Any

from tailrace_worker.finish import Outbox
from tailrace_worker.groups import Groups
from tailrace_worker.pace import Pace
from tailrace_worker.rows import EXPIRED, GROUPED, LAST, Row
from tailrace_worker.turns import FIRST, WALK, Turn, Turns
from tests.worker.claimed import row


def member(ident: int, name: str = "g", *, tenant: str = "", **more: Any) -> Row:
    """A claimed member of a group."""
    mark = more.pop("mark", 0) | GROUPED
    return (*row(ident, mark=mark, **more), name, tenant)


def told(**given: Any) -> dict[str, Any]:
    """What a turn says of itself."""
    return {"found": 0, "walked": 0, "after": list(FIRST), "seconds": 0.0, "kept": [], **given}


def made(slots: int = 10) -> tuple[Turns, Groups, Pace]:
    groups, pace = Groups(Outbox()), Pace(slots, 0.0)
    return Turns(groups, pace, jitter=lambda: 0.5), groups, pace


def plan(turns: Turns, now: float = 1.0, **given: Any) -> tuple[Turn | None, int]:
    return turns.plan(now, **{"room": 10, "jobs": 10, "free": 10, "flush": False, "alone": True, **given})


# ---- chains ----------------------------------------------------------------------------------------------------------
def test_members_run_one_after_the_other_in_their_order() -> None:
    """I8: high priority first, then the longest due, then by id."""
    groups = Groups(Outbox())
    rows = [
        member(1, run_at=5.0),
        member(2, run_at=4.0),
        member(3, priority=9, run_at=9.0),
        member(4, "h"),
        member(5, tenant="t"),
    ]
    heads = groups.take(rows)
    assert [head[0] for head in heads] == [3, 4, 5]
    assert groups.waiting == 2
    second = groups.after(heads[0])
    assert second is not None
    assert second[0] == 2
    last = groups.after(second)
    assert last is not None
    assert last[0] == 1
    assert not groups.ended
    assert groups.after(last) is None
    assert groups.ended == {("g", ""): 7}


def test_members_that_must_not_run_are_passed_over() -> None:
    outbox = Outbox()
    groups = Groups(outbox)
    assert groups.take([member(1, mark=EXPIRED), member(2, mark=EXPIRED)]) == []
    assert [o["kind"] for o in outbox.outcomes] == ["expired", "expired"]
    assert (groups.ended, groups.waiting) == ({("g", ""): 7}, 0)


def test_what_goes_back_takes_those_behind_it_along() -> None:
    outbox = Outbox()
    groups = Groups(outbox)
    [head] = groups.take([member(1, mark=LAST), member(2), member(3)])
    groups.give_back(head)
    assert [(o["id"], o["kind"]) for o in outbox.outcomes] == [(2, "handback"), (3, "handback")]
    assert groups.ended == {("g", ""): 7}


def test_a_lost_lease_ends_a_chain_without_a_word() -> None:
    groups = Groups(Outbox())
    [head] = groups.take([member(1), member(2)])
    groups.lose({7})
    assert groups.after(head) is None
    assert (groups.ended, groups.waiting) == ({}, 0)


# ---- turns -----------------------------------------------------------------------------------------------------------
def test_a_queue_without_groups_is_asked_once_a_second() -> None:
    turns, _, _ = made()
    turn, jobs = plan(turns)
    assert turn is not None
    assert (turn.walk, turn.k, jobs) == (WALK, 1, 9)
    turns.turned(turn, told(), 1.0, members=0)
    turns.look_soon()
    assert plan(turns, 1.9) == (None, 10)
    assert plan(turns, 2.1)[0] is not None
    turns.look_soon(always=True)
    assert plan(turns, 1.04) == (None, 10)
    assert plan(turns, 1.06)[0] is not None


def test_a_walk_that_finds_nothing_costs_two_per_cent() -> None:
    turns, _, _ = made()
    turn, _ = plan(turns)
    assert turn is not None
    turns.turned(turn, told(walked=400, seconds=0.01), 1.0, members=0)
    assert plan(turns, 1.45) == (None, 10)
    assert plan(turns, 1.55)[0] is not None
    turns.turned(turn, told(walked=400, seconds=0.01), 2.0, members=0)
    turns.look_soon()
    assert plan(turns, 2.05) == (None, 10)  # a notification may use ten per cent
    assert plan(turns, 2.15)[0] is not None


def test_one_that_finds_all_it_asked_for_is_followed_by_another_and_shares_the_slots() -> None:
    turns, _, pace = made()
    pace.mean, pace.ahead = 0.01, 100
    turn, jobs = plan(turns, room=100, jobs=0)
    assert turn is not None
    assert (turn.n, turn.k, jobs) == (20, 5, 0)
    turns.turned(turn, told(found=20, walked=30, after=["x", ""]), 1.0, members=100)
    turn, jobs = plan(turns, room=100, jobs=100)
    assert turn is not None
    assert (turn.after, jobs) == (("x", ""), 50)


def test_a_single_slot_goes_turn_by_turn() -> None:
    turns, groups, _ = made(slots=1)
    groups.ended = {("g", ""): 7}
    first, jobs = plan(turns, room=1, jobs=1, flush=True)
    assert first is not None
    assert (first.n, jobs) == (1, 0)
    groups.ended = {("g", ""): 7}
    second, jobs = plan(turns, room=1, jobs=1, flush=True)
    assert second is not None
    assert (second.n, second.walk, jobs) == (0, 0, 1)


def test_ended_groups_go_with_their_outcomes_only() -> None:
    turns, groups, _ = made()
    turn, _ = plan(turns)
    assert turn is not None
    turns.turned(turn, told(walked=3), 1.0, members=0)
    groups.ended = {("g", ""): 7}
    assert plan(turns, 1.0)[0] is None
    turn, jobs = plan(turns, 1.0, flush=True)
    assert turn is not None
    assert (turn.ended, turn.n >= 1, jobs) == ({("g", ""): 7}, True, 9)
    assert groups.ended == {}
    turns.turned(turn, told(kept=[["g", ""]]), 1.0, members=0)
    assert groups.ended == {("g", ""): 7}
    turn, _ = plan(turns, 1.0, flush=True, room=0, jobs=0)  # draining
    assert turn is not None
    assert (turn.n, turn.walk) == (0, 0)


def test_a_member_that_was_lost_before_is_taken_alone() -> None:
    turns, _, _ = made()
    turns.suspect_at = 1.0
    assert plan(turns, 1.0, alone=False)[0] is not None
    turn, jobs = plan(turns, 1.0)
    assert turn is not None
    assert (turn.suspect, turn.n, turn.k, jobs) == (True, 1, 1, 9)
    turns.turned(turn, told(), 1.0, members=0)
    assert turns.suspect_at is None
