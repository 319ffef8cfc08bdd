"""The queue of dead letters that hooks wait for: its bounds, and what happens when they cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tailrace import DeadLetter
from tailrace.db import Blocks, OperationalError, errors
from tailrace.dead_letters import DeadLetterStatements
from tailrace.hooks import DeadHook
from tailrace_worker import dead_hooks
from tailrace_worker.dead_hooks import DeadHooks
from tests.rig.waiting import aeventually

BLOCKS = Blocks("tailrace")


class Store:
    """Answers the look at one dead letter."""

    def __init__(self) -> None:
        """Everything is there."""
        self.gone: set[int] = set()
        self.failures: list[Exception] = []
        self.asked: list[int] = []

    async def ask(self, block: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Return the row, or raise what was prepared."""
        assert block == "dead_letter.get"
        self.asked.append(params["job_id"])
        if self.failures:
            raise self.failures.pop(0)
        if params["job_id"] in self.gone:
            return []
        names = list(DeadLetter.__dataclass_fields__)
        return [tuple({"job_id": params["job_id"], "task": "t"}.get(name) for name in names)]


class Seen:
    """A hook that notes."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.jobs: list[int] = []
        self.go = asyncio.Event()

    async def note(self, dead: DeadLetter) -> None:
        """Note the job, once it may."""
        await self.go.wait()
        self.jobs.append(dead.job_id)


@asynccontextmanager
async def running(hooks: Sequence[DeadHook], store: Store) -> AsyncIterator[DeadHooks]:
    made = DeadHooks(hooks, blocks=BLOCKS, ask=store.ask)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_hooks, "MOST_WAITING", 3)
    seen, store = Seen(), Store()
    async with running([seen.note], store) as hooks:
        hooks.tell(1, "q")
        await aeventually(lambda: store.asked == [1])
        for job in range(2, 8):
            hooks.tell(job, "q")
        assert hooks.counts == {("q", "skipped"): 3}
        seen.go.set()
        await aeventually(lambda: hooks.counts == {("q", "skipped"): 3, ("q", "ok"): 4})
    assert seen.jobs == [1, 2, 3, 4]


async def test_without_hooks_nothing_is_read() -> None:
    store = Store()
    async with running([], store) as hooks:
        hooks.tell(1, "q")
        await hooks.close(seconds=0, hurry=asyncio.Event())
    assert (store.asked, hooks.counts) == ([], {})


async def test_a_connection_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_hooks, "READ_PAUSE_SECONDS", 0.01)
    seen, store = Seen(), Store()
    seen.go.set()
    store.failures = [OperationalError("away"), errors.AdminShutdown("ends"), errors.InterfaceError("closed")]
    async with running([seen.note], store) as hooks:
        hooks.tell(1, "q")
        await aeventually(lambda: seen.jobs == [1])
    assert store.asked == [1] * 4


async def test_what_cannot_be_read_is_counted_and_the_next_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_hooks, "READ_SECONDS", 0.0)
    seen, store = Seen(), Store()
    seen.go.set()
    store.gone, store.failures = {2}, [errors.InsufficientPrivilege("not yours")]
    async with running([seen.note], store) as hooks:
        for job in (1, 2, 3):
            hooks.tell(job, "q")
        await aeventually(lambda: seen.jobs == [3])
        store.failures = [OperationalError("away for long")]
        hooks.tell(4, "q")
        await aeventually(lambda: hooks.counts == {("q", "skipped"): 3, ("q", "ok"): 1})


async def test_a_hook_has_a_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_hooks, "HOOK_SECONDS", 0.05)
    seen, store = Seen(), Store()

    async def hang(dead: DeadLetter) -> None:
        await asyncio.Event().wait()

    seen.go.set()
    async with running([hang, seen.note], store) as hooks:
        hooks.tell(1, "q")
        await aeventually(lambda: hooks.counts == {("q", "error"): 1, ("q", "ok"): 1})
    assert seen.jobs == [1]


async def test_a_second_signal_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, store, hurry = Seen(), Store(), asyncio.Event()
    async with running([seen.note], store) as hooks:
        for job in (1, 2):
            hooks.tell(job, "q")
        await aeventually(lambda: store.asked == [1])
        hurry.set()
        await asyncio.wait_for(hooks.close(seconds=60, hurry=hurry), 5)
    assert hooks.counts == {("q", "skipped"): 2}


def test_the_statement_reads_what_the_hooks_get() -> None:
    """The block is the one of `app.dead_letters.get`."""
    assert DeadLetterStatements(BLOCKS).get(1).text == BLOCKS["dead_letter.get"]
