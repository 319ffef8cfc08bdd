"""The application of the tests of limits and rates: every run writes when it began and when it ended.

The ledger has no constraint and takes the server's clock, so that runs which overlap show. Workers import it as
`tests.worker.limit_apps:app`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import psycopg

from tailrace import App, JobContext, RetryPolicy, Snooze

LEDGER = """create table public.runs (
  n bigint generated always as identity, job bigint not null, task text not null, attempt int not null, pid int not null,
  what text not null, at timestamptz not null default clock_timestamp())"""

app = App("limited")
soon = RetryPolicy(max_attempts=5, base=0.05, cap=0.05, jitter=0)


class Ledger:
    """One connection for all handlers of a worker."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn

    def write(self, ctx: JobContext[Any], what: str) -> None:
        """Write a line at once: blocks for a fraction of a millisecond."""
        self._conn.execute(
            "insert into public.runs (job, task, attempt, pid, what) values (%s, %s, %s, %s, %s)",
            [ctx.job.id, ctx.job.task, ctx.attempt, os.getpid(), what],
        )


@app.lifespan
async def resources() -> AsyncIterator[Ledger]:
    with psycopg.connect(os.environ["TAILRACE_DATABASE_URL"], autocommit=True, application_name="handlers") as conn:
        yield Ledger(conn)


async def _run(ctx: JobContext[Ledger], seconds: float) -> None:
    ctx.resources.write(ctx, "start")
    try:
        await asyncio.sleep(seconds)
    finally:
        ctx.resources.write(ctx, "end")


@app.task(timeout=60, retry=soon)
async def work(ctx: JobContext[Ledger], seconds: float = 0.0) -> None:
    await _run(ctx, seconds)


@app.task(timeout=60, retry=soon)
async def other(ctx: JobContext[Ledger], seconds: float = 0.0) -> None:
    await _run(ctx, seconds)


@app.task(timeout=60, retry=soon)
async def stumble(ctx: JobContext[Ledger], seconds: float = 0.0) -> None:
    """Snoozes, fails, then succeeds."""
    await _run(ctx, seconds)
    if ctx.attempt == 1 and ctx.saved is None:
        ctx.save({"snoozed": True})
        raise Snooze(0.01)
    if ctx.attempt < 3:
        raise RuntimeError("not yet")


@app.task(queue="plain")
async def noop() -> None: ...
