"""The loop around the routines: once, for ever, in place of a missing runner, and through a database that fails."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.errors import DatabaseUnavailable, InvalidOption
from tailrace.maintenance import (
    HousekeepingConfig,
    Loop,
    NoCounters,
    Reaper,
    ReaperConfig,
    RoutineResult,
    Statistics,
    StatisticsConfig,
    Sweep,
    SweepConfig,
    routines,
    run_forever,
    run_once,
)
from tests.engine.rows import Rows
from tests.rig.proxy import TcpProxy
from tests.rig.waiting import eventually


class Counted(NoCounters):
    """Remembers what was counted."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, str]] = []
        self.failures: list[tuple[str, str]] = []
        self.deaths: list[tuple[str, str, str, int]] = []
        self.taken: list[tuple[str, str, str, int]] = []
        self.orphans = 0

    def ran(self, routine: str, result: str, seconds: float) -> None:
        self.runs.append((routine, result))

    def failed(self, routine: str, error_type: str, n: int) -> None:
        self.failures.append((routine, error_type))

    def dead(self, queue: str, task: str, reason: str, n: int) -> None:
        self.deaths.append((queue, task, reason, n))

    def reclaimed(self, queue: str, result: str, evidence: str, n: int) -> None:
        self.taken.append((queue, result, evidence, n))

    def orphaned(self, n: int) -> None:
        self.orphans += n


# ---- once ------------------------------------------------------------------------------------------------------------
def test_each_routine_runs_once_and_reports(rows: Rows, place: Database) -> None:
    """BF-30: what the routines move is counted like what workers move, by reason."""
    rows.steady()
    rows.worker(until=-1)
    rows.running(2)
    rows.running(attempts=5)
    rows.job(attempts=5)
    rows.job(attempts=1, token=9)
    counted = Counted()
    results = {r.routine: r for r in run_once(place, routines(), counters=counted)}
    assert [r.result for r in results.values()] == ["ok"] * 7
    assert {k: v for k, v in results["reaper"].counts.items() if v} == {"leases": 2, "lost": 2, "dead": 1}
    assert {k: v for k, v in results["sweep"].counts.items() if v} == {"seen": 4, "dead": 1, "lost": 1, "orphaned": 1}
    assert results["statistics"].counts["queues"] == 1
    assert counted.deaths == [("q", "t", "lease_expired", 1), ("q", "t", "max_attempts", 1)]
    assert sorted(counted.taken) == [("q", "dead", "expired", 1), ("q", "requeued", "audit", 1), ("q", "requeued", "expired", 2)]
    assert (counted.orphans, counted.failures) == (1, [])


def test_a_dry_run_says_the_same_and_changes_nothing(rows: Rows, place: Database) -> None:
    rows.worker(until=-1)
    rows.running(2)
    rows.job(attempts=5)
    rows.job(expires_at="2026-01-01T00:00:00Z")
    rows.job(token=9)
    before = rows.conn.execute("select * from tailrace.job order by id").fetchall()
    results = {r.routine: r for r in run_once(place, routines(), dry_run=True)}
    assert results["reaper"].counts == {"leases": 1, "jobs": 2, "workers": 1}
    assert results["sweep"].counts == {"exhausted": 1, "expired": 1, "orphaned": 1, "followed": 0, "restored": 0}
    assert {r.result for r in results.values()} == {"dry_run"}
    assert rows.conn.execute("select * from tailrace.job order by id").fetchall() == before
    assert rows.count("maintenance") == 0


def test_a_full_sweep_walks_to_the_end(rows: Rows, place: Database) -> None:
    """BF-17: 10,000 exhausted jobs in one run; the stored place of the ordinary walk is left alone."""
    rows.conn.execute(
        "insert into tailrace.job (queue, task, payload, attempts) select 'q', 't', '{}', 5 from generate_series(1, 10000)"
    )
    results = run_once(place, [Sweep()], full=True)
    assert results[0].counts["dead"] == 10_000
    assert (rows.count("job"), rows.count("dead_letter")) == (0, 10_000)


def test_an_ordinary_sweep_goes_on_while_it_finds_something(rows: Rows, place: Database) -> None:
    for _ in range(30):
        rows.job(attempts=5)
    for _ in range(30):
        rows.job()
    config = SweepConfig(slice_rows=10)
    assert run_once(place, [Sweep(config)])[0].counts["dead"] == 30
    assert rows.value("select cursor is not null from tailrace.maintenance where routine = 'sweep'") is True


def test_the_failure_of_one_routine_does_not_keep_the_others(rows: Rows, place: Database) -> None:
    """CJ-21's lesson for routines: entries are isolated; the error is told and counted."""
    rows.conn.execute("drop function tailrace.walk_v1")
    counted = Counted()
    results = {r.routine: r for r in run_once(place, routines(), counters=counted)}
    assert results["sweep"].result == "error"
    assert "walk_v1" in (results["sweep"].error or "")
    assert [r.result for name, r in results.items() if name != "sweep"] == ["ok"] * 6
    assert [name for name, _ in counted.failures] == ["sweep"]


