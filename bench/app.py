"""The application that the benchmark's workers serve: a no-op task, and one that never returns.

Written as a user would write it. `gated_app` is the same behind the starting gate.
"""

import asyncio
from collections.abc import AsyncIterator

from bench import protocol
from tailrace import App

app = App("default")


@app.task
async def noop(seq: int) -> None:
    """Do nothing but be seen."""
    protocol.record(seq)


@app.task
async def wait_for_ever() -> None:
    """Keep a slot until the process is killed."""
    await asyncio.Event().wait()


@app.lifespan
async def reporting() -> AsyncIterator[None]:
    """Tell the benchmark how many handlers ran, while the worker lives."""
    reporter = asyncio.create_task(protocol.report())
    yield
    reporter.cancel()
