"""A worker that the kubelet reports as ended: what its jobs are charged, by who ended it."""

from __future__ import annotations

from tailrace.db import Blocks, run
from tailrace.owners import OwnerStatements
from tests.engine.rows import Rows

WORDS = OwnerStatements(Blocks("tailrace"), "tailrace")


def test_a_death_by_the_platform_gives_the_attempt_back(rows: Rows) -> None:
    """Evicted, preempted, its pod deleted: the worker may have had no time to say that it drains."""
    rows.worker(until=50)
    _, [ident] = rows.running(max_attempts=1)
    death = run(rows.conn, WORDS.gone("w", reason="Evicted: Error, exit code 137", interrupted=True))
    assert (death.known, death.jobs, death.skipped) == (True, 1, 0)
    row = rows.row(ident)
    assert row is not None
    assert (row["attempts"], row["interrupted"], row["lost"]) == (0, 1, 0)
    assert row["wait"] <= 0
    assert run(rows.conn, WORDS.gone("w", reason="Evicted", interrupted=True)).jobs == 0, "any number of times"


def test_a_crash_counts(rows: Rows) -> None:
    rows.worker(until=50)
    _, [ident] = rows.running(max_attempts=1)
    assert run(rows.conn, WORDS.gone("w", reason="OOMKilled", interrupted=False)).jobs == 1
    assert rows.dead(ident) is not None


def test_jobs_that_somebody_has_locked_are_counted_and_follow(rows: Rows, other: Rows) -> None:
    rows.worker(until=50)
    _, [ident] = rows.running()
    other.conn.execute("select from tailrace.job where id = %s for update", [ident])
    death = run(rows.conn, WORDS.gone("w", reason="Error", interrupted=False))
    assert (death.jobs, death.skipped) == (0, 1)
    other.conn.rollback()
    assert run(rows.conn, WORDS.gone("w", reason="Error", interrupted=False)).jobs == 1
