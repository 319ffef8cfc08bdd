"""Hold, resume, apply and purge queues; each refused by type and written to the audit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tailrace.db import Statement, run
from tailrace.errors import Conflict, InvalidOption, NotFound
from tests.rig.servers import Connection, RigDatabase


def call(conn: Connection, expression: str, **params: Any) -> Any:
    return run(conn, Statement(f"select tailrace.{expression}", params, lambda rows: rows[0][0]))


def fill(conn: Connection, count: int, queue: str = "q") -> None:
    conn.execute(
        "insert into tailrace.job (queue, task, payload) select %s, 't', '{}' from generate_series(1, %s)", [queue, count]
    )


def verbs(conn: Connection) -> list[tuple[str, int]]:
    return conn.execute("select verb, n from tailrace.audit order by id").fetchall()


# ---- hold and resume -------------------------------------------------------------------------------------------------
def test_a_hold_without_an_end_can_be_read_by_python(conn: Connection) -> None:
    fill(conn, 2)
    assert call(conn, "hold_queue('q')").year == 9999
    assert conn.execute("select held from tailrace.queue_stats('q')").fetchone() == (2,)
    assert call(conn, "resume_queue('q')") is True
    assert call(conn, "resume_queue('q')") is False
    assert conn.execute("select held from tailrace.queue_stats('q')").fetchone() == (0,)
    assert verbs(conn) == [("hold", 1), ("resume", 1)]


def test_a_hold_for_some_seconds_ends_by_itself(conn: Connection) -> None:
    call(conn, "hold_queue('q', 600)")
    left = "select extract(epoch from held_until - now()) from tailrace.queues where queue = 'q'"
    assert 590 < conn.execute(left).fetchall()[0][0] <= 600.1
    call(conn, "hold_queue(queue => 'q', seconds => 0)")
    assert conn.execute("select held, held_until from tailrace.queues where queue = 'q'").fetchone() == (False, None)
    assert call(conn, "resume_queue('q')") is False


@pytest.mark.parametrize("seconds", ["-1", "1e12", "'NaN'", "'Infinity'"])
def test_impossible_holds_are_refused(conn: Connection, seconds: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        call(conn, f"hold_queue('q', {seconds})")
    assert caught.value.field == "seconds"


def test_a_hold_by_the_resource_is_not_ended_by_hand(conn: Connection) -> None:
    call(conn, "apply_queue('q', '{\"stopPolicy\": \"Hold\"}', 'cli')")
    fill(conn, 1)
    with pytest.raises(Conflict, match="held by its stopPolicy"):
        call(conn, "resume_queue('q')")
    assert conn.execute("select held, held_by_policy from tailrace.queues").fetchone() == (True, True)
    assert call(conn, "apply_queue('q', '{\"stopPolicy\": \"None\"}', 'cli')") == "changed"
    assert conn.execute("select held from tailrace.queues").fetchone() == (False,)


@pytest.mark.parametrize("expression", ["resume_queue('nobody')", "purge_queue('nobody')"])
def test_an_unknown_queue_is_not_found(conn: Connection, expression: str) -> None:
    with pytest.raises(NotFound) as caught:
        call(conn, expression)
    assert caught.value.field == "queue"
    assert verbs(conn) == []


# ---- apply -----------------------------------------------------------------------------------------------------------
def test_apply_says_what_it_did(conn: Connection) -> None:
    settings = Jsonb({"jobDefaults": {"priority": 3}})
    assert call(conn, "apply_queue('q', %(s)s, 'cli')", s=settings) == "created"
    assert call(conn, "apply_queue('q', %(s)s, 'cli')", s=settings) == "unchanged"
    assert call(conn, "apply_queue('q', '{}', 'cli')") == "changed"
    assert verbs(conn) == [("apply", 1), ("apply", 1)]


def test_a_queue_that_a_worker_made_is_created_by_the_first_apply(conn: Connection) -> None:
    conn.execute("insert into tailrace.queue (name) values ('q')")
    call(conn, "hold_queue('q')")
    assert call(conn, "apply_queue('q', '{}', 'cli')") == "created"
    assert conn.execute("select held, managed_by from tailrace.queues").fetchone() == (True, "cli")


def test_a_controllers_queue_refuses_the_command_line(conn: Connection) -> None:
    call(conn, "apply_queue('q', '{}', 'controller')")
    with pytest.raises(Conflict, match="managed by a controller"):
        call(conn, "apply_queue('q', '{\"a\": 1}', 'cli')")
    assert call(conn, "apply_queue('q', '{\"a\": 1}', 'controller')") == "changed"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ("'', '{}', 'cli'", "queue"),
        ("repeat('x', 129), '{}', 'cli'", "queue"),
        ("null, '{}', 'cli'", "queue"),
        ("'q', '[]', 'cli'", "settings"),
        ("'q', null, 'cli'", "settings"),
        ("'q', '{}', 'me'", "managed_by"),
        ("'q', '{}', null", "managed_by"),
        ("'q', '{\"stopPolicy\": \"Maybe\"}', 'cli'", "stopPolicy"),
    ],
)
def test_wrong_applies_are_refused_by_field(conn: Connection, arguments: str, field: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        call(conn, f"apply_queue({arguments})")
    assert caught.value.field == field
    assert conn.execute("select count(*) from tailrace.queue").fetchone() == (0,)


def test_concurrent_applies_take_turns(conn: Connection, database: RigDatabase) -> None:
    def apply(number: int) -> str:
        with database.connect() as own:
            return str(call(own, "apply_queue('q', %(s)s, 'cli')", s=Jsonb({"n": number})))

    with ThreadPoolExecutor(8) as pool:
        results = sorted(pool.map(apply, range(8)))
    assert results == ["changed"] * 7 + ["created"]
    assert len(verbs(conn)) == 8


# ---- purge -----------------------------------------------------------------------------------------------------------
def test_purge_cancels_what_waits_and_only_that(conn: Connection) -> None:
    """BF-05: a running job is never removed by a clean-up, nor is a job of another queue."""
    fill(conn, 2500)
    fill(conn, 3, "other")
    conn.execute("insert into tailrace.job (queue, task, payload, token, attempts) values ('q', 't', '{}', 7, 1)")
    assert call(conn, "purge_queue('q')") == 2500
    assert conn.execute("select queue, token from tailrace.job order by queue, token").fetchall() == [
        ("other", None),
        ("other", None),
        ("other", None),
        ("q", 7),
    ]
    assert conn.execute("select what, sum(n)::int from tailrace.tally group by 1").fetchall() == [("cancelled", 2500)]
    assert verbs(conn) == [("purge", 2500)]


def test_purge_in_parts(conn: Connection) -> None:
    fill(conn, 25)
    assert [call(conn, "purge_queue('q', max_jobs => 10)") for _ in range(3)] == [10, 10, 5]
    fill(conn, 1)
    with pytest.raises(InvalidOption) as caught:
        call(conn, "purge_queue('q', max_jobs => 0)")
    assert caught.value.field == "max_jobs"


def test_purge_is_refused_while_workers_live(conn: Connection) -> None:
    fill(conn, 2)
    conn.execute(
        "insert into tailrace.worker (id, until, version, queues, tasks, slots)"
        " values ('w', now() + interval '1 minute', '1', '{other,q}', '{t}', 4)"
    )
    with pytest.raises(Conflict, match="live workers serve q"):
        call(conn, "purge_queue('q')")
    assert call(conn, "purge_queue('q', true)") == 2
