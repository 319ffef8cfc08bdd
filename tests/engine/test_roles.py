"""Each role can do its work and no more, and nobody's objects of our names change what our functions do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.rig.servers import Connection

DENIED = psycopg.errors.InsufficientPrivilege
ROLES = ("tailrace_enqueue", "tailrace_worker", "tailrace_admin", "tailrace_reader")
ENQUEUE = [
    "select tailrace.enqueue('q', 't', '{}')",
    'select tailrace.enqueue(\'q\', \'t\', \'{}\', \'{"key": "k", "on_duplicate": "replace", "priority": 3}\')',
    'select tailrace.enqueue_many(\'[{"queue": "q", "task": "t", "payload": {}}]\')',
]
CHANGE = [
    "select tailrace.cancel(1)",
    "select tailrace.cancel_by_key('', 'q', 't', 'k')",
    "select tailrace.run_now(1)",
    "select tailrace.reschedule(1, now())",
    "select tailrace.update_job(1, '{\"priority\": 1}')",
    "select tailrace.hold_queue('q')",
    "select tailrace.resume_queue('q')",
    "select tailrace.apply_queue('q', '{}', 'cli')",
    "select tailrace.purge_queue('q')",
    "select tailrace.requeue_dead_letter(1)",
    "select tailrace.run_schedule('q', 's')",
    "select tailrace.suspend_schedule('q', 's')",
    "select tailrace.resume_schedule('q', 's')",
    "select tailrace.delete_dead_letter(1)",
    "select tailrace.resolve_dead_letter(1)",
    "select tailrace.note_dead_letter(1, 'x')",
    "select tailrace.change_dead_letters_v1('delete', '{1}')",
    "select tailrace.requeue_dead_letters('q')",
    "select tailrace.delete_dead_letters('q')",
    "select tailrace.resolve_dead_letters('q')",
    "select tailrace.note_dead_letters('q', 'x')",
    "select tailrace.add_dead_letter('q', 't', '{}')",
    "select tailrace.stop_operation(1)",
]
LOOK = ["select tailrace.queue_stats('q')", "select tailrace.dead_letter_stats()"]
FIND = [
    'select * from tailrace.find_dead_letters_v1(\'{"text": "x", "failed_after": "2026-01-01T00:00:00Z"}\', false, 5)',
    "select tailrace.count_dead_letters_v1('{}')",
    'select tailrace.count_dead_letters_v1(\'{"reason": "timeout"}\')',
]
BULK = [
    "select tailrace.begin_operation_v1('requeue', '{}', '{}')",
    "select tailrace.step_operation_v1(1, 5)",
]
VIEWS = ("jobs", "dead_letters", "leases", "workers", "queues", "schedules")
TABLES = "select relname from pg_class where relnamespace = 'tailrace'::regnamespace and relkind in ('r', 'p')"


@contextmanager
def acting_as(conn: Connection, role: str) -> Iterator[None]:
    conn.execute(psycopg.sql.SQL("set role {}").format(psycopg.sql.Identifier(role)))
    try:
        yield
    finally:
        conn.execute("reset role")


def allowed(conn: Connection, statement: str) -> bool:
    """Whether the rights suffice; any other refusal counts as allowed. Nothing is kept."""
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(statement.encode())
    except DENIED:
        return False
    except psycopg.Error:
        return True
    return True


def names(conn: Connection, statement: str) -> list[str]:
    return [name for (name,) in conn.execute(statement.encode()).fetchall()]


# ---- one by one ------------------------------------------------------------------------------------------------------
def test_a_producer_enqueues_and_nothing_else(conn: Connection) -> None:
    tables = names(conn, TABLES)
    with acting_as(conn, "tailrace_enqueue"):
        assert all(allowed(conn, statement) for statement in ENQUEUE)
        assert not [statement for statement in CHANGE + LOOK if allowed(conn, statement)]
        for table in [*tables, *VIEWS]:
            assert not allowed(conn, f"select from tailrace.{table}"), table
            assert table in VIEWS or not allowed(conn, f"delete from tailrace.{table}"), table
        assert not allowed(conn, "insert into tailrace.job (queue, task, payload) values ('q', 't', '{}')")
        assert not allowed(conn, "create table tailrace.mine (n int)")
        assert not allowed(conn, "select tailrace.settle_v1('w', '[]')")
        for statement in ENQUEUE:
            conn.execute(statement.encode())
    assert conn.execute("select count(*) from tailrace.job").fetchone() == (3,)


def test_a_reader_reads_and_changes_nothing(conn: Connection) -> None:
    tables = names(conn, TABLES)
    with acting_as(conn, "tailrace_reader"):
        for table in [*tables, *VIEWS]:
            assert allowed(conn, f"select from tailrace.{table}"), table
            assert table in VIEWS or not allowed(conn, f"delete from tailrace.{table}"), table
        for view in VIEWS:
            conn.execute(f"select * from tailrace.{view}".encode())
        assert all(allowed(conn, statement) for statement in LOOK + FIND)
        assert not [statement for statement in BULK if allowed(conn, statement)]
        assert not [statement for statement in ENQUEUE + CHANGE if allowed(conn, statement)]
        assert not allowed(conn, "update tailrace.job set priority = 1")
        assert not allowed(conn, "select tailrace.reap_v1(15)")


def test_an_admin_may_do_every_operation(conn: Connection) -> None:
    with acting_as(conn, "tailrace_admin"):
        assert not [statement for statement in ENQUEUE + CHANGE + LOOK + FIND + BULK if not allowed(conn, statement)]
        assert all(allowed(conn, f"select from tailrace.{view}") for view in VIEWS)
        assert allowed(conn, "select tailrace.release_leases_v1('{1}', true)")
        assert not allowed(conn, "delete from tailrace.audit"), "the audit is written, never erased"
        assert not allowed(conn, "delete from tailrace.migration")


def test_a_worker_can_work(conn: Connection) -> None:
    """What claim, finish, heartbeat and maintenance do, as the worker's role and with its own rights."""
    conn.execute("select tailrace.enqueue('q', 't', '{}') from generate_series(1, 6)")
    with acting_as(conn, "tailrace_worker"):
        for statement in WORK:
            conn.execute(statement.encode())
    left = conn.execute("select state, count(*) from tailrace.dead_letter group by 1").fetchall()
    assert left == [("dead", 1)]
    assert conn.execute("select count(*) from tailrace.job").fetchone() == (4,)


