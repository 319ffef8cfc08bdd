"""The application of the fault suite: each run writes its start and its end to a ledger in another database.

The ledger is on a server of its own, so it outlives the faults of the one under test, and its clock judges all times.
Workers import it as `tests.chaos.apps:app`; gates are files, as in tests/worker/fault_apps.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg

from tailrace import App, JobContext

app = App("chaos")
HOME = Path(os.environ.get("CHAOS_HOME", "."))
STEP_SECONDS = 0.02


class Ledger:
    """The connection of one worker to the ledger."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn, self._lock = conn, threading.Lock()

    def write(self, ctx: JobContext[Any], what: str) -> None:
        """Write one line at once."""
        with self._lock:
            self._conn.execute(
                "insert into public.ledger (what, job, task, attempt, pid) values (%s, %s, %s, %s, %s)",
                [what, ctx.job.id, ctx.job.task, ctx.attempt, os.getpid()],
            )


@app.lifespan
async def resources() -> AsyncIterator[Ledger]:
    with psycopg.connect(os.environ["CHAOS_LEDGER"], autocommit=True, application_name="ledger") as conn:
        yield Ledger(conn)


def is_open(gate: str) -> bool:
    """Whether the test has opened a gate."""
    return (HOME / gate).exists()


@app.task
async def work(ctx: JobContext[Ledger], seconds: float) -> None:
    """The load: what it takes is known, so slots and not the machine decide the throughput."""
    ctx.resources.write(ctx, "start")
    await asyncio.sleep(seconds)
    ctx.resources.write(ctx, "end")


@app.task
async def quick(ctx: JobContext[Ledger]) -> None:
    ctx.resources.write(ctx, "start")
    ctx.resources.write(ctx, "end")


@app.task
async def freeze(ctx: JobContext[Ledger]) -> None:
    """Stops its own process at its first run, in the middle of a batch; the second one waits for what that reports."""
    ctx.resources.write(ctx, "start")
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        while not is_open("reported"):  # noqa: ASYNC110 - the gate is a file
            await asyncio.sleep(STEP_SECONDS)
    ctx.resources.write(ctx, "end")


@app.task(queue="held")
async def gated(ctx: JobContext[Ledger], gate: str) -> None:
    """Runs until its gate opens."""
    ctx.resources.write(ctx, "start")
    while not is_open(gate):  # noqa: ASYNC110 - the gate is a file
        await asyncio.sleep(STEP_SECONDS)
    ctx.resources.write(ctx, "end")


@app.task
async def poison(ctx: JobContext[Ledger]) -> None:
    """Ends its process."""
    ctx.resources.write(ctx, "start")
    os._exit(9)


@app.task
def stubborn(ctx: JobContext[Ledger], gate: str) -> None:
    """A thread that ignores its cancellation."""
    ctx.resources.write(ctx, "start")
    while not is_open(gate):
        time.sleep(STEP_SECONDS)


@app.task
async def blocking(ctx: JobContext[Ledger], gate: str) -> None:
    """Blocks the event loop."""
    ctx.resources.write(ctx, "start")
    while not is_open(gate):
        time.sleep(STEP_SECONDS)  # noqa: ASYNC251 - that is the fault
