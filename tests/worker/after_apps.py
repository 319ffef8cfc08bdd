"""The application of the tests of mode `after`: handlers that enqueue their own key, and one that notes numbers.

Workers import it as `tests.worker.after_apps:app`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg

from tailrace import App, JobContext
from tests.worker.apps import Ledger
from tests.worker.apps import resources as ledger

app = App("after")


@app.lifespan
async def resources() -> AsyncIterator[Ledger]:
    async for one in ledger():
        yield one


@app.task(timeout=60)
async def note(ctx: JobContext[Ledger], number: int) -> None:
    """Two milliseconds of work on the newest number."""
    await asyncio.sleep(0.002)
    ctx.resources.write(ctx, f"{ctx.job.key} {number}")


@app.task(key="chain", timeout=60)
async def chain(ctx: JobContext[Ledger], left: int) -> None:
    """Enqueues the next link under its own key while it runs."""
    ctx.resources.write(ctx, left)
    if left:
        receipt = await chain.aenqueue(left - 1)
        ctx.resources.write(ctx, receipt.outcome)


@app.task(key="thread-{name}", timeout=60)
def chain_in_thread(name: str, left: int) -> None:
    """The same in a thread and without a context, in bulk."""
    if left:
        app.enqueue_many([chain_in_thread.job(name, left - 1)])


@app.task(key="said", on_duplicate="skip", timeout=60)
async def said(ctx: JobContext[Ledger]) -> None:
    """The decorator has said otherwise."""
    receipt = await said.aenqueue()
    ctx.resources.write(ctx, receipt.outcome)


@app.task(key="own", timeout=60)
async def other_key(ctx: JobContext[Ledger]) -> None:
    """Another key than its own, which another job holds, and its own key of another tenant."""
    for _ in range(2):
        other = await note.using(key="theirs", delay=600).aenqueue(0)
        ctx.resources.write(ctx, other.outcome)
    for _ in range(2):
        tenant = await other_key.using(tenant="b", delay=600).aenqueue()
        ctx.resources.write(ctx, tenant.outcome)


@app.task(key="tx", timeout=60)
async def in_a_transaction(ctx: JobContext[Ledger], dsn: str, left: int) -> None:
    """Completes itself and enqueues its next run in one transaction."""
    async with await psycopg.AsyncConnection.connect(dsn, application_name="handlers") as conn:
        await ctx.acomplete_in(conn)
        if left:
            receipt = await in_a_transaction.using(conn).aenqueue(dsn, left - 1)
            ctx.resources.write(ctx, receipt.outcome)
