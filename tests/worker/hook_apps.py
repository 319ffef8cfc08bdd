"""An application with two middlewares and three on_dead hooks; the jobs' meta says what each of them does.

All leave lines in the ledger of `tests.worker.apps`. Workers import it as `tests.worker.hook_apps:app`; `silent` is the same
without hooks.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import psycopg

from tailrace import App, Call, DeadLetter, JobContext, NoRetry, RetryAfter, RetryPolicy, Snooze
from tests.worker.apps import Ledger

app = App("work")
once = RetryPolicy(max_attempts=1)
twice = RetryPolicy(max_attempts=2, base=0.05, cap=0.05, jitter=0)
scope: contextvars.ContextVar[str] = contextvars.ContextVar("scope", default="")
page_lock = threading.Lock()
opened: dict[str, Any] = {}


@app.lifespan
async def resources() -> AsyncIterator[Ledger]:
    with psycopg.connect(os.environ["TAILRACE_DATABASE_URL"], autocommit=True, application_name="handlers") as conn:
        opened["conn"], opened["ledger"] = conn, Ledger(conn)
        yield opened["ledger"]
        opened.clear()


# ---- around each run -------------------------------------------------------------------------------------------------
RAISED: dict[str, Any] = {
    "no retry": lambda: NoRetry("says the middleware"),
    "later": lambda: RetryAfter(0.05),
    "snooze": lambda: Snooze(0.05),
    "error": lambda: ConnectionError("says the middleware"),
    "exit": lambda: SystemExit(3),
    "iteration": lambda: StopAsyncIteration("says the middleware"),
}


@app.middleware
async def outer(ctx: JobContext[Ledger], call: Call) -> object:
    ctx.resources.write(ctx, f"outer in{scope.get()}")
    try:
        return await call()
    except BaseException as error:
        ctx.resources.write(ctx, f"outer saw {type(error).__name__}")
        raise
    finally:
        ctx.resources.write(ctx, "outer out")


@app.middleware
async def scoped(ctx: JobContext[Ledger], call: Call) -> object:
    if not ctx.job.tenant:
        raise NoRetry("a job without a tenant")
    token = scope.set(ctx.job.tenant)
    try:
        return await _act(ctx, call, ctx.job.meta.get("do", ""))
    finally:
        if not ctx.job.meta.get("leave"):
            scope.reset(token)


async def _act(ctx: JobContext[Ledger], call: Call, do: str) -> object:
    if do == "answer":
        return None
    if do == "hang before":
        await asyncio.sleep(60)
    if do in RAISED and ctx.attempt == 1 and not ctx.saved:
        ctx.save({"raised": do})
        raise RAISED[do]()
    if do == "give up":
        async with asyncio.timeout(0.2):
            return await call()
    result = await call()
    ctx.resources.write(ctx, f"returned {result}")
    if do == "hang after":
        await asyncio.sleep(60)
    if do == "twice":
        await call()
    if do == "fail after":
        raise RuntimeError("after the handler")
    return result


# ---- handlers --------------------------------------------------------------------------------------------------------
def _note(text: str, ctx: JobContext[Any] | None = None) -> None:
    """A line of a handler without a context has no job; its note has the scope all the same."""
    opened["conn"].execute(
        "insert into public.ledger (job, task, attempt, pid, note) values (%s, 'handler', %s, %s, %s)",
        [ctx.job.id if ctx else 0, ctx.attempt if ctx else 0, os.getpid(), text],
    )


@app.task(retry=twice, timeout=60)
async def look(ctx: JobContext[Ledger], number: int = 1) -> int:
    ctx.resources.write(ctx, f"ran in {scope.get()!r}")
    return number


@app.task(retry=twice, timeout=60)
def look_in_thread(ctx: JobContext[Ledger], number: int = 1) -> int:
    ctx.resources.write(ctx, f"ran in {scope.get()!r}")
    return number


@app.task
async def bare() -> str:
    _note(f"bare in {scope.get()!r}")
    return "bare"


@app.task
def bare_in_thread() -> str:
    _note(f"bare in {scope.get()!r}")
    return "bare"


@app.task(retry=twice)
def slow_in_thread(ctx: JobContext[Ledger]) -> None:
    ctx.resources.write(ctx, "began")
    ctx.stop.wait(10)
    time.sleep(0.3)
    ctx.resources.write(ctx, f"ended {ctx.stop.reason}")


@app.task(retry=once, timeout=60)
async def wait_for_stop(ctx: JobContext[Ledger]) -> None:
    ctx.resources.write(ctx, "began")
    await asyncio.sleep(60)


@app.task(retry=once, timeout=0.2)
async def hang() -> None:
    await asyncio.sleep(60)


@app.task(retry=twice)
async def fail() -> None:
    raise ValueError("told")


@app.task(retry=once)
async def refuse() -> None:
    raise NoRetry("never")


@app.task(retry=once)
async def kill() -> None:
    os._exit(9)


# ---- after a death ---------------------------------------------------------------------------------------------------
def _tell(who: str, dead: DeadLetter) -> None:
    """Another connection sees the dead letter, and no job: the hook comes after the commit."""
    with page_lock:
        opened["conn"].execute(
            """insert into public.ledger (job, task, attempt, pid, note)
               select %(job)s, 'on_dead', %(attempts)s, %(pid)s,
                 format('%%s: %%s %%s %%s', %(who)s::text, %(reason)s::text, d.state,
                   (select count(*) from tailrace.job j where j.id = d.job_id))
               from tailrace.dead_letter d where d.job_id = %(job)s""",
            {"job": dead.job_id, "attempts": dead.total_attempts, "pid": os.getpid(), "who": who, "reason": dead.reason},
        )


@app.on_dead
async def troubled(dead: DeadLetter) -> None:
    trouble = (dead.meta or {}).get("trouble")
    if trouble == "error":
        raise ConnectionError("the pager is away")
    if trouble == "exit":
        raise SystemExit(3)
    if trouble == "cancel":
        raise asyncio.CancelledError
    if trouble == "hang":
        await asyncio.sleep(600)
    if trouble == "slow":
        await asyncio.sleep(0.3)
    scope.set("left behind")


@app.on_dead
async def page(dead: DeadLetter) -> None:
    _tell(f"page{scope.get()}", dead)


@app.on_dead
def note(dead: DeadLetter) -> None:
    if (dead.meta or {}).get("trouble") == "in a thread":
        raise SystemExit("the thread")
    _tell(f"note on {threading.current_thread().name}", dead)