def test_another_runner_makes_it_a_skip(other: Rows, place: Database) -> None:
    other.reap()
    other.value("select tailrace.walk_v1()")
    results = run_once(place, routines(["reaper", "sweep", "statistics"]))
    assert [r.result for r in results] == ["skipped", "skipped", "ok"]


def test_no_database_is_a_typed_error() -> None:
    with pytest.raises(DatabaseUnavailable):
        run_once(Database(url=SecretStr("host=127.0.0.1 port=1 connect_timeout=2")), routines())


@pytest.mark.parametrize(
    "make",
    [
        lambda: ReaperConfig(interval_seconds=0),
        lambda: ReaperConfig(interval_seconds=0.5),
        lambda: ReaperConfig(interval_seconds=float("nan")),
        lambda: SweepConfig(interval_seconds=-1),
        lambda: SweepConfig(slice_rows=0),
        lambda: StatisticsConfig(interval_seconds=1e9),
        lambda: HousekeepingConfig(interval_seconds=0.1),
        lambda: routines(["reapr"]),
        lambda: routines(reaper_seconds=0),
    ],
)
def test_settings_that_would_stop_or_spin_a_loop_are_refused(make: Any) -> None:
    """BF-42: an interval is 1 s or more."""
    with pytest.raises(InvalidOption):
        make()


# ---- for ever --------------------------------------------------------------------------------------------------------
def test_routines_run_at_their_periods_until_the_stop(rows: Rows, place: Database, running: Any) -> None:
    seen: list[RoutineResult] = []
    loop = Loop(
        place, [Reaper(ReaperConfig(interval_seconds=1)), Statistics(StatisticsConfig(interval_seconds=1))], on_result=seen.append
    )
    stop = running(loop)
    eventually(lambda: [r.routine for r in seen].count("reaper") >= 3, what="three ticks")
    stop.set()
    assert {r.routine for r in seen} == {"reaper", "statistics"}
    assert rows.value("select last_success is not null from tailrace.maintenance where routine = 'reaper'") is True


def test_a_stop_is_honoured_inside_a_statement(rows: Rows, place: Database) -> None:
    """BF-42: within a second, although a batch is running for longer."""
    rows.conn.execute(
        """create or replace function tailrace.housekeeping_v1(queue text default null) returns jsonb language sql as
           $$ select jsonb_build_object('waiters', 0) from pg_sleep(60) $$"""
    )
    stop = threading.Event()
    thread = threading.Thread(target=run_forever, args=(place, routines(["housekeeping"]), stop))
    thread.start()
    eventually(
        lambda: rows.value("select count(*) from pg_stat_activity where query like '%housekeeping%' and wait_event = 'PgSleep'")
    )
    began = time.monotonic()
    stop.set()
    thread.join(10)
    assert time.monotonic() - began < 5, "and not the 60 s of the statement"


def test_a_database_that_went_away_is_found_again(rows: Rows, dsn: str, running: Any, proxy_to: Any) -> None:
    """d2, CJ-06, BF-34: errors are counted and told; the loop goes on by itself when the database is back."""
    proxy: TcpProxy = proxy_to(dsn)
    counted = Counted()
    running(Loop(Database(url=SecretStr(proxy.dsn)), routines(["reaper"], reaper_seconds=1), counters=counted))
    eventually(lambda: ("reaper", "ok") in counted.runs, what="a first tick")
    proxy.refuse()
    eventually(lambda: ("reaper", "error") in counted.runs, what="a failed tick")
    assert counted.failures
    proxy.resume()
    counted.runs.clear()
    eventually(lambda: ("reaper", "ok") in counted.runs, what="a tick after the outage")


def test_pauses_after_errors_double_up_to_thirty_two_times(rows: Rows, place: Database) -> None:
    """Each failure doubles the wait, 32 times the first at most, with jitter; the other routines keep their periods."""
    rows.conn.execute("drop function tailrace.retain_v1")
    now, runs = [0.0], dict[str, list[float]]()
    stop = threading.Event()

    class Waiting(threading.Event):
        """A stop that is never waited for: the clock goes on instead."""

        def wait(self, timeout: float | None = None) -> bool:
            now[0] += timeout or 0.0
            return stop.is_set()

    def note(result: RoutineResult) -> None:
        runs.setdefault(result.routine, []).append(now[0])
        if len(runs.get("retention", ())) > 9:
            stop.set()

    Loop(place, routines(["retention", "housekeeping"]), on_result=note, clock=lambda: now[0], jitter=lambda: 0.0).run(Waiting())
    gaps = [round(after / 0.75, 2) for after in (two - one for one, two in itertools.pairwise(runs["retention"]))]
    assert gaps == [1, 2, 4, 8, 16, 16, 16, 16, 16]
    assert [round(two - one) for one, two in itertools.pairwise(runs["housekeeping"])] == [60]
