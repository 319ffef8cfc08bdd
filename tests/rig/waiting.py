"""Waiting for a condition with a deadline, instead of sleeping.

The only place in the tests that sleeps; everything else asks `eventually`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

_FIRST = 0.005
_LONGEST = 0.1


def eventually(predicate: Callable[[], T], timeout: float = 20.0, *, what: str = "") -> T:
    """Ask until the answer is true and return it.

    Args:
        predicate: Asked again and again; an AssertionError from it counts as "not yet".
        timeout: Seconds.
        what: What is waited for, for the message.

    Raises:
        AssertionError: The time is over; the message has the last answer.
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST
    while True:
        answer = _ask(predicate)
        if answer and not isinstance(answer, _NotYet):
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(_message(what, timeout, answer))
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)


@overload
async def aeventually(predicate: Callable[[], Awaitable[T]], timeout: float = 20.0, *, what: str = "") -> T: ...
@overload
async def aeventually(predicate: Callable[[], T], timeout: float = 20.0, *, what: str = "") -> T: ...
async def aeventually(predicate: Callable[[], Any], timeout: float = 20.0, *, what: str = "") -> Any:
    """Do what `eventually` does without blocking the event loop; the predicate may be a coroutine function."""
    deadline = time.monotonic() + timeout
    pause = _FIRST
    while True:
        answer = _ask(predicate)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer and not isinstance(answer, _NotYet):
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(_message(what, timeout, answer))
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)


class _NotYet:
    def __init__(self, error: AssertionError) -> None:
        self.error = error


def _ask(predicate: Callable[[], T]) -> T | _NotYet:
    try:
        return predicate()
    except AssertionError as error:
        return _NotYet(error)


def _message(what: str, timeout: float, answer: object) -> str:
    last = answer.error if isinstance(answer, _NotYet) else f"last answer {answer!r}"
    return f"{what or 'the condition'} did not come true in {timeout:g} s: {last}"
