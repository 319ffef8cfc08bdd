"""Tasks whose jobs have a serial group; each run leaves a start and an end in the ledger of fault_apps, with its group.

Workers import it as `tests.worker.group_apps:app`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tailrace import JobContext
from tests.worker.fault_apps import app as app
from tests.worker.fault_apps import opened, write

__all__ = ["app"]


@app.task
async def step(ctx: JobContext[None], seconds: float = 0.0) -> None:
    """Runs a while."""
    write(ctx, "start", ctx.job.serial_group)
    await asyncio.sleep(seconds)
    write(ctx, "end", ctx.job.serial_group)


@app.task
async def held(ctx: JobContext[None], gate: str) -> None:
    """Runs until its gate opens."""
    write(ctx, "start", ctx.job.serial_group)
    try:
        await opened(gate)
    finally:
        write(ctx, "end", ctx.job.serial_group)


async def _stumble(ctx: JobContext[Any], times: int) -> None:
    write(ctx, "start", ctx.job.serial_group)
    write(ctx, "end", ctx.job.serial_group)
    if ctx.attempt <= times:
        raise ValueError("once more")


@app.task
async def stumbling(ctx: JobContext[None], times: int) -> None:
    """Fails some times."""
    await _stumble(ctx, times)


@app.task(group_order="strict")
async def strict(ctx: JobContext[None], times: int = 0) -> None:
    """The same, and its group waits for its retry."""
    await _stumble(ctx, times)


@app.task(group_order="strict")
async def strict_held(ctx: JobContext[None], gate: str) -> None:
    """Runs until its gate opens; its group waits for its retry."""
    write(ctx, "start", ctx.job.serial_group)
    await opened(gate)
    write(ctx, "end", ctx.job.serial_group)
