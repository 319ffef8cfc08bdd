"""The application of the tests of `complete_in`: every effect is a row of a table without constraints.

A handler waits behind an advisory lock that the test holds. Workers import it as `tests.worker.complete_apps:app`.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import Any

import psycopg

from tailrace import App, JobContext, LeaseLost, RetryPolicy

EFFECTS = "create table public.effects (job bigint not null, attempt int not null, pid int not null)"
GATE = 4711

app = App("pay")
soon = RetryPolicy(max_attempts=3, base=0.05, cap=0.05, jitter=0)
ADD = "insert into public.effects (job, attempt, pid) values (%s, %s, %s)"
BEHIND_THE_GATE = "select pg_advisory_xact_lock_shared(4711)"


class Undone(Exception):
    """Rolls a transaction back, and is caught outside of it."""


def dsn() -> str:
    return os.environ["TAILRACE_DATABASE_URL"]


def row(ctx: JobContext[Any]) -> list[int]:
    return [ctx.job.id, ctx.attempt, os.getpid()]


def kill_here(ctx: JobContext[Any], where: str, how: str) -> None:
    if how == f"kill {where}" and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def fail_here(ctx: JobContext[Any], where: str, how: str) -> None:
    if how == f"raise {where}" and ctx.attempt == 1:
        raise ValueError(where)
    if how == f"undo {where}" and ctx.attempt == 1:
        raise Undone


@app.task(retry=soon, timeout=30)
async def pay(ctx: JobContext[None], how: str = "") -> None:
    async with await psycopg.AsyncConnection.connect(dsn(), application_name="handlers") as conn:
        with suppress(Undone):
            async with conn.transaction():
                await conn.execute(ADD, row(ctx))
                await ctx.acomplete_in(conn)
                kill_here(ctx, "inside", how)
                fail_here(ctx, "inside", how)
        kill_here(ctx, "after", how)
        fail_here(ctx, "after", how)


@app.task(retry=soon, timeout=30)
def pay_in_thread(ctx: JobContext[None], how: str = "") -> None:
    with psycopg.connect(dsn(), application_name="handlers") as conn:
        with suppress(Undone), conn.transaction():
            conn.execute(ADD, row(ctx))
            ctx.complete_in(conn)
            kill_here(ctx, "inside", how)
            fail_here(ctx, "inside", how)
        kill_here(ctx, "after", how)
        fail_here(ctx, "after", how)


@app.task(retry=soon, timeout=30)
def pay_late(ctx: JobContext[None]) -> None:
    """Waits with its effect done, then completes, swallows the refusal, and commits all the same."""
    with psycopg.connect(dsn(), application_name="handlers", autocommit=True) as gate, psycopg.connect(dsn()) as conn:
        conn.execute(ADD, row(ctx))
        gate.execute(BEHIND_THE_GATE)
        with suppress(LeaseLost):
            ctx.complete_in(conn)
        conn.commit()


@app.task(retry=soon, timeout=30)
def save_and_wait(ctx: JobContext[None], end: str) -> None:
    """Saves a state, completes, and keeps its transaction open for long."""
    with psycopg.connect(dsn(), application_name="handlers", autocommit=True) as gate, psycopg.connect(dsn()) as conn:
        conn.execute(ADD, row(ctx))
        if ctx.saved is None:
            ctx.save({"page": ctx.attempt})
            ctx.complete_in(conn)
            gate.execute(BEHIND_THE_GATE)
            getattr(conn, end)()
        else:
            ctx.complete_in(conn)
            conn.commit()


def _end(conn: psycopg.Connection[Any], end: str) -> None:
    with psycopg.connect(dsn(), autocommit=True, application_name="handlers") as gate:
        gate.execute(BEHIND_THE_GATE)
    getattr(conn, end)()
    conn.close()


@app.task(retry=RetryPolicy(max_attempts=1), timeout=0.5)
def leave_open(ctx: JobContext[None], end: str) -> None:
    """Returns while its transaction is open; a thread ends that later."""
    conn = psycopg.connect(dsn(), application_name="handlers")
    conn.execute(ADD, row(ctx))
    ctx.complete_in(conn)
    threading.Thread(target=_end, args=(conn, end), daemon=True).start()


@app.task(retry=RetryPolicy(max_attempts=1))
def fail(ctx: JobContext[None]) -> None:
    raise ValueError("always")


@app.task
async def noop() -> None: ...
