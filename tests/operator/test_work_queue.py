"""The work queue: one look at a time for each key, soonest first, and pauses that fit what failed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tailrace.errors import DatabaseUnavailable, InvalidOption
from tailrace_controller.kube.errors import KubeConflict, KubeRefused, KubeUnavailable
from tailrace_controller.work_queue import Key, WorkQueue, pause_after
from tests.rig.waiting import aeventually

A, B = ("team-a", "a"), ("team-a", "b")


@asynccontextmanager
async def working(queue: WorkQueue, reconcile: Callable[[Key], Awaitable[float | None]], workers: int = 4) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run(reconcile, workers=workers))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_is_looked_at_by_one_at_a_time_and_again_when_it_was_added_meanwhile() -> None:
    """operator-notes 3.2 #10."""
    queue, looks, at_once, most = WorkQueue(), Counter[Key](), Counter[Key](), Counter[Key]()
    go = asyncio.Event()

    async def look(key: Key) -> None:
        at_once[key] += 1
        most[key] = max(most[key], at_once[key])
        looks[key] += 1
        await go.wait()
        at_once[key] -= 1

    async with working(queue, look):
        queue.add(A)
        await aeventually(lambda: looks[A] == 1)
        for _ in range(5):
            queue.add(A)
        queue.add(B)
        await aeventually(lambda: looks[B] == 1)
        assert looks[A] == 1
        go.set()
        await aeventually(lambda: queue.idle and looks[A] == 2)
    assert most == {A: 1, B: 1}
    assert queue.counts.results["success"] == 3


async def test_the_soonest_time_counts() -> None:
    queue, looks = WorkQueue(), Counter[Key]()

    async def look(key: Key) -> None:
        looks[key] += 1

    async with working(queue, look):
        queue.add(A, after=600)
        queue.add(B, after=600)
        queue.add(A, after=0.01)
        queue.add(A, after=300)
        await aeventually(lambda: looks[A] == 1)
        await aeventually(lambda: queue.depth == 0)
        assert looks[B] == 0


async def test_a_look_says_when_it_wants_another_and_news_come_before_it() -> None:
    queue, looks = WorkQueue(), Counter[Key]()

    async def look(key: Key) -> float | None:
        looks[key] += 1
        return 0.01 if looks[key] == 1 else 600.0

    async with working(queue, look):
        queue.add(A)
        await aeventually(lambda: looks[A] == 2)
        queue.add(A)
        await aeventually(lambda: looks[A] == 3)
    assert (queue.counts.results["requeue"], queue.counts.results["success"]) == (1, 2)


async def test_one_key_that_fails_stops_no_other() -> None:
    """operator-notes 3.2 #10: errors are classed, and what is unknown is tried again too."""
    queue, looks = WorkQueue(jitter=lambda: 0.0), Counter[Key]()

    async def look(key: Key) -> None:
        looks[key] += 1
        if key == A:
            raise RuntimeError("broken") if looks[key] == 1 else KubeConflict("changed meanwhile", status=409)

    async with working(queue, look, workers=1):
        queue.add(A)
        queue.add(B)
        await aeventually(lambda: looks[A] == 1 and looks[B] == 1)
        queue.add(A)  # news come before the pause is over
        await aeventually(lambda: looks[A] >= 3)
    assert queue.counts.errors["RuntimeError"] == 1
    assert queue.counts.errors["KubeConflict"] >= 2


async def test_no_more_looks_than_workers_at_a_time() -> None:
    queue, at_once, most = WorkQueue(), 0, 0
    done = 0

    async def look(_: Key) -> None:
        nonlocal at_once, most, done
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        done += 1

    async with working(queue, look, workers=3):
        for number in range(200):
            queue.add(("team-a", f"queue-{number}"))
        await aeventually(lambda: done == 200)
    assert most == 3


def test_pauses_follow_the_class_of_the_error() -> None:
    """operator-notes 3.2 #10, #11."""

    def pauses(error: BaseException, numbers: tuple[int, ...] = (1, 2, 50)) -> list[float]:
        return [pause_after(error, n, jitter=0.5) for n in numbers]

    assert pauses(KubeConflict("changed")) == [0.1, 0.2, 5.0]
    assert pauses(KubeUnavailable("away")) == [0.5, 1.0, 60.0]
    assert pauses(DatabaseUnavailable("away")) == [0.5, 1.0, 60.0]
    assert pauses(KubeRefused("no such field")) == [5.0, 10.0, 300.0]
    assert pauses(InvalidOption("wrong")) == [5.0, 10.0, 300.0]
    assert pauses(KeyError("x")) == [5.0, 10.0, 300.0]
    assert pause_after(KubeUnavailable("slow down", status=429, retry_after=9), 1, jitter=0.5) == 9.0
    assert 0.375 == pause_after(KubeUnavailable("away"), 1, jitter=0.0) < pause_after(KubeUnavailable("away"), 1, jitter=1.0)
