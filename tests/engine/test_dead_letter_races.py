"""Operators, a worker, cancels and sweeps at the same dead letters: nobody waits in a circle and nothing happens twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tailrace.db import Statement, run
from tailrace.errors import Conflict, NotFound
from tests.engine.letters import Letters
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually


@pytest.fixture
def letters(rows: Rows) -> Letters:
    return Letters(rows)


def waiting(rows: Rows) -> int:
    """How many sessions of this database wait for a lock."""
    return int(
        rows.value("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
    )


def test_a_requeue_against_a_dying_holder_of_its_key(letters: Letters, rows: Rows, other: Rows, database: RigDatabase) -> None:
    """The worker that settles the holder takes the dead letter without waiting, the requeue waits holding no dead letter."""
    old = letters.bury(key="K")
    holder = rows.job(key="K", max_attempts=1)
    token = rows.claim(holder)
    assert other.fail(holder, token, "permanent") == "dead"  # in a transaction that is still open
    with ThreadPoolExecutor(1) as pool, database.connect() as operator:
        asked = pool.submit(Letters(Rows(operator)).each, "requeue", old, holder)
        eventually(lambda: waiting(rows) or asked.done(), what="the requeue to meet the holder")
        other.conn.commit()
        outcomes = asked.result(10)
    assert letters.of(old, "state, resolution") == ("resolved", "superseded")
    assert outcomes[old][0] in ("busy", "conflict")
    assert rows.row(old) is None
    assert letters.of(holder, "state") in ("dead", "requeued")
    assert letters.states().get("requeued", 0) == rows.count("job")


def test_a_holder_that_dies_while_a_requeue_is_open(letters: Letters, rows: Rows, other: Rows) -> None:
    """The worker does not wait for the operator's transaction: its row is busy, keeps its lease and is tried again."""
    old = letters.bury(key="K")
    operator = Letters(other)
    other.conn.commit()
    operator.change("note", old, note="thinking")
    holder = rows.job(key="K", max_attempts=1)
    token = rows.claim(holder)
    rows.conn.execute("set lock_timeout = '50ms'")
    assert rows.fail(holder, token, "permanent") == "busy"
    other.conn.commit()
    assert rows.fail(holder, token, "permanent") == "dead"
    assert letters.of(old, "resolution") == "superseded"


def test_two_requeues_of_sets_in_opposite_order(letters: Letters, rows: Rows, database: RigDatabase) -> None:
    """BF-19, BF-46: whatever the order of the ids, each is requeued once and nobody is a victim of a deadlock."""
    ids = [letters.bury(key=f"k{n}") for n in range(200)]
    gate = threading.Barrier(4)

    def operator(n: int) -> dict[int, Any]:
        with database.connect() as own:
            mine = ids if n % 2 else ids[::-1]
            gate.wait(20)
            return Letters(Rows(own)).each("requeue", *mine)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(operator, range(4)))
    done = [ident for answer in answers for ident, (outcome, _) in answer.items() if outcome == "requeued"]
    assert sorted(done) == sorted(ids)
    assert {outcome for answer in answers for outcome, _ in answer.values()} <= {"requeued", "conflict", "busy"}
    assert letters.states() == {"requeued": 200}


def worker(mine: Letters) -> None:
    """Claim some jobs; two of three die."""
    found = mine.rows.conn.execute("select id from tailrace.job where token is null limit 10 for update skip locked").fetchall()
    for n, (ident,) in enumerate(found):
        outcome = {"id": ident, "token": mine.rows.claim(ident), "kind": "success" if n % 3 == 0 else "permanent"}
        assert mine.rows.settle(outcome)[ident] in ("succeeded", "dead", "busy", "fenced", "cancelled")


def canceller(mine: Letters) -> None:
    """Cancel some jobs."""
    for (ident,) in mine.rows.conn.execute("select id from tailrace.job limit 3").fetchall():
        with suppress(NotFound, Conflict):
            run(mine.rows.conn, Statement("select tailrace.cancel(%(id)s)", {"id": ident}, list))


def sweep(mine: Letters) -> None:
    """Walk and audit."""
    mine.rows.walk()
    mine.rows.conn.execute("select tailrace.audit_requeued_v1()")


def operator(mine: Letters) -> None:
    """Requeue all that is dead."""
    mine.run(batch=7)


def forcing(mine: Letters) -> None:
    """Requeue all that is dead over waiting holders."""
    found = mine.rows.conn.execute("select job_id from tailrace.dead_letter where state = 'dead'").fetchall()
    mine.each("requeue", *(ident for (ident,) in found), force=True)


class Crowd:
    """Threads that repeat their work until told to stop."""

    def __init__(self, database: RigDatabase, works: list[Callable[[Letters], None]]) -> None:
        self.database, self.stop, self.faults = database, threading.Event(), list[str]()
        self.threads = [threading.Thread(target=self._repeat, args=[work]) for work in works]

    def __enter__(self) -> Crowd:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(30)

    def _repeat(self, work: Callable[[Letters], None]) -> None:
        with self.database.connect() as own:
            mine = Letters(Rows(own))
            while not self.stop.is_set():
                try:
                    work(mine)
                except (psycopg.Error, AssertionError) as error:
                    self.faults.append(f"{work.__name__}: {error}")


@pytest.mark.timeout(120)
def test_everybody_at_once(letters: Letters, rows: Rows, database: RigDatabase) -> None:
    """Two operators, a worker whose jobs die, a canceller, and a sweep: no deadlock, no double, counts that add up."""
    for n in range(60):
        letters.bury(key=f"k{n}" if n % 3 else None)
    with Crowd(database, [operator, forcing, worker, canceller, sweep]) as crowd:
        for n in range(30):
            rows.conn.execute("select tailrace.enqueue('q', 't', '{}', %s)", [Jsonb({"key": f"k{n}", "max_attempts": 1})])

        def enough() -> bool:
            letters.bury()  # the worker's successes take some away for good
            return bool(rows.value("select count(*) from tailrace.audit") > 150)

        eventually(enough, timeout=40, what="enough of it")
    assert crowd.faults == []
    broken = rows.conn.execute(
        "select d.job_id, d.state, d.history from tailrace.dead_letter d left join tailrace.job j on j.id = d.job_id"
        " where (d.state = 'requeued') <> (j.id is not null)"
    )
    assert broken.fetchall() == []
    assert letters.stats() == letters.counted()
    requeued = rows.value("select sum(requeued_count) from tailrace.dead_letter")
    assert requeued == rows.value("select sum(n) from tailrace.tally where what = 'requeued'")
