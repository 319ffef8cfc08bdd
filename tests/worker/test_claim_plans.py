"""Plans of the worker's statements beside a large backlog: partial indexes, tight ranges, whatever the statistics say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from tailrace.db import Connection, Database
from tailrace_worker.work import PINNED
from tests.rig.servers import RigDatabase
from tests.worker.plans import Prepared

N = 100_000
TOKEN = 2**62
FILL = """
insert into tailrace.job (queue, task, payload, run_at)
  select 'work', 'unknown', '{}', timestamptz '2026-01-01' + n * interval '1 ms' from generate_series(1, %(n)s) n;
insert into tailrace.job (queue, task, payload, run_at)
  select 'work', 'noop', '{}', timestamptz '2026-02-01' + n * interval '1 ms' from generate_series(1, %(n)s) n;
insert into tailrace.job (queue, task, payload, run_at)
  select 'work', 'noop', '{}', clock_timestamp() + interval '1 day' + n * interval '1 ms' from generate_series(1, %(n)s) n;
insert into tailrace.job (queue, task, payload, run_at)
  select 'other', 'noop', '{}', timestamptz '2026-02-01' + n * interval '1 ms' from generate_series(1, %(n)s) n;
insert into tailrace.job (queue, task, payload, run_at, lost) select 'work', 'noop', '{}', now(), 1 from generate_series(1, 1000);
insert into tailrace.dead_letter (job_id, queue, task, payload, priority, run_at, max_attempts, reason, error_type, fingerprint,
    total_attempts, first_failed_at, failed_at, created_at)
  select 10000000 + n, 'work', 'noop', '{}', 0, now(), 5, 'max_attempts', 'unknown', '', 5, now(), now(), now()
  from generate_series(1, %(n)s) n;
