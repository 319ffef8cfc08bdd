"""What a reading tells of a queue's jobs: counts, arrivals, run times, and the demand made of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.db import Blocks, Jsonb, run
from tailrace.maintenance import Statistics, StatisticsConfig, run_once
from tailrace.queue_spec import JobQueueSpec
from tailrace.readings import Reading, ReadingStatements
from tailrace.settings import ProducerSettings
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase

FILL = "insert into tailrace.job (queue, task, payload) select 'q', 't', '{}' from generate_series(1, %s)"


def read(rows: Rows, queue: str = "q") -> dict[str, Any]:
    """Take a reading that counts, however long the last count took, and return it."""
    rows.conn.execute("update tailrace.queue set reading = reading - 'count_seconds'")
    rows.value("select tailrace.statistics_v1()")
    return dict(rows.value("select reading from tailrace.queue where name = %s", [queue]))


def back(rows: Rows, **seconds: float) -> None:
    """Make moments of the last reading earlier."""
    for name, ago in seconds.items():
        rows.conn.execute(
            """update tailrace.queue set reading = reading ||
               jsonb_build_object(%s::text, (reading ->> %s::text)::timestamptz - %s * interval '1 s')""",
            [name, name, ago],
        )


def test_the_states_are_those_of_queue_stats(rows: Rows) -> None:
    """h2: each class is visible by itself, and only what can be claimed counts as claimable."""
    rows.worker()
    rows.job(key="k")
    rows.job(task="nobody knows it")
    rows.job(run_at="2126-01-01 00:00+00")
    rows.job(run_at="2126-01-01 00:00+00", attempts=1)
    rows.job(key="k", key_slot=1)
    rows.job(lost=1)
    rows.running(2)
    rows.running(1, worker="gone")
    rows.worker("gone", until=-1)
    found = read(rows)
    expected = {
        "ready": 2, "scheduled": 1, "retrying": 1, "blocked": 1, "unclaimable": 1, "running": 3, "stale": 1, "total": 9,
        "claimable": 2, "held": 0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    stats = rows.conn.execute("select ready, scheduled, retrying, total from tailrace.queue_stats('q')").fetchone()
    assert stats == (2, 1, 1, 9)
    assert found["next_due_seconds"] > 3e9
    rows.conn.execute("update tailrace.queue set held = true where name = 'q'")
    assert (read(rows)["held"], read(rows)["claimable"]) == (3, 0)


def test_without_workers_what_is_due_counts_as_claimable(rows: Rows) -> None:
    """Else a queue at zero would sleep for ever: nobody is there to know its tasks."""
    rows.job()
    assert (read(rows)["unclaimable"], read(rows)["claimable"]) == (1, 1)
    rows.worker("draining", state="draining")
    assert read(rows)["claimable"] == 1


def test_what_the_last_worker_did_not_know_wakes_nobody(rows: Rows) -> None:
    """h2: an unknown task must not start a worker each time the fleet has gone to zero; a new job does, and so does time."""
    rows.worker()
    unknown = [rows.job(task="unknown") for _ in range(3)]
    assert read(rows)["claimable"] == 0
    rows.worker(until=-1)
    assert read(rows)["claimable"] == 0
    rows.job()
    assert read(rows)["claimable"] == 1
    rows.conn.execute("delete from tailrace.job where id = %s", [unknown[0]])
    assert read(rows)["claimable"] == 1, "a job that went away hides none that came"
    rows.job(task="unknown")
    assert read(rows)["claimable"] == 1
    back(rows, worked_at=901)
    assert read(rows)["claimable"] == 4, "after a quarter of an hour a new release may know it"


def test_arrivals_are_what_came_and_what_has_ended(rows: Rows) -> None:
    """An average over two minutes, of jobs that became claimable; the first reading only begins it."""
    rows.conn.execute(FILL, [10])
    assert read(rows)["arrivals"] == 0
    token, ids = rows.running(4)
    rows.settle(*({"id": i, "token": token, "kind": "success"} for i in ids))
    rows.conn.execute(FILL, [8])
    rows.job(run_at="2126-01-01 00:00+00")
    back(rows, counted_at=12)
    first = read(rows)["arrivals"]
    assert first == pytest.approx(12 / 12 * (1 - 2.718281828 ** (-12 / 120)), rel=0.05)
    back(rows, counted_at=120)
    assert read(rows)["arrivals"] == pytest.approx(first / 2.718281828, rel=0.05), "nothing came: it fades"
    rows.conn.execute("delete from tailrace.job")
    back(rows, counted_at=60)
    assert 0 <= read(rows)["arrivals"] < first


def test_a_clock_that_stepped_back_spoils_nothing(rows: Rows) -> None:
    rows.job()
    read(rows)
    back(rows, counted_at=-3600)
    found = read(rows)
    assert (found["arrivals"], found["total"]) == (0, 1)
    assert rows.value("select (reading ->> 'counted_at')::timestamptz <= clock_timestamp() from tailrace.queue")


def test_run_times_are_those_of_the_living_and_outlast_them(rows: Rows) -> None:
    for name, runs, seconds in (("a", 10, 5), ("b", 30, 3), ("dead", 1000, 9000)):
        rows.worker(name, until=-1 if name == "dead" else 60)
        measured = {"q": {"runs": runs, "seconds": seconds}}
        rows.conn.execute("update tailrace.worker set measured = %s where id = %s", [Jsonb(measured), name])
    rows.job()
    assert read(rows)["run_seconds"] == pytest.approx(0.2)
    rows.conn.execute("delete from tailrace.worker")
    assert read(rows)["run_seconds"] == pytest.approx(0.2)
    rows.worker("nonsense")
    rows.conn.execute('update tailrace.worker set measured = \'{"q": {"runs": "many"}}\'')
    assert read(rows)["run_seconds"] == pytest.approx(0.2)


def test_counting_that_took_long_is_not_repeated_at_once(rows: Rows) -> None:
    """i2: at most 2 % of the time; what costs little is told anew each time."""
    rows.job()
    rows.job(queue="small")
    read(rows)
    rows.conn.execute("update tailrace.queue set reading = reading || '{\"count_seconds\": 2.0, \"total\": 7}' where name = 'q'")
    rows.job(queue="small")
    rows.worker()
    rows.value("select tailrace.statistics_v1()")
    found = _readings(rows)["q"]
    assert (found["total"], found["workers"], found["count_seconds"]) == (7, 1, 2.0)
    assert _readings(rows)["small"]["total"] == 2, "nor does it keep the others waiting"
    back(rows, counted_at=51)
    rows.value("select tailrace.statistics_v1()")
    assert _readings(rows)["q"]["total"] == 1


def test_what_takes_long_together_is_not_repeated_at_once(rows: Rows) -> None:
    """i2: twelve queues of 0.1 s each cost as much as one of 1.2 s; the smallest are told anew all the same."""
    for queue in "abc":
        rows.job(queue=queue)
    read(rows, "a")
    for ago, counted in ((16, {"a"}), (21, {"a", "b", "c"})):
        rows.conn.execute(
            """update tailrace.queue set reading = reading
               || jsonb_build_object('count_seconds', case when name = 'a' then 0.02 else 0.4 end, 'total', 7)"""
        )
        back(rows, counted_at=ago)
        rows.value("select tailrace.statistics_v1()")
        assert {name for name, found in _readings(rows).items() if found["total"] == 1} == counted


def test_one_call_counts_for_ten_seconds_at_most(rows: Rows) -> None:
    """The others are next: those that were counted longest ago."""
    for queue in "abc":
        rows.job(queue=queue)
    read(rows, "a")
    rows.conn.execute('update tailrace.queue set reading = reading || \'{"count_seconds": 6.0, "total": 7}\'')
    back(rows, counted_at=3500)
    for counted in ({"a", "b"}, {"a", "b", "c"}):
        rows.value("select tailrace.statistics_v1()")
        assert {name for name, found in _readings(rows).items() if found["total"] == 1} == counted


def test_the_jobs_of_all_queues_are_counted_in_one_pass(rows: Rows) -> None:
    """Jobs of many queues lie on the same pages: counted queue by queue, each page is read for each of them."""
    rows.conn.execute(
        """insert into tailrace.job (queue, task, payload) select 'q' || g % 20, 't', '{}' from generate_series(1, 10000) g"""
    )
    rows.conn.execute("vacuum analyze tailrace.job")
    rows.value("select tailrace.statistics_v1()")
    pages = rows.value("select relpages from pg_class where oid = 'tailrace.job'::regclass")
    before = _pages_read(rows)
    read(rows, "q0")
    assert _pages_read(rows) - before < 2 * pages


def test_what_is_left_to_fold_counts_no_jobs_again(rows: Rows, database: RigDatabase) -> None:
    """A requeue of many leaves counts for many calls; each of them counted all jobs, for five seconds of a core."""
    rows.job()
    rows.conn.execute("insert into tailrace.tally (queue, task, what, n) select 'q', 't', 'dead', 1 from generate_series(1, 200)")
    before = _pages_read(rows)
    place = ProducerSettings.load({"database_url": database.dsn}).database()
    (result,) = run_once(place, [Statistics(StatisticsConfig(fold_rows=2))])
    assert (result.counts["folded"], result.counts["queues"]) == (200, 1)
    assert _pages_read(rows) - before < 50


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(FILL.replace("%s", "50000"), id="jobs"),
        pytest.param(
            "insert into tailrace.tally (queue, task, what, n) select 'q', 't', 'dead', 1 from generate_series(1, 20000)",
            id="counts",
        ),
    ],
)
def test_the_statistics_rest_while_they_work(rows: Rows, database: RigDatabase, work: str) -> None:
    """On busy cores a worker that is woken waits behind them: 0.5 s of counting doubled the p99 of pickups."""
    rows.conn.execute(work)
    rows.conn.execute("analyze tailrace.job")
    watched = rows.conn.info.backend_pid
    seen = set[str]()
    with ThreadPoolExecutor(1) as pool, database.connect() as watching:
        done = pool.submit(rows.value, "select tailrace.statistics_v1()")
        while not done.done():
            found = watching.execute("select wait_event from pg_stat_activity where pid = %s", [watched]).fetchone()
            seen.add(str(found[0]) if found else "")
        report = done.result()
    assert (report["folded"], report["queues"]) == (20_000 if "tally" in work else 0, 0 if "tally" in work else 1)
    assert "PgSleep" in seen


def test_the_rows_of_a_queue_are_found_by_index(rows: Rows) -> None:
    """Small queues beside a large one: counting them does not read the large one."""
    rows.conn.execute(FILL, [20_000])
    for more in ({"key": "k"}, {"key": "k", "key_slot": 1}, {"lost": 1}, {"serial_group": "g"}):
        rows.job(queue="small", **more)
    rows.conn.execute("vacuum analyze tailrace.job")
    with rows.conn.transaction():
        assert rows.value("select total from tailrace.queue_stats('small')") == 4
        reads = rows.value(
            "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int from pg_stat_xact_user_tables where relname = 'job'"
        )
    assert reads < 50


def test_the_demand_is_published_with_the_reading(rows: Rows, database: RigDatabase) -> None:
    """One function for all: the routine works it out of what the row says of slots and targets."""
    spec = JobQueueSpec.model_validate(
        {
            "latencyTargetSeconds": 10,
            "worker": {"slots": 2},
            "autoscaling": {"mode": "Operator", "maxReplicas": 5, "targetUtilizationPercent": 50},
        }
    )
    place = ProducerSettings.load({"database_url": database.dsn}).database()
    rows.conn.execute(FILL, [40])
    for settings in (None, spec.database_part()):
        if settings is not None:
            rows.value("select tailrace.apply_queue('q', %s, 'cli')", [Jsonb(settings)])
        (result,) = run_once(place, [Statistics()])
        assert result.result == "ok"
        found = rows.value("select reading -> 'demand' from tailrace.queue where name = 'q'")
        assert found["drain"] == pytest.approx(1.0 if settings is None else 5.0), "40 jobs, S = T / 4"
        assert set(found) == {"flow", "drain", "busy", "total"}
    assert read(rows)["demand"] == found, "kept until the next is worked out"
    reading = _reading(rows)
    assert (reading.demand, reading.held, reading.counts["claimable"]) == (found, False, 40)
    assert 0 <= (reading.age_seconds or -1) < 60


def test_a_reading_knows_when_there_is_none(rows: Rows) -> None:
    rows.conn.execute("insert into tailrace.queue (name, held_until) values ('q', clock_timestamp() + interval '1 h')")
    reading = _reading(rows)
    assert (reading.age_seconds, reading.held, reading.load()) == (None, True, None)
    rows.job(run_at="2126-01-01 00:00+00")
    read(rows)
    load = _reading(rows).load()
    assert load is not None
    assert load.held
    assert (load.next_due_seconds or 0) > 3e9
    assert run(rows.conn, ReadingStatements(Blocks("tailrace")).of(["missing"])) == {}


def _reading(rows: Rows) -> Reading:
    return run(rows.conn, ReadingStatements(Blocks("tailrace")).of(["q"]))["q"]


def _readings(rows: Rows) -> dict[str, dict[str, Any]]:
    return dict(rows.conn.execute("select name, reading from tailrace.queue").fetchall())


def _pages_read(rows: Rows) -> int:
    """Pages of table job that were touched, in buffers or not, by all who have told it."""
    rows.conn.execute("select pg_stat_force_next_flush()")
    rows.conn.execute("select pg_stat_clear_snapshot()")
    return int(
        rows.value("select heap_blks_hit + heap_blks_read from pg_statio_user_tables where relid = 'tailrace.job'::regclass")
    )
