"""The application of the tests of lease, faults and shutdown: handlers that hang, block, freeze and do not listen.

Each handler writes a line at its start and at its end to a file, which outlives every fault that the tests make. Handlers
go on when a test opens their gate, which is a file too. Workers import it as `tests.worker.fault_apps:app`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tailrace import App, JobContext

app = App("faults")
idle = App("idle")
HOME = Path(os.environ.get("FAULTS_HOME", "."))
STEP_SECONDS = 0.02


def write(ctx: JobContext[Any] | None, what: str, note: str | None = None) -> None:
    """Append one line to the ledger, in one write."""
    line: dict[str, Any] = {"what": what, "note": note, "pid": os.getpid(), "at": time.time()}
    if ctx is not None:
        line |= {"job": ctx.job.id, "attempt": ctx.attempt}
    with (HOME / "ledger").open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def is_open(gate: str) -> bool:
    """Whether the test has opened a gate."""
    return (HOME / gate).exists()


async def opened(gate: str) -> None:
    """Wait until the test has opened a gate."""
    while not is_open(gate):  # noqa: ASYNC110 - the gate is a file
        await asyncio.sleep(STEP_SECONDS)


@app.lifespan
async def resources() -> AsyncIterator[None]:
    if "FAULTS_BROKEN_START" in os.environ:
        raise RuntimeError("these resources cannot be opened")
    if "FAULTS_SLOW_START" in os.environ:
        write(None, "opening")
        await opened("resources")
    write(None, "opened")
    yield
    write(None, "closed")


@app.task
async def quick(ctx: JobContext[None]) -> None:
    write(ctx, "start")


@app.task
async def gated(ctx: JobContext[None], gate: str) -> None:
    """Runs until its gate opens; says why when it is cancelled."""
    write(ctx, "start")
    try:
        await opened(gate)
    except asyncio.CancelledError:
        write(ctx, "cancelled", ctx.stop.reason)
        raise
    write(ctx, "end")


@app.task
async def fails(ctx: JobContext[None], gate: str) -> None:
    """Runs until its gate opens, and fails."""
    write(ctx, "start")
    await opened(gate)
    write(ctx, "end")
    raise ValueError("this job fails")


@app.task
async def told(ctx: JobContext[None], gate: str) -> None:
    """Notes when it is told to stop, and goes on until its gate opens."""
    write(ctx, "start")
    await ctx.stop.until(60)
    write(ctx, "told", ctx.stop.reason)
    await opened(gate)
    write(ctx, "end")


@app.task
async def freezing(ctx: JobContext[None]) -> None:
    """Stops its own process at its first run, in the middle of a batch: the test lets it go on."""
    write(ctx, "start")
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    write(ctx, "end")


@app.task
async def blocking(ctx: JobContext[None], gate: str) -> None:
    """Blocks the event loop until its gate opens."""
    write(ctx, "start")
    while not is_open(gate):
        time.sleep(STEP_SECONDS)  # noqa: ASYNC251 - that is the fault
    write(ctx, "end")


@app.task
async def deaf(ctx: JobContext[None], gate: str) -> None:
    """Swallows every cancellation."""
    write(ctx, "start")
    while not is_open(gate):
        try:
            await asyncio.sleep(STEP_SECONDS)
        except asyncio.CancelledError:
            write(ctx, "cancelled", ctx.stop.reason)
    write(ctx, "end")


@app.task
def polite(ctx: JobContext[None]) -> None:
    """A sync handler that ends when it is told to."""
    write(ctx, "start")
    ctx.stop.wait(60)
    write(ctx, "end", ctx.stop.reason)


@app.task
def stubborn(ctx: JobContext[None], gate: str) -> None:
    """A sync handler that listens to nothing but its gate."""
    write(ctx, "start")
    while not is_open(gate):
        time.sleep(STEP_SECONDS)
    write(ctx, "end")


@app.task
def interruptible(ctx: JobContext[None]) -> None:
    """A sync handler that saves its state and raises when it is interrupted for good."""
    write(ctx, "start", json.dumps(ctx.saved))
    ctx.save({"page": ctx.attempt})
    while ctx.stop.reason != "shutdown" or not is_open("raise"):
        time.sleep(STEP_SECONDS)
    raise RuntimeError("interrupted in the middle")
