"""Applications with schedules for the worker's tests; each handler leaves its tick in the ledger of the test's database."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import psycopg

from tailrace import App, JobContext, NewJob
from tests.worker.apps import Ledger


def application() -> App:
    """An application with the tasks of these tests."""
    made = App("work")

    @made.lifespan
    async def resources() -> AsyncIterator[Ledger]:
        with psycopg.connect(os.environ["TAILRACE_DATABASE_URL"], autocommit=True, application_name="handlers") as conn:
            yield Ledger(conn)

    @made.task(timeout=60)
    async def pulse(ctx: JobContext[Ledger], scope: str = "all") -> None:
        ctx.resources.write(ctx, ctx.job.scheduled_for)

    @made.task(timeout=60)
    async def long(ctx: JobContext[Ledger], seconds: float = 3) -> None:
        ctx.resources.write(ctx, "begun")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            ctx.resources.write(ctx, ctx.stop.reason)
            raise
        ctx.resources.write(ctx, "ended")

    return made


app = application()
app.every(1, NewJob("pulse", {"scope": "all"}, meta={"by": "app"}), overlap="allow")

bare = application()
"""The same without any schedule."""

skipping = application()
skipping.every(1, NewJob("long"), overlap="skip")

replacing = application()
replacing.every(2, NewJob("long", {"seconds": 30}), overlap="replace")

wrong = application()
wrong.every(1, NewJob("typo"))