insert into tailrace.lease (token, worker, queue, ids) select n, 'w' || n, 'work', array[n] from generate_series(1, 2000) n;
insert into tailrace.queue_floor (queue, priority, run_at, id) select 'q' || n, 0, now(), 1 from generate_series(1, 500) n
"""


@pytest.fixture
def hot(database: RigDatabase) -> Iterator[tuple[Connection, Database]]:
    """A session as the work connection has it."""
    one = Database(url=SecretStr(database.dsn))
    with one.connect(options=PINNED) as conn:
        # before anything is prepared, and by hand only: a change of the table or of its statistics makes new plans
        conn.execute("alter table tailrace.job set (autovacuum_enabled = off)")
        yield conn, one


def parameters() -> dict[str, Any]:
    """Of all statements; the floor lies before the known jobs, as after the unknown ones were passed."""
    start = 1_769_904_000.0  # 2026-02-01
    return {
        "queue": "work",
        "worker": "w",
        "tasks": ["noop", "mark"],
        "context_tasks": ["mark"],
        "priorities": [5, 0],
        "run_ats": [-math.inf, start],
        "ids": [2**40, 0],
        "low_run_ats": [-math.inf, start - 5],
        "low_ids": [2**40, 0],
        "lows": [-1001, 0, 5],
        "highs": [0, 5, 1001],
        "n": 10,
        "token": TOKEN,
        "tokens": [TOKEN],
        "saved": "{}",
        "id": 5,
        "limits": 0,
    }


READY, KEY, SUSPECT = {"job_ready"}, {"job_pkey"}, {"job_suspect"}
STATEMENTS: dict[str, tuple[set[str], int]] = {
    "claim.claim_batch": (READY | {"Tid Scan"}, 400),
    "claim.claim_ids": (KEY, 400),
    "claim.claim_suspect": (SUSPECT | KEY, 200),
    "floors.look": (READY, 60),
    "floors.gaps": (READY | SUSPECT, 80),
    "floors.rescan": (READY, 60),
    "floors.unstored_priorities": (READY, 60),
    "floors.due": (READY | SUSPECT | {"job_by_group"}, 20_000),  # asked by --until-empty only, when nothing is left to do
    "finish.finish_batch": (KEY | {"Tid Scan"}, 400),
    "finish.finish_mixed": (KEY | {"Tid Scan"}, 400),
    "finish.finish_kept": (KEY | {"Tid Scan"}, 400),
}
"""The indexes each may read job by, and the most pages that it may touch for ten rows."""


@pytest.mark.timeout(120)
@pytest.mark.slow
@pytest.mark.parametrize("known_empty", [False, True], ids=["never-vacuumed", "vacuumed-empty"])
def test_plans_use_the_partial_indexes_whatever_the_statistics(
    hot: tuple[Connection, Database], conn: Connection, known_empty: bool
) -> None:
    """CJ-12, FQ-17: planned on empty tables, run on full ones without statistics, and again with fresh ones.

    PostgreSQL takes a table that was never vacuumed for a small one, and a vacuumed empty one for empty: then all ways cost
    the same, and it takes the primary key if it can.
    """
    session, database = hot
    params = parameters()
    if known_empty:
        conn.execute("vacuum analyze")
    prepared = {
        name: Prepared(session, database, name, {**params, "ids": [2**40]} if _by_id(name) else params) for name in STATEMENTS
    }
    fill(conn, N)
    ids = [i for (i,) in conn.execute("select id from tailrace.job where task = 'noop' and queue = 'work' and lost = 0 limit 10")]
    for statistics in ("stale", "fresh"):
        if statistics == "fresh":
            conn.execute("analyze")
        for name, (allowed, pages) in STATEMENTS.items():
            changed: dict[str, Any] = {}
            if _by_id(name):
                changed["ids"] = ids
            if name in ("finish.finish_mixed", "finish.finish_kept"):
                changed["tokens"] = [TOKEN] * len(ids)
            plan = prepared[name].explain(**changed)
            read = plan.scans("job")
            assert read, name
            assert read <= allowed, (name, statistics, read)
            assert plan.buffers <= pages, (name, statistics, plan.buffers)


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_a_scan_from_the_start_passes_unknown_rows_in_order(hot: tuple[Connection, Database], conn: Connection) -> None:
    """CJ-12: without a floor too the claim reads one range of the index and sorts nothing."""
    session, database = hot
    params = {**parameters(), "run_ats": [-math.inf, -math.inf]}
    prepared = Prepared(session, database, "claim.claim_batch", params)
    fill(conn, 20_000)
    plan = prepared.explain()
    assert plan.scans("job") == {"job_ready", "Tid Scan"}
    assert not [node for node in plan.nodes if node["Node Type"] in ("Sort", "Incremental Sort")]
    assert 20_000 <= plan.removed() <= 20_100
    for n in (1, 1000):
        assert prepared.explain(n=n).scans("job") == {"job_ready", "Tid Scan"}


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_a_limited_claim_touches_few_pages(hot: tuple[Connection, Database], conn: Connection) -> None:
    """CJ-12: planned on empty tables, run on full ones: slots by number, jobs from the floor on, and all of it HOT."""
    session, database = hot
    conn.execute(
        """insert into tailrace.queue (name, settings) values ('work', '{"limits": {"concurrency": 1000}}');
           update tailrace.queue set limits_sure = true"""
    )
    limits = conn.execute("select limits from tailrace.queue").fetchone()
    assert limits is not None
    start = parameters()["run_ats"][1]
    params = {
        **parameters(), "limits": limits[0], "classes": [1, 1], "names": [None], "mosts": [None], "shares": [10],
        "queue_most": 1000, "floor_classes": [1, 1], "floor_ids": [2**40, 0], "run_ats": [-math.inf, start], "ids": [],
        "suspect": False,
    }  # fmt: skip
    prepared = Prepared(session, database, "claim.claim_limited", params)
    fill(conn, N)
    for token in range(TOKEN + 1, TOKEN + 41):
        assert len(session.execute(database.blocks["claim.claim_limited"], {**params, "token": token}).fetchall()) == 11
    for statistics in ("stale", "fresh"):
        if statistics == "fresh":
            conn.execute("analyze")
        assert prepared.explain().buffers <= 2500, statistics  # four hundred slots are taken, each job of which is looked up
    session.execute("select pg_stat_force_next_flush()")
    counts = "select n_tup_hot_upd, n_tup_upd from pg_stat_user_tables where relname = 'limit_slot'"
    row = conn.execute(counts).fetchone()
    assert row is not None
    assert row[0] >= 0.9 * row[1] > 0


def test_claims_and_finishes_leave_all_indexes_alone(hot: tuple[Connection, Database]) -> None:
    """CJ-12: a claim changes no indexed column, so it stays HOT."""
    conn, database = hot
    conn.execute("insert into tailrace.job (queue, task, payload) select 'work', 'noop', '{}' from generate_series(1, 5000)")
    params = {**parameters(), "run_ats": [-math.inf, -math.inf], "n": 5000}
    taken = conn.execute(database.blocks["claim.claim_batch"], params).fetchall()
    assert len(taken) == 5000
    conn.execute("select pg_stat_force_next_flush()")
    row = conn.execute("select n_tup_hot_upd, n_tup_upd from pg_stat_user_tables where relname = 'job'").fetchone()
    assert row is not None
    assert row[0] >= 0.95 * row[1] > 0


def fill(conn: Connection, n: int) -> None:
    """By another session: psycopg forgets its prepared statements at an ALTER."""
    for statement in FILL.split(";"):
        conn.execute(statement % {"n": n} if "%(n)s" in statement else statement)


def _by_id(name: str) -> bool:
    return name in ("claim.claim_ids", "finish.finish_batch", "finish.finish_mixed", "finish.finish_kept")
