"""What an application's open transaction may not keep: locks on rows that a worker runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg.types.json import Jsonb

from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

REPLACE = Jsonb({"key": "k", "on_duplicate": "replace"})


def cancel(app: Rows, ident: int) -> str:
    return str(app.value("select tailrace.cancel(%s)", [ident]))


def cancel_by_key(app: Rows, ident: int) -> str:
    return str(app.value("select tailrace.cancel_by_key('', 'q', 't', 'k')"))


def purge(app: Rows, ident: int) -> str:
    return str(app.value("select tailrace.purge_queue('q', true)"))


def replace(app: Rows, ident: int) -> str:
    return str(app.value("select outcome from tailrace.enqueue('q', 't', '{\"n\": 2}', %s)", [REPLACE]))


@pytest.mark.parametrize(
    ("what", "answer"), [(cancel, "requested"), (cancel_by_key, "requested"), (purge, "0"), (replace, "in_progress")]
)
def test_a_change_that_met_a_claim_keeps_no_lock_on_the_running_job(
    database: RigDatabase, rows: Rows, other: Rows, what: Callable[[Rows, int], str], answer: str
) -> None:
    """Engine 8: the change waits for the claim's commit, finds the job running, and its transaction stays open; GW-01."""
    ident = rows.job(key="k")
    with database.connect(autocommit=False) as conn, ThreadPoolExecutor(1) as thread:
        worker = Rows(conn)
        token = worker.claim(ident)
        app = other.conn.info.backend_pid
        late = thread.submit(what, other, ident)
        eventually(
            lambda: rows.value("select cardinality(pg_blocking_pids(%s)) > 0", [app]), what="the change waits for the claim"
        )
        conn.commit()
        assert late.result(10) == answer
        assert rows.value("select count(*) from tailrace.job where id = %s and token = %s", [ident, token]) == 1
        rows.conn.execute("set lock_timeout = '1s'")
        rows.conn.execute("delete from tailrace.job where id = %s and token = %s", [ident, token])
    assert rows.row(ident) is None
