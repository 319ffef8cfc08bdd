"""Each line that ends in `# bad` must be refused by both type checkers, and no other line. `test_typing.py` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from tailrace import App, Call, DeadLetter, JobContext, NewJob
from tests.typing.good import Resources, app, deliver, resize


def wrong_payload() -> None:
    deliver.enqueue(event_id="1", url="u")  # bad
    deliver.enqueue(event_id=1)  # bad
    deliver.enqueue(event_id=1, url="u", x=1)  # bad
    deliver.enqueue(1, "u", 3)  # bad
    deliver.job(event_id="1", url="u")  # bad
    deliver.using(delay=1).enqueue(event_id=1)  # bad
    resize.enqueue(Path("a"), widht=3)  # bad
    app.enqueue_many([deliver.job(event_id="1", url="u")])  # bad
    app.enqueue_many([deliver])  # bad
    app.enqueue("deliver")  # bad


def wrong_options(conn: psycopg.Connection[Any]) -> None:
    deliver.using(conn, prio=1).enqueue(event_id=1, url="u")  # bad
    deliver.using(conn, on_duplicate="repalce")  # bad
    deliver.using(conn, priority="high")  # bad
    deliver.using(conn, run_at="2027-01-01")  # bad
    deliver.using(conn, serial_group=7)  # bad
    deliver.using(conn, group_order="strict")  # bad
    App("q", databse_url="x")  # bad


def wrong_connection(conn: psycopg.Connection[Any], aconn: psycopg.AsyncConnection[Any]) -> None:
    deliver.using(42)  # bad
    deliver.using(conn).aenqueue(event_id=1, url="u")  # bad
    deliver.using(aconn).enqueue(event_id=1, url="u")  # bad
    app.using(aconn).enqueue_many([])  # bad
    app.using(conn).aenqueue_many([])  # bad


async def wrong_completion(ctx: JobContext[Any], conn: psycopg.Connection[Any], aconn: psycopg.AsyncConnection[Any]) -> None:
    ctx.complete_in(aconn)  # bad
    await ctx.acomplete_in(conn)  # bad
    ctx.acomplete_in(aconn)  # bad


async def wrong_word(conn: psycopg.Connection[Any], aconn: psycopg.AsyncConnection[Any]) -> None:
    deliver.using(aconn).aenqueue(event_id=1, url="u")  # bad
    deliver.aenqueue(event_id=1, url="u")  # bad
    await deliver.using(conn).enqueue(event_id=1, url="u")  # bad


@app.task
async def misplaced(event_id: int, *, ctx: JobContext[Resources]) -> None: ...


misplaced.enqueue(event_id=1)  # bad


@app.task(timeout="30 s")  # bad
def late() -> None: ...


@app.task(keep_result="60")  # bad
def kept() -> None: ...


@app.middleware  # bad
async def alone(ctx: JobContext[Resources]) -> object: ...


@app.middleware  # bad
def blocking(ctx: JobContext[Resources], call: Call) -> object: ...


@app.middleware
async def forgetful(ctx: JobContext[Resources], call: Call) -> None:
    call()  # bad


@app.on_enqueue  # bad
async def slow(job: NewJob) -> NewJob:
    return job


@app.on_enqueue  # bad
def forgotten(job: NewJob) -> None: ...


@app.on_enqueue  # bad
def misread(job: dict[str, Any]) -> NewJob:
    return NewJob("t")


@app.on_dead  # bad
async def page(dead: NewJob) -> None: ...


@app.on_dead  # bad
def verdict(dead: DeadLetter) -> str:
    return "page"


def wrong_schedules(conn: psycopg.Connection[Any]) -> None:
    app.cron("* * * * *", deliver)  # bad
    app.cron("* * * * *", deliver.job(1, "u"), zone="UTC")  # bad
    app.cron("* * * * *", deliver.job(1, "u"), overlap="both")  # bad
    app.every("60", deliver.job(1, "u"))  # bad
    app.using(conn).schedules.alist()  # bad
