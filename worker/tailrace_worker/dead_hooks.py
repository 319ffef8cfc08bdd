"""Tells the application which of its jobs died here: `@app.on_dead`, after the commit, at most once.

Off the hot path: results.py leaves the id, one task reads the dead letter on the listening connection and runs the hooks, one
after the other. What waits is bounded; nothing that a hook does changes a job.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from tailrace.clock import boot
from tailrace.db import Blocks, errors
from tailrace.dead_letters import DeadLetter, DeadLetterStatements
from tailrace.errors import NotFound, TailraceError
from tailrace.hooks import DeadHook, place
from tailrace.names.events import Event
from tailrace_worker.work import BROKEN

log = logging.getLogger("tailrace.worker")

MOST_WAITING: Final = 1_000
HOOK_SECONDS: Final = 30.0
"""How long one hook may take; then it is given up."""
READ_SECONDS: Final = 60.0
"""How long to try to read a dead letter while the connection is away."""
READ_PAUSE_SECONDS: Final = 0.5
CLOSE_SECONDS: Final = 1.0
"""What the hooks get at shutdown even when the jobs have used up the drain time."""

_FAULTS = (errors.Error, TailraceError, OSError)
_Ask = Callable[[str, dict[str, Any]], Awaitable[list[tuple[Any, ...]]]]


class DeadHooks:
    """The hooks of one application in this worker.

    Args:
        hooks: In the order of their registration.
        blocks: The SQL of the schema.
        ask: Runs a named block and returns its rows.

    Attributes:
        counts: Calls by (queue, result): ok, error, skipped.
    """

    def __init__(self, hooks: Sequence[DeadHook], *, blocks: Blocks, ask: _Ask) -> None:
        self._hooks, self._ask = tuple(hooks), ask
        self._statements = DeadLetterStatements(blocks)
        self._waiting: asyncio.Queue[tuple[int, str]] = asyncio.Queue(MOST_WAITING)
        self._current: tuple[int, str] | None = None
        self._given_up: set[asyncio.Task[None]] = set()
        self.counts: dict[tuple[str, str], int] = {}

    def tell(self, job_id: int, queue: str) -> None:
        """Take a job that was moved to the dead letters; does not wait.

        Args:
            job_id: Its id.
            queue: Its queue.
        """
        if not self._hooks:
            return
        try:
            self._waiting.put_nowait((job_id, queue))
        except asyncio.QueueFull:
            self._skip(job_id, queue, "too many wait")

    async def run(self) -> None:
        """Run the hooks for what died, until cancelled."""
        while True:
            self._current = await self._waiting.get()
            try:
                await self._one(*self._current)
            finally:
                self._waiting.task_done()
            self._current = None

    async def close(self, *, seconds: float, hurry: asyncio.Event) -> None:
        """Let the hooks see what waits, for a while. Nothing may be told any more; `run` goes on until it is cancelled.

        Args:
            seconds: How long.
            hurry: Set by a second signal: do not wait.
        """
        over, told = asyncio.ensure_future(self._waiting.join()), asyncio.ensure_future(hurry.wait())
        limit = max(CLOSE_SECONDS, seconds)
        await asyncio.wait({over, told}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        told.cancel()
        if self._current is not None:
            self._skip(*self._current, "the worker ends")
        while not self._waiting.empty():
            self._skip(*self._waiting.get_nowait(), "the worker ends")

    # ---- one dead letter ---------------------------------------------------------------------------------------------
    async def _one(self, job_id: int, queue: str) -> None:
        dead = await self._read(job_id, queue)
        if dead is None:
            return
        for hook in self._hooks:
            error = await self._call(hook, dead)
            self._count(queue, "ok" if error is None else "error")
            if error is not None:
                fields = {"event": Event.HOOK_FAILED, "job_id": job_id, "queue": queue, "task": dead.task,
                          "hook": ".".join(place(hook)), "error": type(error).__name__}  # fmt: skip
                log.error("an on_dead hook failed; the dead letter is as it was", extra=fields, exc_info=error)

    async def _read(self, job_id: int, queue: str) -> DeadLetter | None:
        """The dead letter; None when somebody has deleted it meanwhile, or it cannot be read."""
        until = boot() + READ_SECONDS
        while True:
            try:
                rows = await self._ask("dead_letter.get", {"job_id": job_id})
                return self._statements.get(job_id).read(rows)
            except NotFound:
                self._skip(job_id, queue, "the dead letter is gone already")
                return None
            except _FAULTS as error:
                if boot() >= until or not isinstance(error, BROKEN):
                    self._skip(job_id, queue, f"the dead letter cannot be read: {type(error).__name__}")
                    return None
            await asyncio.sleep(READ_PAUSE_SECONDS)

    async def _call(self, hook: DeadHook, dead: DeadLetter) -> BaseException | None:
        """Run one hook in a task of its own, so that it can neither end this one nor leave its context variables behind."""
        raised: list[BaseException] = []
        work = asyncio.create_task(_guarded(hook, dead, raised), name=f"on_dead {dead.job_id}")
        try:
            done, _ = await asyncio.wait({work}, timeout=HOOK_SECONDS)
        except asyncio.CancelledError:
            work.cancel()
            raise
        if not done:
            work.cancel()
            self._given_up.add(work)  # the loop itself holds tasks only weakly
            work.add_done_callback(self._given_up.discard)
            return TimeoutError(f"took longer than {HOOK_SECONDS:g} s")
        return raised[0] if raised else None

    def _skip(self, job_id: int, queue: str, why: str) -> None:
        self._count(queue, "skipped")
        fields = {"event": Event.HOOK_SKIPPED, "job_id": job_id, "queue": queue}
        log.warning("on_dead hooks not called: %s", why, extra=fields)

    def _count(self, queue: str, result: str) -> None:
        self.counts[queue, result] = self.counts.get((queue, result), 0) + 1


async def _guarded(hook: DeadHook, dead: DeadLetter, raised: list[BaseException]) -> None:
    try:
        if inspect.iscoroutinefunction(hook):
            await hook(dead)
        else:
            await _in_thread(functools.partial(hook, dead), raised)
    except BaseException as error:  # noqa: BLE001 - SystemExit too: a hook must not end the worker
        raised.append(error)


async def _in_thread(call: Callable[[], Awaitable[None] | None], raised: list[BaseException]) -> None:
    """Run a plain hook in a thread that cannot keep the process from ending."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[Awaitable[None] | None] = loop.create_future()
    own = contextvars.copy_context()

    def tell(result: Awaitable[None] | None) -> None:
        if not over.done():
            over.set_result(result)

    def work() -> None:
        result: Awaitable[None] | None = None
        try:
            result = own.run(call)
        except BaseException as error:  # noqa: BLE001 - it is handed over
            raised.append(error)
        with suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(tell, result)

    threading.Thread(target=work, name="tailrace-on-dead", daemon=True).start()
    result = await over
    if inspect.isawaitable(result):
        await result
