"""What people do to single jobs: cancel, run now, reschedule, change; each refused by type and written to the audit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tailrace.db import Statement, run
from tailrace.errors import Conflict, InvalidOption, NotFound, TailraceError
from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import eventually


def call(conn: Connection, expression: str, **params: Any) -> Any:
    return run(conn, Statement(f"select tailrace.{expression}", params, lambda rows: rows[0][0]))


def enqueue(conn: Connection, **options: Any) -> int:
    text = "select id from tailrace.enqueue('q', 't', '{\"n\": 1}', %(options)s)"
    return int(run(conn, Statement(text, {"options": Jsonb(options)}, lambda rows: rows[0][0])))


def start(conn: Connection, *jobs: int, token: int = 7, worker: str = "w") -> None:
    """Make jobs run: a living worker, a lease, a token."""
    conn.execute(
        "insert into tailrace.worker (id, until, version, queues, tasks, slots)"
        " values (%s, now() + interval '1 minute', '1', '{q}', '{t}', 4) on conflict do nothing",
        [worker],
    )
    conn.execute("insert into tailrace.lease (token, worker, queue, ids) values (%s, %s, 'q', %s)", [token, worker, list(jobs)])
    conn.execute("update tailrace.job set token = %s, attempts = attempts + 1 where id = any(%s)", [token, list(jobs)])


def audits(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("select verb, target, n, who from tailrace.audit order by id").fetchall()


def tallies(conn: Connection) -> dict[str, int]:
    return dict(conn.execute("select what, sum(n)::int from tailrace.tally group by 1").fetchall())


# ---- cancel ----------------------------------------------------------------------------------------------------------
def test_a_waiting_job_is_gone_at_once(conn: Connection) -> None:
    job = enqueue(conn)
    assert call(conn, "cancel(%(id)s)", id=job) == "cancelled"
    assert conn.execute("select count(*) from tailrace.job").fetchone() == (0,)
    assert tallies(conn) == {"cancelled": 1}
    user = conn.execute("select session_user").fetchall()[0][0]
    assert audits(conn) == [("cancel", {"id": str(job)}, 1, user)]


def test_a_running_job_gets_a_request_and_is_not_touched(conn: Connection, database: RigDatabase) -> None:
    """BF-02: cancel never alters the row that runs; its workers are told."""
    job = enqueue(conn)
    start(conn, job)
    before = conn.execute("select *, xmin from tailrace.job").fetchall()
    with database.connect() as listener:
        channel = listener.execute("select tailrace.signal_channel_v1()").fetchall()[0][0]
        listener.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(channel)))
        assert call(conn, "cancel(%(id)s)", id=job) == "requested"
        assert call(conn, "cancel(%(id)s)", id=job) == "requested"
        assert next(note.payload for note in listener.notifies(timeout=5, stop_after=1)) == "q?"
    assert conn.execute("select *, xmin from tailrace.job").fetchall() == before
    assert conn.execute("select job_id from tailrace.cancel_request").fetchall() == [(job,)]
    assert conn.execute("select cancel_requested, state from tailrace.jobs").fetchone() == (True, "running")


@pytest.mark.parametrize(
    "expression", ["cancel(%(id)s)", "run_now(%(id)s)", "reschedule(%(id)s, now())", "update_job(%(id)s, '{\"priority\": 1}')"]
)
def test_an_unknown_job_is_not_found(conn: Connection, expression: str) -> None:
    with pytest.raises(NotFound, match="there is no live job 4711") as caught:
        call(conn, expression, id=4711)
    assert caught.value.field == "id"
    assert audits(conn) == []


def test_cancel_belongs_to_the_callers_transaction(conn: Connection) -> None:
    job = enqueue(conn)
    with conn.transaction(force_rollback=True):
        assert call(conn, "cancel(%(id)s)", id=job) == "cancelled"
    assert conn.execute("select id from tailrace.job").fetchall() == [(job,)]
    assert audits(conn) == []
    assert tallies(conn) == {}


def test_cancel_waits_for_a_claim_that_is_about_to_commit(conn: Connection, database: RigDatabase) -> None:
    """The job was waiting when we looked and runs when we may write: a request, never a removal."""
    job = enqueue(conn)
    with ThreadPoolExecutor(1) as pool, database.connect(autocommit=False) as claim, database.connect() as admin:
        claim.execute("update tailrace.job set token = 9, attempts = 1 where id = %s", [job])
        running = pool.submit(call, admin, "cancel(%(id)s)", id=job)
        eventually(lambda: conn.execute("select 1 from pg_stat_activity where wait_event_type = 'Lock'").fetchone())
        claim.commit()
        assert running.result(10) == "requested"
    assert conn.execute("select token from tailrace.job").fetchone() == (9,)


def test_cancel_by_key_has_the_scope_of_the_key(conn: Connection) -> None:
    """FQ-08: tenant, queue, task and key, all four."""
    mine, other = enqueue(conn, key="k", tenant="a"), enqueue(conn, key="k", tenant="b")
    with pytest.raises(NotFound) as caught:
        call(conn, "cancel_by_key('', 'q', 't', 'k')")
    assert caught.value.field == "key"
    assert call(conn, "cancel_by_key('a', 'q', 't', 'k')") == "cancelled"
    assert conn.execute("select id from tailrace.job").fetchall() == [(other,)]
    start(conn, other)
    assert call(conn, "cancel_by_key('b', 'q', 't', 'k')") == "requested"
    assert mine != other


# ---- time and settings -----------------------------------------------------------------------------------------------
def test_run_now_makes_a_job_due_and_wakes_idle_workers(conn: Connection, database: RigDatabase) -> None:
    job = enqueue(conn, delay=3600)
    conn.execute("insert into tailrace.waiter values ('q', 'w', now() + interval '1 minute')")
    with database.connect() as listener:
        channel = listener.execute("select tailrace.signal_channel_v1()").fetchall()[0][0]
        listener.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(channel)))
        call(conn, "run_now(%(id)s)", id=job)
        assert [note.payload for note in listener.notifies(timeout=5, stop_after=1)] == ["q"]
    assert conn.execute("select run_at <= clock_timestamp() from tailrace.job").fetchone() == (True,)
    due = conn.execute("select run_at from tailrace.job").fetchone()
    call(conn, "run_now(%(id)s)", id=job)
    assert conn.execute("select run_at from tailrace.job").fetchone() == due
    assert [verb for verb, *_ in audits(conn)] == ["run_now", "run_now"]


def test_reschedule_moves_a_job_but_not_into_the_past(conn: Connection) -> None:
    job = enqueue(conn)
    call(conn, "reschedule(%(id)s, now() + interval '1 day')", id=job)
    assert conn.execute("select state from tailrace.jobs").fetchone() == ("scheduled",)
    call(conn, "reschedule(%(id)s, now() - interval '1 day')", id=job)
    assert conn.execute(
        "select run_at between now() - interval '1 minute' and clock_timestamp() from tailrace.job"
    ).fetchone() == (True,)


@pytest.mark.parametrize("when", ["'infinity'", "'-infinity'", "'10000-01-01'", "null"])
def test_impossible_times_are_refused(conn: Connection, when: str) -> None:
    """f1."""
    job = enqueue(conn)
    with pytest.raises(InvalidOption) as caught:
        call(conn, f"reschedule(%(id)s, {when})", id=job)
    assert caught.value.field == "run_at"


def test_update_changes_what_is_named_and_nothing_else(conn: Connection) -> None:
    job = enqueue(conn, priority=3, timeout=30, meta={"a": 1}, max_attempts=4)
    row = "select priority, max_attempts, timeout, meta from tailrace.jobs"
    call(conn, "update_job(%(id)s, %(changes)s)", id=job, changes=Jsonb({"priority": -5}))
    assert conn.execute(row).fetchone() == (-5, 4, 30.0, {"a": 1})
    changes = {"max_attempts": 9, "timeout": "1 minute", "meta": {"b": 2}}
    call(conn, "update_job(%(id)s, %(changes)s)", id=job, changes=Jsonb(changes))
    assert conn.execute(row).fetchone() == (-5, 9, 60.0, {"b": 2})
    call(conn, "update_job(%(id)s, %(changes)s)", id=job, changes=Jsonb({"timeout": None, "meta": None}))
    assert conn.execute(row).fetchone() == (-5, 9, None, None)
    assert audits(conn)[1][:3] == ("update", {"id": str(job), "changes": changes}, 1)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"priority": 1001}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": None}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 99999999999}, "max_attempts"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": 1e12}, "timeout"),
        ({"meta": [1]}, "meta"),
        ({"meta": {"a": "x" * 9000}}, "meta"),
        ({"payload": {}}, "payload"),
        ({"priority": 1, "queue": "other"}, "queue"),
        ({}, "changes"),
        ([], "changes"),
    ],
    ids=repr,
)
def test_wrong_changes_are_refused_by_field(conn: Connection, changes: Any, field: str) -> None:
    """BF-24, BF-39: out of range is refused, never wrapped; unknown names are refused, never ignored."""
    job = enqueue(conn)
    before = conn.execute("select *, xmin from tailrace.job").fetchall()
    with pytest.raises(InvalidOption) as caught:
        call(conn, "update_job(%(id)s, %(changes)s)", id=job, changes=Jsonb(changes))
    assert caught.value.field == field
    assert conn.execute("select *, xmin from tailrace.job").fetchall() == before


@pytest.mark.parametrize(
    "expression", ["run_now(%(id)s)", "reschedule(%(id)s, now())", "update_job(%(id)s, '{\"priority\": 1}')"]
)
def test_a_running_job_is_not_changed(conn: Connection, expression: str) -> None:
    job = enqueue(conn)
    start(conn, job)
    with pytest.raises(Conflict, match="is running"):
        call(conn, expression, id=job)


def test_no_admin_transaction_holds_a_lock_that_a_worker_waits_for(conn: Connection, database: RigDatabase) -> None:
    """An open transaction that cancelled or changed jobs does not stop the finish of a running one."""
    running, waiting = enqueue(conn), enqueue(conn)
    start(conn, running)
    with database.connect(autocommit=False) as app:
        assert call(app, "cancel(%(id)s)", id=running) == "requested"
        with pytest.raises(TailraceError), app.transaction():
            call(app, "update_job(%(id)s, '{\"priority\": 1}')", id=running)
        call(app, "run_now(%(id)s)", id=waiting)
        conn.execute("set lock_timeout = '500ms'")
        done = conn.execute("delete from tailrace.job where id = %s and token = 7", [running])
        assert done.rowcount == 1
