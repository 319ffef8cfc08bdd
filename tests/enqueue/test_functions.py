"""The SQL functions for producers in any language: forms of options, precedence, many, unknown queues."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace import InvalidPayload
from tests.enqueue.conftest import Shop
from tests.rig.servers import Connection, RigDatabase

COLUMNS = "priority, max_attempts, extract(epoch from timeout)::int, backoff"


def enqueue(conn: Connection, options: dict[str, Any] | None = None, *, queue: str = "q", task: str = "t") -> int:
    row = conn.execute(
        "select id, outcome from tailrace.enqueue(%s, %s, '{}', %s)", [queue, task, json.dumps(options or {})]
    ).fetchone()
    assert row is not None
    assert row[1] == "created"
    return int(row[0])


def settings_of(conn: Connection, job: int) -> tuple[Any, ...]:
    row = conn.execute(f"select {COLUMNS} from tailrace.job where id = %s", [job]).fetchone()
    assert row is not None
    return row


def test_the_example_of_the_page(conn: Connection) -> None:
    rows = conn.execute(
        """
        select * from tailrace.enqueue('webhooks', 'deliver', '{"event_id": 1, "url": "u"}',
          '{"priority": 10, "delay": "1 minute", "key": "event-1", "on_duplicate": "skip", "tenant": "acme",
            "max_attempts": 8, "timeout": "30 s", "expires_in": "1 hour", "meta": {"request": "r"}}')
        """
    )
    assert [column.name for column in rows.description or ()] == ["id", "outcome"]
    [(job, outcome)] = rows.fetchall()
    assert outcome == "created"
    assert settings_of(conn, job) == (10, 8, 30, None)
    assert conn.execute("select * from tailrace.enqueue('q', 't', '{}')").fetchall()[0][1] == "created"
    assert conn.execute("select * from tailrace.enqueue('q', 't', '{}', null)").fetchall()[0][1] == "created"


def test_durations_are_seconds_or_intervals(conn: Connection) -> None:
    for form in (90, 90.0, "90", "90 s", "1 minute 30 seconds", "PT1M30S", "00:01:30"):
        job = enqueue(conn, {"delay": form, "timeout": form})
        assert settings_of(conn, job)[2] == 90
        [(wait,)] = conn.execute("select run_at - created_at from tailrace.job where id = %s", [job]).fetchall()
        assert timedelta(seconds=89) < wait <= timedelta(seconds=90)


@pytest.mark.parametrize(
    "text", ["2030-01-01T00:00:00Z", "2030-01-01 01:00:00+01", "2029-12-31 18:30:00.0-05:30", "2030-01-01 00:00 UTC"]
)
def test_run_at_says_its_offset(conn: Connection, text: str) -> None:
    job = enqueue(conn, {"run_at": text})
    assert conn.execute("select run_at = '2030-01-01 00:00+00' from tailrace.job where id = %s", [job]).fetchone() == (True,)


def test_null_options_were_not_given(conn: Connection) -> None:
    job = enqueue(conn, {"priority": None, "key": None, "delay": None, "run_at": None, "meta": {"kept": None}})
    assert settings_of(conn, job) == (0, 5, None, None)
    assert conn.execute("select meta from tailrace.job").fetchall() == [({"kept": None},)]


def test_precedence_is_options_task_decorator_defaults(conn: Connection, shop: Shop) -> None:
    """The JobQueue's entry for a task wins over the decorator, and both over its jobDefaults."""
    policy = {"strategy": "Fixed", "baseSeconds": 7, "maxSeconds": 8, "jitterPercent": 50}
    settings: dict[str, Any] = {
        "jobDefaults": {"priority": 1, "maxAttempts": 11, "timeoutSeconds": 111, "backoff": policy},
        "tasks": {"deliver": {"priority": 2, "timeoutSeconds": 22, "backoff": policy}},
    }
    conn.execute("insert into tailrace.queue (name, settings) values ('webhooks', %s)", [json.dumps(settings)])
    stored = {"strategy": "fixed", "base": 7, "cap": 8, "jitter": 0.5}
    # jobDefaults only: timeout and backoff are looked up at the run, so that a change of the queue reaches waiting jobs
    assert settings_of(conn, enqueue(conn, queue="webhooks", task="other")) == (1, 11, None, None)
    # the task's entry
    assert settings_of(conn, enqueue(conn, queue="webhooks", task="deliver")) == (2, 11, 22, stored)
    # the decorator says max_attempts 8 and timeout 30: the entry wins where it says something
    assert settings_of(conn, shop.deliver.using(conn).enqueue(1, "u").id) == (2, 8, 22, stored)
    # options win over all
    assert settings_of(conn, shop.deliver.using(conn, priority=9, timeout=9, max_attempts=9).enqueue(1, "u").id) == (
        9,
        9,
        9,
        stored,
    )
    # the same in bulk
    many = shop.app.using(conn).enqueue_many(
        [shop.deliver.job(1, "u"), shop.deliver.using(priority=9).job(1, "u"), shop.plain.job()]
    )
    assert [settings_of(conn, r.id)[:3] for r in many] == [(2, 8, 22), (9, 8, 22), (1, 11, None)]


