"""Plans that the engine's functions made on emptied tables, run on full ones: ten rows cost ten rows, not the table."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from tailrace.db import Database
from tailrace_worker.work import PINNED
from tests.engine.rows import Rows, error_of
from tests.rig.servers import Connection, RigDatabase
from tests.worker.plans import undone

Call = tuple[LiteralString, list[Any]]
Operation = Callable[[Rows], Call]
N, FEW = 30_000, 300
MOST_ROWS, MOST_PAGES = 2000, 2000  # the most is 1,300, on PostgreSQL 15, which needs twice as many pages as 18
FILL = """
insert into tailrace.job (queue, task, payload, run_at) select q, t, '{}', timestamptz '2026-01-01' + n * interval '1 ms'
  from generate_series(1, %(n)s) n, unnest('{q,other}'::text[]) q, unnest('{t,unknown}'::text[]) t;
insert into tailrace.job (queue, task, payload, key) select q, 't', '{}', 'f' || n
  from generate_series(1, %(n)s) n, unnest('{q,other}'::text[]) q;
insert into tailrace.job (queue, task, payload, key, key_slot) select 'q', 't', '{}', 'f' || n, 1
  from generate_series(1, %(n)s) n;
insert into tailrace.job (queue, task, payload, serial_group) select q, 't', '{}', 'g' || n
  from generate_series(1, %(n)s) n, unnest('{q,other}'::text[]) q;
insert into tailrace.job (queue, task, payload, token) select 'q', 't', '{}', n / 20 from generate_series(1, %(n)s) n;
insert into tailrace.lease (token, worker, queue, ids) select token, 'w' || token %% 100, 'q', array_agg(id)
  from tailrace.job where token is not null group by token;
insert into tailrace.job_group (queue, tenant, name, token) select queue, '', serial_group, id %% 1000
  from tailrace.job where serial_group is not null;
insert into tailrace.cancel_request (job_id, requested_by) select id, 'x' from tailrace.job where token is not null;
insert into tailrace.limit_slot (queue, name, n, job, token) select q, '', n, n, n
  from generate_series(1, %(n)s / 8) n, unnest('{q,other}'::text[]) q;
insert into tailrace.finished (id, queue, task, tenant, outcome, attempts, created_at, finished_at)
  select n, 'other', 't', '', 'succeeded', 1, now(), now() from generate_series(1, %(n)s) n;
insert into tailrace.dead_letter (job_id, state, queue, task, payload, priority, run_at, max_attempts, reason, error_type,
    fingerprint, total_attempts, first_failed_at, failed_at, created_at, key)
  select 100000000 * s.i + 10000000 * q.i + n, s.state, q.name, 't', '{}', 0, now(), 5, 'max_attempts', 'unknown', 'f', 5,
    now(), clock_timestamp(), now(), 'd' || n   -- distinct times: else an index is skipped through
  from generate_series(1, %(n)s) n, unnest('{q,other}'::text[]) with ordinality q(name, i),
    unnest('{dead,requeued,resolved}'::text[]) with ordinality s(state, i)
