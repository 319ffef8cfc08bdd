"""`maintain --queue`: each routine for named queues only, and nobody takes such a run for one over all queues."""

from __future__ import annotations

from tailrace.db import Database
from tailrace.maintenance import routines, run_once
from tests.engine.aged_letters import DAY, letter, settings
from tests.engine.rows import Rows

RULE = {"afterSeconds": 60, "maxTimes": 1, "errorTypes": ["network"]}


def _fill(rows: Rows, queue: str) -> None:
    rows.running(2, queue=queue, worker="gone")
    rows.job(queue=queue, attempts=5)
    rows.job(queue=queue, token=9)
    letter(rows, queue=queue, age=100 * DAY, error_type="validation")
    letter(rows, queue=queue, age=3600)
    settings(rows, queue, deadLetters={"autoRequeue": RULE})
    rows.conn.execute("insert into tailrace.waiter (queue, worker, until) values (%s, 'w', '2026-01-01')", [queue])


def test_the_named_queues_are_looked_after_and_no_others(rows: Rows, place: Database) -> None:
    rows.steady()
    for scope in ("a", "b"):
        rows.conn.execute(
            "insert into tailrace.maintenance (routine, scope, last_tick, last_success, steady_since)"
            " select routine, %s, last_tick, last_success, steady_since from tailrace.maintenance where scope = ''",
            [scope],
        )
    rows.worker("gone", until=-1)
    for queue in ("a", "b", "c"):
        _fill(rows, queue)
    before = rows.conn.execute("select * from tailrace.job where queue = 'c' order by id").fetchall()
    seen = rows.value("select last_success from tailrace.maintenance where scope = '' and routine = 'reaper'")
    found = {r.routine: r for r in run_once(place, routines(), queues=["a", "b"])}
    assert {r.result for r in found.values()} == {"ok"}
    counts = {name: {k: n for k, n in r.counts.items() if n} for name, r in found.items()}
    assert counts["reaper"] == {"leases": 2, "lost": 4}
    assert (counts["sweep"]["dead"], counts["sweep"]["orphaned"]) == (2, 2)
    assert counts["retention"] == {"dead": 2}
    assert counts["auto_requeue"]["requeued"] == 2
    assert (counts["statistics"], counts["housekeeping"]) == ({"queues": 2}, {"waiters": 2})
    assert rows.conn.execute("select * from tailrace.job where queue = 'c' order by id").fetchall() == before
    assert rows.count("dead_letter", "queue = 'c'") == 2
    assert rows.value("select last_success from tailrace.maintenance where scope = '' and routine = 'reaper'") == seen
    assert rows.count("maintenance", "scope = ''") == 1, "nothing says that all queues were looked after"


def test_a_dry_run_of_named_queues_counts_theirs(rows: Rows, place: Database) -> None:
    rows.worker("gone", until=-1)
    for queue in ("a", "b"):
        _fill(rows, queue)
    found = {r.routine: dict(r.counts) for r in run_once(place, routines(), queues=["b"], dry_run=True)}
    assert found["reaper"] == {"leases": 1, "jobs": 2, "workers": 1}
    assert found["sweep"] == {"exhausted": 1, "expired": 0, "orphaned": 1, "followed": 0, "restored": 0}
    assert (found["retention"], found["auto_requeue"]) == (
        {"dead": 1, "resolved": 0, "dropped": 0},
        {"requeued": 1, "conflict": 0},
    )
    assert (found["statistics"], found["housekeeping"]) == ({"folded": 0}, {"waiters": 1, "workers": 0, "cancel_requests": 0})


def test_a_queue_that_is_not_there_is_no_fault(rows: Rows, place: Database) -> None:
    assert {r.result for r in run_once(place, routines(), queues=["süß 'n\" %"])} == {"ok"}
    assert rows.count("queue") == 0
