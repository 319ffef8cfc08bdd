"""What a handler sees: the context and the signal to stop."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace import InvalidOption, InvalidPayload, Job, JobContext, RetryAfter, Snooze, Stop

JOB = Job(id=2**60, queue="q", task="t", created_at=datetime.now(UTC), run_at=datetime.now(UTC))


def test_stop_is_told_across_threads() -> None:
    stop = Stop()
    assert not stop.is_set()
    assert stop.reason is None
    assert not stop.wait(0)
    heard: list[bool] = []
    waiting = threading.Thread(target=lambda: heard.append(stop.wait(10)))
    waiting.start()
    stop.set("shutdown")
    waiting.join(10)
    assert heard == [True]
    stop.set("lease_lost")  # what forbids going on wins over what allows it
    assert stop.reason == "lease_lost"
    stop.set("cancel")
    assert stop.reason == "lease_lost"


async def test_stop_is_heard_by_async_handlers() -> None:
    stop = Stop()
    assert not await stop.until(0.01)
    threading.Timer(0.05, stop.set, args=("cancel",)).start()
    assert await stop.until(10)
    assert await stop.until()


def test_a_watcher_is_called_once_and_at_once_when_late() -> None:
    stop, calls = Stop(), []
    stop.watch(lambda: calls.append(1))
    stop.set("timeout")
    stop.set("timeout")
    stop.watch(lambda: calls.append(2))
    assert calls == [1, 2]


def test_saved_state_is_small_json() -> None:
    stored: list[str] = []
    ctx: JobContext[Any] = JobContext(resources=None, job=JOB, save=stored.append)
    ctx.save({"page": 3, "ü": [None]})
    assert stored == ['{"page":3,"ü":[null]}']
    assert ctx.saved == {"page": 3, "ü": [None]}
    for state in ({"x": "y" * 4096}, {"x": float("nan")}, {"x": "\0"}, {1, 2}, {"x": "\ud800"}):
        with pytest.raises(InvalidPayload) as refused:
            ctx.save(state)
        assert str(refused.value.field).startswith("saved")
    assert len(stored) == 1


def test_a_wait_is_checked_when_it_is_raised() -> None:
    assert RetryAfter(60).seconds == 60
    assert Snooze(0).seconds == 0
    for wait in (-1, float("nan"), float("inf"), 400 * 86400, "1 hour", True):
        with pytest.raises(InvalidOption):
            RetryAfter(wait)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption):
            Snooze(wait)  # type: ignore[arg-type]
