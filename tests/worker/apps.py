"""The application of the worker's tests: every handler leaves a line in a ledger of the test's database.

The ledger has no unique constraint, so a job that ran twice shows. Workers import it as `tests.worker.apps:app`.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import psycopg

from tailrace import App, JobContext, NoRetry, RetryAfter, RetryPolicy, Snooze

LEDGER = """create table public.ledger (
  n bigint generated always as identity, job bigint not null, task text not null, attempt int not null, pid int not null,
  note text, at timestamptz not null default clock_timestamp())"""

app = App("work")
once = RetryPolicy(max_attempts=1)
soon = RetryPolicy(max_attempts=3, base=0.05, cap=0.05, jitter=0)
tint: contextvars.ContextVar[str] = contextvars.ContextVar("tint", default="")


class Ledger:
    """Handlers' own connection, shared by the lanes and the threads of one worker."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn, self._lock = conn, threading.Lock()

    def write(self, ctx: JobContext[Any], note: object = None) -> None:
        """Write a line at once: blocks for a fraction of a millisecond."""
        with self._lock:
            self._conn.execute(
                "insert into public.ledger (job, task, attempt, pid, note) values (%s, %s, %s, %s, %s)",
                [ctx.job.id, ctx.job.task, ctx.attempt, os.getpid(), None if note is None else str(note)],
            )


@app.lifespan
async def resources() -> AsyncIterator[Ledger]:
    with psycopg.connect(os.environ["TAILRACE_DATABASE_URL"], autocommit=True, application_name="handlers") as conn:
        yield Ledger(conn)


# ---- jobs that succeed -----------------------------------------------------------------------------------------------
@app.task(timeout=60)
async def mark(ctx: JobContext[Ledger], note: str = "") -> None:
    ctx.resources.write(ctx, note)


@app.task
async def noop() -> None: ...


@app.task(retry=once)
async def noop_once() -> None: ...


@app.task
async def nap(ctx: JobContext[Ledger], seconds: float) -> None:
    ctx.resources.write(ctx, "began")
    await asyncio.sleep(seconds)
    ctx.resources.write(ctx, "ended")


@app.task
def nap_in_thread(ctx: JobContext[Ledger], seconds: float) -> None:
    ctx.resources.write(ctx, "began")
    time.sleep(seconds)
    ctx.resources.write(ctx, "ended")


@app.task
async def look_at_garbage(ctx: JobContext[Ledger]) -> None:
    """Leave what a full collection would look at: whether the resources are among it, and what share it is of all."""
    found = gc.get_objects()
    ctx.resources.write(ctx, f"{any(one is ctx.resources for one in found)} {len(found) / (len(found) + gc.get_freeze_count())}")


# ---- jobs that fail --------------------------------------------------------------------------------------------------
ERRORS: dict[str, Any] = {
    "error": lambda: ValueError("the word permanent in a message means nothing; no retry, fatal, NoRetry"),
    "permanent": lambda: NoRetry("gone"),
    "listed": lambda: KeyError("listed in no_retry"),
    "later": lambda: RetryAfter(0.05),
    "system exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt(),
    "memory": lambda: MemoryError(),
    "base": lambda: BaseException("bare"),
    "cancelled": lambda: asyncio.CancelledError(),
    "exit of a generator": lambda: GeneratorExit(),
    "iteration": lambda: StopIteration("spent"),
    "unreadable": lambda: _Unreadable(),
    "trap": lambda: _Trap(),
    "nul": lambda: RuntimeError("a\0b \ud800 c"),
}


class _Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class _Trap(Exception):
    @property
    def response(self) -> None:
        raise RuntimeError("the response is not there yet")


@app.task(retry=soon, no_retry=(KeyError,))
async def fail(ctx: JobContext[Ledger], how: str) -> None:
    ctx.resources.write(ctx, how)
    raise ERRORS[how]()


@app.task(retry=soon, no_retry=(KeyError,))
def fail_in_thread(ctx: JobContext[Ledger], how: str) -> None:
    ctx.resources.write(ctx, how)
    raise ERRORS[how]()