def test_a_queue_may_take_smaller_payloads_only(conn: Connection, shop: Shop) -> None:
    settings = {"jobDefaults": {"priority": 0, "maxAttempts": 5, "payloadLimitBytes": 100}}
    conn.execute("insert into tailrace.queue (name, settings) values ('webhooks', %s)", [json.dumps(settings)])
    shop.plain.using(conn).enqueue("x" * 80)
    for refuse in (
        lambda: shop.plain.using(conn).enqueue("x" * 100),
        lambda: shop.plain.using(conn, key="k").enqueue("x" * 100),
        lambda: shop.app.using(conn).enqueue_many([shop.resize.job(Path("x" * 200)), shop.plain.job("x" * 100)]),
    ):
        with pytest.raises(InvalidPayload, match="than .* takes") as refused:
            refuse()
        assert refused.value.field == "payload"
    assert conn.execute("select count(*) from tailrace.job").fetchone() == (1,)


def test_a_queue_without_a_row_works_and_gets_none(conn: Connection) -> None:
    """A row would be a lock that all its producers share."""
    enqueue(conn, queue="nobody serves this")
    conn.execute("select * from tailrace.enqueue_many(%s)", [json.dumps([{"queue": "nor this", "task": "t", "payload": {}}])])
    assert conn.execute("select count(*) from tailrace.queue").fetchone() == (0,)
    assert conn.execute("select count(*) from tailrace.job").fetchone() == (2,)


def test_many_answer_in_order(conn: Connection) -> None:
    jobs: list[dict[str, Any]] = [
        {"queue": "q", "task": "a", "payload": {"n": 0}, "key": "K"},
        {"queue": "q", "task": "a", "payload": {"n": 1}, "key": "K", "on_duplicate": "replace"},
        {"queue": "q", "task": "b", "payload": {"n": 2}},
        {"queue": "r", "task": "a", "payload": {"n": 3}, "priority": 5, "delay": "1 h"},
        {"queue": "q", "task": "a", "payload": {"n": 4}, "key": None},
    ]
    rows = conn.execute("select ord, id, outcome from tailrace.enqueue_many(%s)", [json.dumps(jobs)]).fetchall()
    assert [(ord_, outcome) for ord_, _, outcome in rows] == [
        (1, "created"),
        (2, "replaced"),
        (3, "created"),
        (4, "created"),
        (5, "created"),
    ]
    stored: dict[int, int] = dict(conn.execute("select id, (payload ->> 'n')::int from tailrace.job").fetchall())
    assert [stored[job] for _, job, _ in rows] == [1, 1, 2, 3, 4]
    assert conn.execute("select * from tailrace.enqueue_many('[]')").fetchall() == []


def test_producers_need_no_right_on_tables(database: RigDatabase, conn: Connection) -> None:
    """The functions run as their owner, with a search_path that nobody can bend; nobody may call them unasked."""
    name = f"producer_{database.name}"
    conn.execute(f"create role \"{name}\" login password 'x'")
    try:
        conn.execute(f'grant usage on schema tailrace to "{name}"')
        with database.connect() as producer:
            producer.execute(f'set role "{name}"')
            for call in ("enqueue('q', 't', '{}')", "enqueue_many('[]')", "enqueue_batch_v1('[]', '{}', '[]')"):
                with pytest.raises(Exception, match="permission denied for function"):
                    producer.execute(f"select * from tailrace.{call}")
            conn.execute(f'grant execute on function tailrace.enqueue(text, text, jsonb, jsonb) to "{name}"')
            producer.execute("create temporary table job (id int)")
            producer.execute("set search_path = pg_temp, tailrace")
            options = json.dumps({"key": "k", "on_duplicate": "replace", "delay": "1 s", "meta": {}, "backoff": {"base": 1}})
            producer.execute("select * from tailrace.enqueue('q', 't', '{}', %s)", [options])
            with pytest.raises(Exception, match="permission denied for table"):
                producer.execute("select * from tailrace.job")
    finally:
        conn.execute(f'drop owned by "{name}"')
        conn.execute(f'drop role "{name}"')
    assert conn.execute("select count(*) from tailrace.job").fetchone() == (1,)
