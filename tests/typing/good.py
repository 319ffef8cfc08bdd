"""What must pass both type checkers; it also runs. `test_typing.py` reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from typing_extensions import assert_type

from tailrace import App, Call, DeadLetter, JobContext, NewJob, NoRetry, Priority, Receipt, RetryAfter, RetryPolicy, Snooze


@dataclass
class Resources:
    http: str


app = App("webhooks", imports=("tests.typing.handlers",), database_url="postgresql://nowhere.invalid/db")


@app.lifespan
async def resources() -> AsyncIterator[Resources]:
    yield Resources("client")


def decide(error: BaseException, ctx: JobContext[Any]) -> RetryAfter | NoRetry | None:
    return RetryAfter(60) if ctx.attempt == 1 else None


@app.task(timeout=30, retry=RetryPolicy(max_attempts=8, base=5, cap=900), no_retry=(ValueError,), on_error=decide)
async def deliver(ctx: JobContext[Resources], event_id: int, url: str) -> None:
    assert_type(ctx.resources, Resources)
    assert_type(ctx.stop.wait(1), bool)
    assert_type(ctx.deadline, datetime | None)
    ctx.save({"sent": event_id})
    async with await psycopg.AsyncConnection.connect() as conn:
        await ctx.acomplete_in(conn)
    raise Snooze(timedelta(minutes=1))


@app.middleware
async def timed(ctx: JobContext[Resources], call: Call) -> object:
    assert_type(ctx.resources, Resources)
    return await call()


@app.middleware
async def quiet(ctx: JobContext, call: Call) -> None:
    assert_type(await call(), object)


@app.on_enqueue
def with_tenant(job: NewJob) -> NewJob:
    return replace(job, tenant="acme", meta={**(job.meta or {}), "request": "r"})


@app.on_dead
async def page(dead: DeadLetter) -> None:
    assert_type(dead.job_id, int)


@app.on_dead
def note(dead: DeadLetter) -> None:
    assert_type(dead.last_error, dict[str, Any] | None)


assert_type(with_tenant(NewJob("t")), NewJob)


@app.task
async def bare(ctx: JobContext, event_id: int, *, url: str = "") -> int:
    return 1


@app.task
def completed(ctx: JobContext[Resources], event_id: int) -> None:
    with psycopg.connect() as conn:
        ctx.complete_in(conn)


@app.cron("*/5 * * * *", timezone="Europe/Paris")
async def sweep_orders() -> None: ...


@app.every(timedelta(minutes=1), name="tidy", overlap="allow", catch_up=60)
@app.task(queue="low")
def tidy(ctx: JobContext[Resources], limit: int = 10) -> int:
    return limit


@app.task(queue="images", key="resize-{path}", on_duplicate="replace", priority=Priority.FAST_HIGH, serial_group="images-{width}")
def resize(path: Path, width: int = 800) -> int:
    return width


@app.task(timeout=timedelta(seconds=3), no_retry=ValueError, keep_result=60)
def nothing() -> None: ...


@app.task
def sweep(*, since: datetime | None = None) -> None: ...


def in_a_transaction(conn: psycopg.Connection[Any], rows: Iterable[tuple[int, str, str]]) -> None:
    assert_type(deliver.enqueue(1, "u"), Receipt)
    assert_type(deliver.enqueue(event_id=1, url="u"), Receipt)
    assert_type(deliver.using(conn).enqueue(event_id=1, url="u"), Receipt)
    assert_type(deliver.using(conn, key="k", on_duplicate="preserve_run_at").enqueue(event_id=1, url="u"), Receipt)
    assert_type(deliver.using(conn, key="k", on_duplicate="after").enqueue(event_id=1, url="u"), Receipt)
    assert_type(deliver.using(delay=60, tenant="acme", expires_in=3600, meta={"request": "r"}).enqueue(event_id=1, url="u"), Receipt)
    assert_type(deliver.using(run_at=datetime.now(UTC), max_attempts=3, retry=RetryPolicy(base=1)).job(event_id=1, url="u"), NewJob)
    assert_type(app.using(conn).enqueue_many(deliver.using(tenant=t).job(event_id=i, url=u) for i, u, t in rows), list[Receipt])
    assert_type(app.enqueue_many([deliver.job(1, "u"), resize.job(Path("a"))]), list[Receipt])
    assert_type(app.enqueue(NewJob("deliver", {"event_id": 1, "url": "u"}, queue="webhooks", key="k")), Receipt)
    bare.enqueue(1)
    resize.enqueue(Path("x"), width=1)
    nothing.enqueue()
    sweep.enqueue(since=datetime.now(UTC))
    app.using(conn).jobs.cancel(42)
    assert_type(sweep_orders.enqueue(), Receipt)
    assert_type(tidy.enqueue(limit=3), Receipt)
    assert_type(app.cron("30 2 * * *", deliver.job(1, "u"), name="nightly", overlap="skip", catch_up=timedelta(hours=1)), None)
    assert_type(app.every(60, NewJob("deliver", {"event_id": 1, "url": "u"})), None)
    app.using(conn).schedules.suspend("webhooks", "nightly")


async def awaited(conn: psycopg.AsyncConnection[Any]) -> None:
    assert_type(await deliver.using(conn).aenqueue(event_id=1, url="u"), Receipt)
    assert_type(await deliver.aenqueue(event_id=1, url="u"), Receipt)
    assert_type(await deliver.using(delay=1).aenqueue(event_id=1, url="u"), Receipt)
    assert_type(await app.using(conn).aenqueue_many([deliver.job(1, "u")]), list[Receipt])
    async with app as opened:
        assert_type(await opened.aenqueue(NewJob("deliver")), Receipt)
    await app.using(conn).jobs.acancel(42)
    assert_type(await app.using(conn).schedules.arun_now("webhooks", "nightly"), int)