WORK = [
    "insert into tailrace.queue (name) values ('q') on conflict (name) do nothing",
    """select tailrace.beat_v1('w', '{}',
       '{"lease_seconds": 60, "version": "0.1.0", "queues": ["q"], "tasks": ["t"], "slots": 4}')""",
    """insert into tailrace.waiter (queue, worker, until) values ('q', 'w', now())
       on conflict (queue, worker) do update set until = now()""",
    """insert into tailrace.queue_floor (queue, priority, run_at, id) values ('q', 0, now(), 1)
       on conflict (queue, priority) do update set id = 2""",
    """with c as (select id from tailrace.job order by id limit 3 for no key update skip locked),
       l as (insert into tailrace.lease (token, worker, queue, ids) select 7, 'w', 'q', array_agg(id) from c)
       update tailrace.job set token = 7, attempts = attempts + 1 where id in (select id from c)""",
    "update tailrace.job set saved = '{}' where id = 1 and token = 7",
    """with d as (delete from tailrace.job where id = 1 and token = 7 returning task)
       insert into tailrace.tally (queue, task, what, n) select 'q', task, 'succeeded', 1 from d""",
    """select tailrace.settle_v1('w', '[{"id": 2, "token": 7, "kind": "permanent", "error_type": "unknown", "fingerprint": "f"},
       {"id": 3, "token": 7, "kind": "error", "delay": 1}]')""",
    "delete from tailrace.lease where token = 7",
    "select tailrace.enqueue('q', 't', '{}')",
    "select tailrace.enqueue_many('[]')",
    "select tailrace.reap_v1(15)",
    "select tailrace.walk_v1()",
    "select tailrace.audit_requeued_v1()",
    "select tailrace.statistics_v1()",
    "select tailrace.housekeeping_v1()",
    "select tailrace.cron_due_v1()",
    "select tailrace.fire_schedules_v1('[]')",
    "select tailrace.retain_v1()",
    "select tailrace.auto_requeue_v1()",
    "select tailrace.history_v1()",
    "select tailrace.job_result(1)",
    "select tailrace.worker_died_v1('w', 'test')",
    "select version from tailrace.migration",
    "delete from tailrace.waiter where worker = 'w'",
    "delete from tailrace.worker where id = 'w'",
    "delete from tailrace.job where id = 4",
]


@pytest.mark.parametrize(
    "statement",
    [
        *CHANGE,
        "select from tailrace.audit",
        "insert into tailrace.audit (who, verb, n) values ('x', 'y', 1)",
        "update tailrace.queue set settings = '{}'",
        "update tailrace.queue set held_until = null",
        "delete from tailrace.queue",
        "delete from tailrace.dead_letter",
        "insert into tailrace.cancel_request (job_id, requested_by) values (1, 'x')",
        "update tailrace.migration set version = 1",
        "truncate tailrace.job",
        "create table tailrace.mine (n int)",
    ],
)
def test_a_worker_administers_nothing(conn: Connection, statement: str) -> None:
    with acting_as(conn, "tailrace_worker"):
        assert not allowed(conn, statement)