@app.task(retry=soon, timeout=0.2)
async def hang(ctx: JobContext[Ledger]) -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        ctx.resources.write(ctx, ctx.stop.reason)
        raise


@app.task(retry=soon, timeout=0.2)
def hang_in_thread(ctx: JobContext[Ledger]) -> None:
    ctx.stop.wait(60)
    ctx.resources.write(ctx, ctx.stop.reason)


@app.task(timeout=60)
async def wait_for_stop(ctx: JobContext[Ledger]) -> None:
    ctx.resources.write(ctx, "began")
    try:
        await asyncio.sleep(60)
    finally:
        ctx.resources.write(ctx, ctx.stop.reason)


@app.task(timeout=60)
def wait_for_stop_in_thread(ctx: JobContext[Ledger]) -> None:
    ctx.resources.write(ctx, "began")
    ctx.stop.wait(60)
    ctx.resources.write(ctx, ctx.stop.reason)
    raise RuntimeError("stopped half-way")


@app.task(retry=soon)
async def snooze(ctx: JobContext[Ledger], times: int) -> None:
    done = (ctx.saved or {"done": 0})["done"]
    ctx.resources.write(ctx, done)
    if done < times:
        ctx.save({"done": done + 1})
        raise Snooze(0.05)


@app.task(retry=soon)
async def remember(ctx: JobContext[Ledger]) -> None:
    ctx.resources.write(ctx, ctx.saved)
    ctx.save({"attempt": ctx.attempt})
    if ctx.attempt < 3:
        raise RuntimeError("once more")


def _decide(error: BaseException, ctx: JobContext[Any]) -> RetryAfter | NoRetry | None:
    ctx.resources.write(ctx, f"asked about {type(error).__name__}")
    if isinstance(error, PermissionError):
        return NoRetry("not allowed, says the hook")
    if isinstance(error, ConnectionError):
        return RetryAfter(0.05)
    if isinstance(error, LookupError):
        raise ZeroDivisionError("the hook itself is broken")
    return None


HOOKED = {"refused": PermissionError, "away": ConnectionError, "broken": LookupError, "other": ValueError, "own word": NoRetry}


@app.task(retry=soon, on_error=_decide)
async def hooked(ctx: JobContext[Ledger], how: str) -> None:
    ctx.resources.write(ctx, "run")
    raise HOOKED[how]("told")


@app.task(retry=soon)
async def needs_number(ctx: JobContext[Ledger], number: int) -> None:
    ctx.resources.write(ctx, number)


@app.task(retry=RetryPolicy(max_attempts=3, base=0.05, jitter=0))
async def poison(ctx: JobContext[Ledger]) -> None:
    ctx.resources.write(ctx, "poison")
    os._exit(9)


# ---- context and logs ------------------------------------------------------------------------------------------------
@app.task
async def paint(ctx: JobContext[Ledger], colour: str) -> None:
    ctx.resources.write(ctx, tint.get())
    tint.set(colour)


@app.task
def paint_in_thread(ctx: JobContext[Ledger], colour: str) -> None:
    ctx.resources.write(ctx, tint.get())
    tint.set(colour)


@app.task
async def cancel_itself(ctx: JobContext[Ledger]) -> None:
    task = asyncio.current_task()
    if task is not None:
        task.cancel()
    await asyncio.sleep(10)


@app.task
async def count_cancellations(ctx: JobContext[Ledger]) -> None:
    task = asyncio.current_task()
    ctx.resources.write(ctx, task.cancelling() if task is not None else "no task")


@app.task
async def say(ctx: JobContext[Ledger], secret: str) -> None:
    ctx.log.info("from the context's logger")
    logging.getLogger("some.library").warning("from a library")
    await asyncio.to_thread(logging.getLogger("some.library").warning, "from a library's thread")


@app.task
def say_in_thread(ctx: JobContext[Ledger], secret: str) -> None:
    logging.getLogger("some.library").warning("from a thread")


@app.task(queue="other")
async def elsewhere(ctx: JobContext[Ledger]) -> None:
    ctx.resources.write(ctx)
