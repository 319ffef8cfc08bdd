"""The breaker of a database: who failed a moment ago is not asked, and one tries for all."""

from __future__ import annotations

from functools import partial

import pytest

from tailrace.errors import AuthenticationFailed, DatabaseUnavailable
from tailrace_controller.databases.breaker import Breaker


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock=clock, jitter=lambda: 0.5, first_seconds=1, longest_seconds=30, trial_seconds=15)


def refuses(breaker: Breaker) -> bool:
    try:
        breaker.peek()
    except DatabaseUnavailable:
        return True
    return False


def test_nothing_is_refused_before_a_failure(breaker: Breaker) -> None:
    for _ in range(3):
        breaker.check()
    breaker.worked()
    breaker.check()


def test_the_pause_doubles_up_to_its_longest(breaker: Breaker, clock: Clock) -> None:
    pauses = []
    for _ in range(8):
        breaker.failed(DatabaseUnavailable("away"))
        began = clock.now
        while refuses(breaker):
            clock.now += 0.5
        pauses.append(clock.now - began)
        breaker.check()
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    breaker.worked()
    breaker.failed(DatabaseUnavailable("away"))
    clock.now += 1
    assert not refuses(breaker), "after a success it begins anew"


def test_the_pause_is_jittered(clock: Clock) -> None:
    for jitter, pause in ((0.0, 0.75), (0.999, 1.2495)):
        number = partial(float, jitter)
        one = Breaker(clock=clock, jitter=number, first_seconds=1, longest_seconds=9, trial_seconds=9)
        one.failed(DatabaseUnavailable("away"))
        clock.now += pause - 0.001
        assert refuses(one)
        clock.now += 0.002
        assert not refuses(one)


def test_after_a_pause_one_tries_for_all(breaker: Breaker, clock: Clock) -> None:
    breaker.failed(DatabaseUnavailable("away"))
    clock.now += 1.1
    breaker.check()
    with pytest.raises(DatabaseUnavailable):
        breaker.check()
    clock.now += 15.1  # he never came back
    breaker.check()
    breaker.worked()
    breaker.check()


def test_whoever_is_refused_is_told_the_last_failure(breaker: Breaker) -> None:
    error = AuthenticationFailed("database h:1/d: no", hint="Correct it", field=None)
    try:
        raise error
    except AuthenticationFailed:
        breaker.failed(error)
    with pytest.raises(AuthenticationFailed) as caught:
        breaker.check()
    assert str(caught.value) == str(error)
    assert (caught.value.hint, caught.value.reason) == (error.hint, error.reason)
    assert caught.value is not error
    assert breaker.error is not None
    assert breaker.error.__traceback__ is None, "it would keep the frames of the failure alive"
