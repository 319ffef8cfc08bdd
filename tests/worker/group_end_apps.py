"""Members of groups that end in other ways than by returning.

They complete themselves, have a successor of their key, or run inside a middleware. Each run leaves a start and an end in
the ledger of fault_apps, with its group. Workers import it as `tests.worker.group_end_apps:app`.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import psycopg

from tailrace import App, Call, JobContext
from tests.worker.fault_apps import is_open, opened, write

app = App("faults")
EFFECTS = "create table public.effects (job bigint not null, attempt int not null)"
ADD = "insert into public.effects (job, attempt) values (%s, %s)"


def connect() -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(os.environ["TAILRACE_DATABASE_URL"], application_name="handlers")


@app.middleware
async def around(ctx: JobContext[None], call: Call) -> object:
    """Says which group it sees."""
    write(ctx, "in", ctx.job.serial_group)
    try:
        return await call()
    finally:
        write(ctx, "out", ctx.job.serial_group)


@app.task
async def step(ctx: JobContext[None]) -> None:
    write(ctx, "start", ctx.job.serial_group)
    write(ctx, "end", ctx.job.serial_group)


@app.task
async def held(ctx: JobContext[None], gate: str) -> None:
    """Runs until its gate opens."""
    write(ctx, "start", ctx.job.serial_group)
    await opened(gate)
    write(ctx, "end", ctx.job.serial_group)


@app.task
async def bare(gate: str = "") -> None:
    """Has no context; only the middleware knows its group."""
    if gate:
        await opened(gate)


def _pay(ctx: JobContext[None], how: str) -> None:
    write(ctx, "start", ctx.job.serial_group)
    with connect() as conn:
        conn.execute(ADD, [ctx.job.id, ctx.attempt])
        ctx.complete_in(conn)
        if ctx.attempt == 1 and how == "undo":
            conn.rollback()
    write(ctx, "end", ctx.job.serial_group)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if ctx.attempt == 1 and how == "raise":
        raise ValueError("after the commit")


@app.task
def pay(ctx: JobContext[None], how: str = "") -> None:
    """Completes itself; `undo` rolls that back, `raise` and `kill` follow the commit."""
    _pay(ctx, how)


@app.task(group_order="strict")
def pay_strict(ctx: JobContext[None], how: str = "") -> None:
    """The same, and its group waits for its retry."""
    _pay(ctx, how)


def _end_later(conn: psycopg.Connection[tuple[Any, ...]], gate: str) -> None:
    wait = threading.Event()
    while not is_open(gate):
        wait.wait(0.02)
    conn.commit()
    conn.close()


@app.task
def leave_open(ctx: JobContext[None], gate: str) -> None:
    """Returns while the transaction that completes it is open; a thread commits when the gate opens."""
    write(ctx, "start", ctx.job.serial_group)
    conn = connect()
    conn.execute(ADD, [ctx.job.id, ctx.attempt])
    ctx.complete_in(conn)
    threading.Thread(target=_end_later, args=(conn, gate), daemon=True).start()
    write(ctx, "end", ctx.job.serial_group)


@app.task(key="chain", serial_group="g")
async def chain(ctx: JobContext[None], left: int) -> None:
    """Enqueues its next run under its own key and in its own group."""
    write(ctx, "start", ctx.job.serial_group)
    if left:
        await chain.aenqueue(left - 1)
    write(ctx, "end", ctx.job.serial_group)
