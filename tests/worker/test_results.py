"""What a handler returns is kept where its task says so, and read by whoever waits; ends are remembered where the queue does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from tailrace import InvalidOption, InvalidPayload
from tailrace.db import Database
from tailrace.jobs import JobResult, Jobs
from tailrace.results import plain_result
from tests.rig.processes import StartWorker
from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import eventually

APP = "tests.worker.result_apps:app"


@pytest.fixture
def jobs(database: RigDatabase) -> Iterator[Jobs]:
    """The words on jobs, on a pool."""
    place = Database(url=SecretStr(database.dsn))
    yield Jobs(place)
    place.close()


def enqueue(conn: Connection, task: str, options: dict[str, object] | None = None, **payload: object) -> int:
    """Enqueue a job and return its id."""
    row = conn.execute(
        "select id from tailrace.enqueue('kept', %s, %s, %s)", [task, Jsonb(payload), Jsonb(options or {})]
    ).fetchone()
    assert row is not None
    return int(row[0])


def history(conn: Connection) -> dict[int, str]:
    """The history: job → outcome."""
    return dict(conn.execute("select id, outcome from tailrace.history").fetchall())


def test_results_come_back(worker_process: StartWorker, conn: Connection, jobs: Jobs) -> None:
    """Sync and async handlers, models and times, with a key, by a completion of their own; None is a result too."""
    worker_process(APP).wait_ready()
    ids = {
        "add": enqueue(conn, "add", a=2, b=3),
        "pack": enqueue(conn, "pack", number=7),
        "keyed": enqueue(conn, "keyed", {"key": "one-1"}, n=1),
        "nothing": enqueue(conn, "nothing"),
        "completes": enqueue(conn, "completes", n=5),
    }
    found = {name: jobs.get_result(ident, timeout=20) for name, ident in ids.items()}
    assert {name: result.state for name, result in found.items()} == dict.fromkeys(ids, "succeeded")
    assert {name: result.value for name, result in found.items()} == {
        "add": 5,
        "pack": {"number": 7, "sent": "2026-01-01T00:00:00Z"},
        "keyed": ["one-1", "1"],
        "nothing": None,
        "completes": {"n": 5},
    }
    assert all(result.ended and result.finished_at is not None for result in found.values())


def test_what_cannot_be_kept_does_not_fail_the_job(worker_process: StartWorker, conn: Connection, jobs: Jobs) -> None:
    """The effects have happened: the job has succeeded, the log says why there is no result."""
    worker = worker_process(APP).wait_ready()
    for task in ("too_large", "no_json"):
        result = jobs.get_result(enqueue(conn, task), timeout=20)
        assert (result.state, result.value) == ("succeeded", None)
    told = [record["task"] for record in worker.events("result_dropped")]
    assert told == ["too_large", "no_json"]


def test_without_history_and_results_nothing_is_kept(worker_process: StartWorker, conn: Connection, jobs: Jobs) -> None:
    worker_process(APP).wait_ready()
    ident = enqueue(conn, "plain")
    assert jobs.get_result(ident, timeout=20).state == "gone"
    assert conn.execute("select count(*) from tailrace.finished").fetchone() == (0,)


def test_the_state_says_where_a_job_stands(worker_process: StartWorker, conn: Connection, jobs: Jobs) -> None:
    waiting = enqueue(conn, "add", {"delay": 600}, a=1, b=1)
    dead = enqueue(conn, "fails", {"max_attempts": 1})
    assert jobs.get_result(waiting).state == "waiting"
    worker_process(APP).wait_ready()
    assert jobs.get_result(dead, timeout=20).state == "dead"
    began = time.monotonic()
    assert jobs.get_result(waiting, timeout=0.3).state == "waiting"
    assert time.monotonic() - began < 5
    assert jobs.get_result(10**9) == JobResult(10**9, "gone")
    conn.execute("select tailrace.cancel(%s)", [waiting])
    assert jobs.get_result(waiting).state == "gone"


async def test_the_awaited_word_does_the_same(worker_process: StartWorker, conn: Connection, jobs: Jobs, dsn: str) -> None:
    await asyncio.to_thread(worker_process(APP).wait_ready)
    ident = enqueue(conn, "add", a=20, b=22)
    place = Database(url=SecretStr(dsn))
    result = await Jobs(place).aget_result(ident, timeout=20)
    assert (result.state, result.value) == ("succeeded", 42)
    await place.aclose()


@pytest.mark.parametrize("timeout", [-1, "5", float("nan")])
def test_a_wrong_timeout_is_refused(jobs: Jobs, timeout: float) -> None:
    with pytest.raises(InvalidOption):
        jobs.get_result(1, timeout=timeout)


def test_a_queue_with_a_history_remembers_each_end(worker_process: StartWorker, conn: Connection, jobs: Jobs) -> None:
    """Plain and keyed successes, deaths, cancels and what expired, each once, in the transaction of the end."""
    settings = {"history": {"retentionSeconds": 3600}}
    conn.execute("select tailrace.apply_queue('kept', %s, 'cli')", [Jsonb(settings)])
    cancelled = enqueue(conn, "plain", {"delay": 600})
    conn.execute("select tailrace.cancel(%s)", [cancelled])
    expected = {cancelled: "cancelled"}
    worker_process(APP).wait_ready()
    expected |= {enqueue(conn, "plain", {"meta": {"n": n}}): "succeeded" for n in range(30)}
    expected |= {enqueue(conn, "plain", {"key": f"k{n}"}): "succeeded" for n in range(5)}
    expected |= {enqueue(conn, "plain", {"serial_group": "g"}): "succeeded" for _ in range(5)}
    expected |= {enqueue(conn, "add", {"serial_group": "g", "key": f"g{n}"}, a=1, b=n): "succeeded" for n in range(3)}
    expected |= {enqueue(conn, "add", a=1, b=n): "succeeded" for n in range(5)}
    expected[enqueue(conn, "fails", {"max_attempts": 1})] = "dead"
    expected[enqueue(conn, "completes", n=1)] = "succeeded"
    eventually(lambda: conn.execute("select count(*) from tailrace.job").fetchone() == (0,), timeout=30, what="their ends")
    assert history(conn) == expected
    assert conn.execute("select count(*) from tailrace.finished").fetchone() == (len(expected),)
    metas = conn.execute("select count(*) from tailrace.history where meta ? 'n' and attempts = 1").fetchone()
    assert metas == (30,)
    assert jobs.get_result(cancelled).state == "cancelled"


@pytest.mark.parametrize("value", [object(), {"a": float("nan")}, ["\0"], "x" * 65_536, {1: {2: object()}}])
def test_results_that_are_no_json_are_named(value: object) -> None:
    with pytest.raises(InvalidPayload) as refused:
        plain_result(value)
    assert (refused.value.field or "").startswith("result")


def test_the_largest_result_is_kept() -> None:
    assert plain_result("x" * 65_534) == "x" * 65_534
    assert plain_result({"a": (1, 2.5, None), "b": {3}}) == {"a": [1, 2.5, None], "b": [3]}