# ---- everybody -------------------------------------------------------------------------------------------------------
def test_the_public_may_do_nothing(conn: Connection) -> None:
    open_functions = names(
        conn,
        "select p.oid::regprocedure::text from pg_proc p where pronamespace = 'tailrace'::regnamespace"
        " and has_function_privilege('public', p.oid, 'execute')",
    )
    assert open_functions == []
    granted = names(
        conn,
        "select relname from pg_class c where relnamespace = 'tailrace'::regnamespace"
        " and exists (select from aclexplode(c.relacl) a where a.grantee = 0)",
    )
    assert granted == []
    assert conn.execute("select has_schema_privilege('public', 'tailrace', 'usage')").fetchone() == (False,)


def test_only_listed_functions_run_with_their_owners_rights(conn: Connection) -> None:
    found = set(names(conn, "select proname from pg_proc where pronamespace = 'tailrace'::regnamespace and prosecdef"))
    documented = {statement.split("tailrace.")[1].split("(")[0] for statement in ENQUEUE + CHANGE + LOOK}
    assert found == documented | {
        "enqueue_batch_v1",
        "complete_v1",
        "follow_v1",
        "stop_overlapped_v1",
        "retain_v1",
        "auto_requeue_v1",
        "history_v1",
        "settle_queue_v1",
        "orphan_queue_v1",
        "job_result",
        "keep_counts_of_dead_letters_v1",
    }


def test_nothing_is_missing_after_a_migration(conn: Connection) -> None:
    assert conn.execute("select * from tailrace.missing_roles_v1()").fetchall() == []
    assert set(names(conn, "select distinct role from tailrace.role_statements_v1()")) == set(ROLES)
    for (statement,) in conn.execute("select statement from tailrace.role_statements_v1()").fetchall():
        conn.execute(statement)


# ---- objects of our names --------------------------------------------------------------------------------------------
TRAPS = """
create schema trap; grant usage on schema trap to public;
create table trap.job (like tailrace.job including all); create table trap.queue (like tailrace.queue);
create table trap.audit (like tailrace.audit); create table trap.dead_letter (like tailrace.dead_letter);
create table trap.sprung (what text);
create function trap.spring(what text) returns void language plpgsql as 'begin insert into trap.sprung values (what); end';
create function trap.clock_timestamp() returns timestamptz language plpgsql as
  'begin perform trap.spring(''clock''); return ''2000-01-01''; end';
create function trap.now() returns timestamptz language plpgsql as
  'begin perform trap.spring(''now''); return ''2000-01-01''; end';
create function trap.jsonb_typeof(jsonb) returns text language plpgsql as
  'begin perform trap.spring(''typeof''); return ''object''; end';
create function trap.pg_notify(text, text) returns void language plpgsql as 'begin perform trap.spring(''notify''); end';
create function trap.octet_length(text) returns int language plpgsql as 'begin perform trap.spring(''length''); return 1; end';
create function trap.eq(text, text) returns boolean language plpgsql as 'begin perform trap.spring(''=''); return true; end';
create operator trap.= (leftarg = text, rightarg = text, function = trap.eq);
create function trap.refuse_v1(text, text, text, text) returns void language plpgsql as
  'begin perform trap.spring(''refuse''); end';
grant all on all tables in schema trap to public;
"""


@pytest.mark.parametrize("path", ["trap, pg_catalog", "trap, tailrace, pg_catalog", "pg_temp, trap, pg_catalog"])
def test_objects_of_our_names_change_nothing(conn: Connection, path: str) -> None:
    """A caller's search_path cannot put a table, function or operator of his own into ours."""
    conn.execute(TRAPS)
    conn.execute("select tailrace.enqueue('q', 't', '{}') from generate_series(1, 3)")
    conn.execute("create temporary table job (like tailrace.job); create temporary table queue (like tailrace.queue)")
    results: list[Any] = []
    conn.execute(f"set search_path = {path}".encode())
    with acting_as(conn, "tailrace_enqueue"):
        results += conn.execute("select outcome from tailrace.enqueue('q', 't', '{}', '{\"key\": \"k\"}')").fetchall()
        results += conn.execute("select outcome from tailrace.enqueue('q', 't', '{}', '{\"key\": \"k\"}')").fetchall()
    with acting_as(conn, "tailrace_admin"):
        for statement in ("tailrace.cancel(1)", "tailrace.run_now(2)", "tailrace.hold_queue('q')", "tailrace.queue_stats('q')"):
            conn.execute(f"select {statement}".encode())
        conn.execute("select tailrace.purge_queue('q')")
        conn.execute("select * from tailrace.jobs")
    conn.execute("set search_path = pg_catalog")
    assert results == [("created",), ("skipped",)]
    assert conn.execute("select what from trap.sprung").fetchall() == []
    for table in ("trap.job", "trap.queue", "trap.audit", "pg_temp.job", "pg_temp.queue"):
        assert conn.execute(f"select count(*) from {table}".encode()).fetchone() == (0,)
    assert conn.execute("select sum(n)::int from tailrace.tally where what = 'cancelled'").fetchone() == (4,)