"""
TABLES = sorted(set(re.findall(r"insert into tailrace\.(\w+)", FILL)))
READ = "select relname, seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relname <> 'queue'"
LETTER = """
insert into tailrace.dead_letter (job_id, state, queue, task, payload, priority, run_at, max_attempts, reason, error_type,
    fingerprint, total_attempts, first_failed_at, failed_at, created_at, key)
  values (%s, %s, %s, 't', '{}', 0, now(), 5, 'max_attempts', %s, 'f', 5, '2025-01-01', '2025-01-01', now(), %s)"""
TURN: LiteralString = """
select id from tailrace.turn_groups_v1('q', 'w', %s, '{t}', %s, '{}', %s::text[], %s::text[], %s::bigint[], '{}',
  5, 3, 20, 'mine', '', %s)"""
_numbers = itertools.count(2_000_000_000_000)


def letter(
    rows: Rows, state: str = "dead", key: str | None = None, *, ident: int = 0, queue: str = "q", kind: str = "unknown"
) -> int:
    """Write a dead letter and return its number."""
    ident = ident or next(_numbers)
    rows.conn.execute(LETTER, [ident, state, queue, kind, key])
    return ident


def running(rows: Rows, *, keyed: bool = False, requeued: bool = False, grouped: bool = False) -> tuple[int, list[int]]:
    """Ten jobs under one lease: with keys and successors, out of dead letters, or each in a group that the lease holds."""
    rows.worker()
    ids = []
    for _ in range(10):
        name = f"mine{next(_numbers)}"
        more = {"key": name} if keyed else {"serial_group": name} if grouped else {}
        ids.append(rows.job(attempts=1, requeues=int(requeued), **more))
        if keyed:
            rows.job(key=name, key_slot=1)
        if requeued:
            letter(rows, "requeued", ident=ids[-1])
    token = rows.lease(ids)
    if grouped:
        rows.conn.execute(
            "insert into tailrace.job_group (queue, tenant, name, token)"
            " select queue, '', serial_group, token from tailrace.job where id = any (%s)",
            [ids],
        )
    return token, ids


def settle(kind: str, **how: bool) -> Operation:
    """Ten outcomes of one kind."""

    def prepared(rows: Rows) -> Call:
        token, ids = running(rows, **how)
        outcomes = [{"id": i, "token": token, "kind": kind, "delay": 0, "error": error_of("Boom")} for i in ids]
        return "select tailrace.settle_v1('w', %s::jsonb)", [json.dumps(outcomes)]

    return prepared


def settle_over_older(rows: Rows) -> Call:
    """Jobs that die where older dead letters have their keys."""
    token, ids = running(rows, keyed=True)
    for (key,) in rows.conn.execute("select key from tailrace.job where id = any (%s)", [ids]).fetchall():
        letter(rows, key=key)
    return "select tailrace.settle_v1('w', %s::jsonb)", [
        json.dumps([{"id": i, "token": token, "kind": "permanent"} for i in ids])
    ]


def finish_keyed(rows: Rows) -> Call:
    """As a worker ends them."""
    token, ids = running(rows, keyed=True)
    return "select tailrace.finish_keyed_v1('w', %s, %s, %s)", [ids, [token] * len(ids), [token]]


def complete(rows: Rows) -> Call:
    """One job that a handler ends itself."""
    token, ids = running(rows, keyed=True, requeued=True)
    return "select tailrace.complete_v1(%s, %s, 'w')", [ids[0], token]


def beat(rows: Rows) -> Call:
    """A heartbeat of a worker that runs a job to be cancelled."""
    token, ids = running(rows)
    rows.conn.execute("insert into tailrace.cancel_request (job_id, requested_by) values (%s, 'x')", [ids[0]])
    return "select tailrace.beat_v1('w', %s)", [[token]]


def leased(call: LiteralString) -> Operation:
    """What is done to a running job."""
    return lambda rows: (call, running(rows)[1][:1])


def walk(rows: Rows) -> Call:
    """The sweep over a few rows of each kind."""
    first = rows.job(attempts=5)
    for more in ({"attempts": 5, "key": "mine"}, {"expires_at": "2025-01-01"}, {"token": 77}, {"key": "left", "key_slot": 1}):
        rows.job(**more)
    return "select tailrace.walk_v1(%s, 100, 100, 'q')", [first - 1]


def enqueue(mode: str, held: str) -> Operation:
    """One enqueue by key, whose holder waits, runs or is not there."""

    def prepared(rows: Rows) -> Call:
        key = f"mine{next(_numbers)}"
        if held != "free":
            ident = rows.job(key=key, **({"expires_at": "2025-01-01"} if held == "expired" else {}))
            if held == "runs":
                rows.lease([ident])
        return "select tailrace.enqueue('q', 't', '{}', %s::jsonb)", [json.dumps({"key": key, "on_duplicate": mode})]

    return prepared


def single(call: LiteralString, **columns: Any) -> Operation:
    """What is done to one waiting job."""
    return lambda rows: (call, [rows.job(**columns)])


def change(verb: str, *, held: bool = False, state: str = "dead", n: int = 10, **options: Any) -> Operation:
    """A change of some dead letters, whose keys others may hold."""

    def prepared(rows: Rows) -> Call:
        keys = [f"mine{next(_numbers)}" for _ in range(n)]
        ids = [letter(rows, state, key) for key in keys]
        for key in keys if held else ():
            rows.job(key=key)
        text: LiteralString = "select tailrace.change_each_v1(%s, %s, tailrace.change_options_v1(%s, %s::jsonb), 'infinity')"
        return text, [verb, ids, verb, json.dumps(options)]

    return prepared


def of_queue(call: LiteralString, state: str = "dead") -> Operation:
    """What walks the five dead letters of a small queue."""

    def prepared(rows: Rows) -> Call:
        for _ in range(5):
            letter(rows, state, queue="small", kind="network")
        rows.conn.execute("insert into tailrace.queue (name) values ('small')")
        return call, []

    return prepared


def turn(rows: Rows, *, strict: bool = False) -> Call:
    """A second turn at groups: two members of the first have ended."""
    rows.worker()
    for name, _ in itertools.product("abcde", range(3)):
        rows.job(serial_group=f"mine{name}")
    token, tasks = next(_numbers), ["t"] if strict else []
    rows.conn.execute(TURN, [token, tasks, [], [], [], False])
    return TURN, [next(_numbers), tasks, ["minea", "mineb"], ["", ""], [token, token], False]


def limits(rows: Rows) -> Call:
    """New limits of a queue where ten jobs run."""
    rows.conn.execute("insert into tailrace.queue (name, settings) values ('small', '{\"limits\": {\"concurrency\": 10}}')")
    rows.worker()
    rows.running(10, queue="small")
    return "select tailrace.settle_limits_v1('small')", []


NOTE: dict[str, Any] = {"note": {"note": "x"}}
OPERATIONS: dict[str, Operation] = {
    **{f"settle {kind}": settle(kind) for kind in ("success", "error", "permanent", "snooze", "interrupted", "handback")},
    **{f"settle {kind} keyed": settle(kind, keyed=True) for kind in ("success", "permanent", "cancelled")},
    **{f"settle {kind} requeued": settle(kind, requeued=True) for kind in ("success", "permanent", "cancelled", "error")},
    **{f"settle {kind} grouped": settle(kind, grouped=True) for kind in ("success", "permanent", "error")},
    "settle over older": settle_over_older,
    "finish keyed": finish_keyed,
    "complete": complete,
    "beat": beat,
    "died": leased("select tailrace.worker_died_v1('w', %s::text)"),
    "cancel of a running one": leased("select tailrace.cancel(%s)"),
    **{f"enqueue {m} {h}": enqueue(m, h) for m in ("skip", "replace", "after") for h in ("free", "waits", "runs", "expired")},
    **{f"{verb} one": change(verb, n=1, **NOTE.get(verb, {})) for verb in ("requeue", "note", "delete")},
    **{verb: change(verb, **NOTE.get(verb, {})) for verb in ("requeue", "resolve", "note", "delete")},
    "requeue in conflict": change("requeue", held=True),
    "requeue over holders": change("requeue", held=True, force=True, n=3),
    "walk": walk,
    "turn at groups": turn,
    "turn at strict groups": lambda rows: turn(rows, strict=True),
    "settle limits": limits,
    "tidy limits": lambda rows: ("select tailrace.tidy_limits_v1(10)", []),
    "cancel": single("select tailrace.cancel(%s)", key="mine"),
    "result": single("select tailrace.job_result(%s)"),
    "retain": of_queue("select tailrace.retain_v1('small', 10)"),
    "audit requeued": of_queue("select tailrace.audit_requeued_v1(10, 'small')", "requeued"),
    "find by queue": of_queue('select tailrace.find_dead_letters_v1(\'{"queue": "small"}\', true, 10)'),
    "find by error type": of_queue('select tailrace.find_dead_letters_v1(\'{"error_type": "network"}\', true, 10)'),
    "statistics of dead letters": of_queue("select tailrace.dead_letter_stats('small')"),
}


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_ten_rows_do_not_cost_the_table(database: RigDatabase, conn: Connection) -> None:
    """FQ-17: plans from the time of emptied tables, which stay until the next analyze, are good ones."""
    offenders = {}
    with Database(url=SecretStr(database.dsn)).connect(options={**PINNED, "statement_timeout": "5s"}) as session:
        emptied(conn)
        for operation in OPERATIONS.values():
            with undone(session):
                run(session, operation)
        for statement in FILL.split(";"):
            conn.execute(statement, {"n": N})
        for name, operation in OPERATIONS.items():
            with undone(session):
                read = run(session, operation)
            much = {what: n for what, n in read.items() if n > (MOST_PAGES if what == "pages" else MOST_ROWS)}
            if much:
                offenders[name] = much
    assert not offenders


def emptied(admin: Connection) -> None:
    """Tables that had rows, and whose statistics say that they have none; nothing changes that later."""
    for table in TABLES:
        if table != "finished":
            admin.execute(sql.SQL("alter table tailrace.{} set (autovacuum_enabled = off)").format(sql.Identifier(table)))
    for statement in FILL.split(";"):
        admin.execute(statement, {"n": FEW})
    for table in TABLES:
        admin.execute(sql.SQL("delete from tailrace.{}").format(sql.Identifier(table)))
    admin.execute("vacuum (analyze, truncate off)")


def run(session: Connection, operation: Operation) -> dict[str, int]:
    """Prepare an operation, run it, and tell the rows that it read by table, and the pages."""
    text, values = operation(Rows(session))
    before: dict[str, int] = dict(session.execute(READ).fetchall())
    explain = sql.SQL("explain (analyze, buffers, timing off, format json) ") + sql.SQL(text)
    try:
        row = psycopg.ClientCursor(session).execute(explain, values).fetchone()
    except psycopg.errors.QueryCanceled:
        return {"pages": 2**62}
    assert row is not None
    plan = row[0][0]["Plan"]
    return {
        "pages": plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
        **{t: n - before.get(t, 0) for t, n in session.execute(READ).fetchall()},
    }
