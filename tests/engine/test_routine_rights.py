"""The role of workers is enough for everything that a worker and its routines call."""

from __future__ import annotations

import pytest

from tests.engine.rows import Rows


@pytest.fixture(autouse=True)
def _as_worker(rows: Rows) -> None:
    """Each test begins with rows of every kind and goes on as the role."""
    rows.steady()
    rows.worker(until=-1)
    rows.running(2)
    rows.running(attempts=5)
    again = rows.job(key="k")
    rows.fail(again, rows.claim(again), "permanent")
    rows.requeue(again)
    rows.conn.execute("insert into tailrace.cancel_request (job_id, requested_by) values (1000000, 'me')")
    rows.conn.execute("set role tailrace_worker")


@pytest.mark.parametrize(
    "call",
    [
        "reap_v1(15)",
        "walk_v1()",
        "audit_requeued_v1()",
        "statistics_v1()",
        "housekeeping_v1()",
        "retain_v1()",
        "auto_requeue_v1()",
        "history_v1()",
        "beat_v1('w', '{}', '{\"queues\": [\"q\"]}')",
        "beat_v1('new', '{}', '{\"queues\": [\"q\"]}')",
        "worker_died_v1('w', 'killed')",
        "end_frozen_sessions_v1('1 s')",
    ],
)
def test_a_worker_may_run_what_a_worker_runs(rows: Rows, call: str) -> None:
    """BF-14: rights are part of the schema; a routine does not fail at the first row that it finds."""
    report = rows.value(f"select tailrace.{call}")
    assert report != {"locked": True}


def test_a_worker_may_settle_every_kind_of_outcome(rows: Rows) -> None:
    found = rows.conn.execute("select id, token from tailrace.job where token is not null order by id").fetchall()
    kinds = ["error", "snooze", "permanent"]
    outcomes = [{"id": i, "token": t, "kind": kind} for (i, t), kind in zip(found, kinds, strict=True)]
    assert sorted(rows.settle(*outcomes).values()) == ["dead", "retried", "snoozed"]
    again = rows.value("select id from tailrace.job where requeues = 1")
    rows.conn.execute("reset role")
    token = rows.claim(again)
    rows.conn.execute("set role tailrace_worker")
    assert rows.settle({"id": again, "token": token, "kind": "success"}) == {again: "succeeded"}
