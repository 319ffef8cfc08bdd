"""What `complete_in` takes: a psycopg connection of the right kind, in a transaction, and no result yet."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from tailrace import InvalidOption, JobContext, LeaseLost, TailraceError
from tailrace.completion import Completion
from tailrace.db import Blocks
from tailrace.job import Job
from tests.rig.servers import Connection, RigDatabase

NOW = datetime.now(UTC)


def context(job: int = 1, *, token: int = 7) -> tuple[JobContext[Any], Completion]:
    completion = Completion(Blocks("tailrace"), job=job, token=token, worker="w")
    made = Job(id=job, queue="q", task="t", created_at=NOW, run_at=NOW)
    return JobContext(resources=None, job=made, completion=completion), completion


def running(database: RigDatabase) -> int:
    database.query("insert into tailrace.job (queue, task, payload, token, attempts) values ('q', 't', '{}', 7, 1)")
    return int(database.value("select id from tailrace.job"))


def test_a_transaction_that_begins_by_itself(database: RigDatabase) -> None:
    ctx, completion = context(running(database))
    with database.connect(autocommit=False) as conn:
        ctx.complete_in(conn)
        assert completion.done
        assert database.value("select count(*) from tailrace.job") == 1
        conn.commit()
    assert database.value("select count(*) from tailrace.job") == 0


async def test_an_awaited_connection(database: RigDatabase) -> None:
    ctx, completion = context(running(database))
    async with await psycopg.AsyncConnection.connect(database.dsn) as conn:
        await ctx.acomplete_in(conn)
    assert completion.done
    assert database.value("select count(*) from tailrace.job") == 0


def test_a_job_that_is_no_longer_ours(database: RigDatabase) -> None:
    """FQ-03."""
    ctx, completion = context(running(database), token=8)
    with database.connect(autocommit=False) as conn, pytest.raises(LeaseLost, match="no longer run by worker w"):
        ctx.complete_in(conn)
    assert not completion.done


def test_autocommit_outside_of_a_transaction_is_refused(database: RigDatabase, conn: Connection) -> None:
    """The effects before it would have been committed without it."""
    ctx, _ = context(running(database))
    with pytest.raises(InvalidOption, match="transaction"):
        ctx.complete_in(conn)
    with conn.transaction():
        ctx.complete_in(conn)
    assert database.value("select count(*) from tailrace.job") == 0


async def test_the_wrong_word_names_the_right_one(database: RigDatabase, conn: Connection) -> None:
    ctx, _ = context()
    async with await psycopg.AsyncConnection.connect(database.dsn) as awaited:
        with pytest.raises(InvalidOption, match="acomplete_in"):
            ctx.complete_in(awaited)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="Use complete_in"):
            await ctx.acomplete_in(conn)  # type: ignore[arg-type]


def test_other_connections_and_results_are_refused(conn: Connection) -> None:
    ctx, completion = context()
    with pytest.raises(InvalidOption, match="no connection that this release can use"):
        ctx.complete_in(object())  # type: ignore[arg-type]
    with conn.transaction(), pytest.raises(InvalidOption, match="result: the task keeps no results"):
        ctx.complete_in(conn, {"value": 1})
    assert not completion.done


def test_a_context_of_no_run(conn: Connection) -> None:
    ctx: JobContext[Any] = JobContext(resources=None, job=Job(id=1, queue="q", task="t", created_at=NOW, run_at=NOW))
    with pytest.raises(TailraceError, match="no run of a worker"):
        ctx.complete_in(conn)


def test_the_twins_take_the_same(conn: Connection) -> None:
    both = (JobContext.complete_in, JobContext.acomplete_in)
    assert [list(inspect.signature(word).parameters) for word in both] == [["self", "conn", "result"]] * 2
