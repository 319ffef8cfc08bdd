"""The application of the tests of results: what handlers return, and what becomes of it."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime
from typing import Any

import psycopg

from tailrace import App, JobContext

app = App("kept")


@dataclasses.dataclass
class Parcel:
    """What a result can be."""

    number: int
    sent: datetime


@app.task(keep_result=3600)
async def add(a: int, b: int) -> int:
    return a + b


@app.task(keep_result=3600)
def pack(number: int) -> Parcel:
    return Parcel(number, datetime(2026, 1, 1, tzinfo=UTC))


@app.task(keep_result=3600, key="one-{n}")
async def keyed(ctx: JobContext[None], n: int) -> list[str]:
    return [ctx.job.key or "", str(n)]


@app.task(keep_result=3600)
async def too_large() -> str:
    return "x" * 70_000


@app.task(keep_result=3600)
async def no_json() -> object:
    return object()


@app.task(keep_result=3600)
async def nothing() -> None: ...


@app.task
async def plain() -> str:
    return "nobody keeps this"


@app.task(keep_result=3600)
async def fails() -> str:
    raise ValueError("no")


@app.task(keep_result=3600)
async def completes(ctx: JobContext[None], n: int) -> str:
    async with await psycopg.AsyncConnection.connect(os.environ["TAILRACE_DATABASE_URL"]) as conn:
        await ctx.acomplete_in(conn, {"n": n})
    return "too late"


@app.middleware
async def pass_on(ctx: JobContext[Any], call: Any) -> object:
    return await call()
