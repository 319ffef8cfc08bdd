"""When a queue claims: after a claim that brought nothing only for a reason."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tailrace_worker.agenda import IDLE_MINUTE, LOOK_SECONDS, SLOW_POLL_SECONDS, Agenda
from tailrace_worker.floors import Floors


def agenda(**more: Any) -> Agenda:
    return Agenda(1.0, 0.0, jitter=lambda: 0.5, **more)


def gaps(*, new: int | None = None, clock: float = 100.0, suspect: float | None = None, held: bool = False) -> list[Any]:
    """One row of the statement `gaps`."""
    return [(-1001, new, clock, suspect, held)]


def may(one: Agenda, now: float, *, stragglers: bool = False, alone: bool = True) -> bool:
    return one.may_claim(now, stragglers=stragglers, alone=alone)


def test_a_claim_that_brought_jobs_is_followed_at_once() -> None:
    one = agenda()
    one.claimed(3, 1.0)
    assert may(one, 1.0)


def test_a_dry_queue_polls_each_second_give_or_take_a_fifth() -> None:
    """CJ-20: polling is the mechanism, a notification is a hint."""
    for jitter, pause in ((0.0, 0.8), (0.5, 1.0), (1.0, 1.2)):
        one = Agenda(1.0, 0.0, jitter=functools.partial(float, jitter))
        one.claimed(0, 10.0)
        assert not may(one, 10.0 + pause - 0.01)
        assert may(one, 10.0 + pause + 0.01)


def test_after_an_idle_minute_it_polls_each_five_seconds() -> None:
    one = agenda()
    one.claimed(1, 0.0)
    one.claimed(0, IDLE_MINUTE - 1)
    assert may(one, IDLE_MINUTE + 0.5)
    one.claimed(0, IDLE_MINUTE + 1)
    assert not may(one, IDLE_MINUTE + SLOW_POLL_SECONDS)
    assert may(one, IDLE_MINUTE + 1 + SLOW_POLL_SECONDS)
    one.claimed(1, IDLE_MINUTE + 10)
    one.claimed(0, IDLE_MINUTE + 10)
    assert may(one, IDLE_MINUTE + 11)


@pytest.mark.parametrize("reason", ["notified", "stragglers", "new priority", "due", "lost before"])
def test_reasons_to_claim_before_the_poll(reason: str) -> None:
    one, floors = agenda(), Floors()
    floors.add(0)
    one.claimed(0, 10.0)
    one.looked(floors, [], gaps(), 10.0, short=True)
    assert not may(one, 10.3)
    if reason == "notified":
        one.notified = True
    if reason == "new priority":
        one.looked(floors, [], gaps(new=7), 10.0, short=True)
    if reason == "due":
        one.looked(floors, [(0, 0.25)], gaps(), 10.0, short=True)
        assert not may(one, 10.24)
    if reason == "lost before":
        one.looked(floors, [], gaps(suspect=0.25), 10.0, short=True)
        assert not may(one, 10.3, alone=False)
    assert may(one, 10.3, stragglers=reason == "stragglers")


def test_a_notified_claim_is_in_a_hurry_but_looks_afterwards_if_it_found_nothing() -> None:
    """A job of a priority that is new is not seen by the claim that its notification brought about."""
    one = agenda()
    one.notified = True
    assert not one.look_now(10.0)
    one.notified = False
    one.claimed(0, 10.0, notified=True)
    assert may(one, 10.0 + LOOK_SECONDS)
    assert one.look_now(10.0 + LOOK_SECONDS)


def test_a_claim_for_what_falls_due_looks_so_that_it_is_not_repeated() -> None:
    one, floors = agenda(), Floors()
    floors.add(0)
    one.claimed(0, 10.0)
    one.looked(floors, [(0, 0.01)], gaps(), 10.0, short=True)
    assert one.look_now(10.02)
    one.looked(floors, [], gaps(), 10.02, short=True)
    assert not may(one, 10.03)


def test_a_retry_of_its_own_is_known_before_the_next_look() -> None:
    one = agenda()
    one.claimed(0, 10.0)
    one.falls_due(10.2)
    one.falls_due(10.4)
    assert not may(one, 10.1)
    assert may(one, 10.2)


def test_looks_are_rare_while_the_queue_is_busy() -> None:
    one, floors = agenda(), Floors()
    floors.add(0)
    one.looked(floors, [], gaps(), 10.0, short=False)
    assert not one.look_now(10.0 + LOOK_SECONDS / 2)
    assert one.look_now(10.0 + LOOK_SECONDS)


def test_floors_move_after_a_short_claim_only_and_never_while_the_queue_is_held() -> None:
    one, floors = agenda(), Floors()
    floors.add(0)
    start = floors.trails[0].newest
    one.looked(floors, [], gaps(), 10.0, short=False)
    one.looked(floors, [], gaps(held=True), 10.0, short=True)
    assert floors.trails[0].newest == start
    one.looked(floors, [], gaps(), 10.0, short=True)
    assert floors.trails[0].newest == (100.0, 0)


def test_a_new_priority_is_scanned_from_its_start_even_after_a_short_claim() -> None:
    one, floors = agenda(), Floors()
    floors.add(0)
    one.looked(floors, [], gaps(new=9), 10.0, short=True)
    assert floors.known == [9, 0]
    assert floors.trails[9].newest < (0.0, 0)


def test_after_giving_back_it_rests() -> None:
    one = agenda()
    one.rest(10.0, 1.0)
    assert not may(one, 10.9)
    assert may(one, 11.0)
