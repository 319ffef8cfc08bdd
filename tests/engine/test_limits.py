"""Concurrency limits: slots are taken with the claim, and whatever ends a run frees them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.limited import Claimer, apply, in_use, slots
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase


def _jobs(rows: Rows, n: int, **columns: Any) -> list[int]:
    return [rows.job(**columns) for _ in range(n)]


def test_no_more_run_than_the_queue_allows(rows: Rows) -> None:
    """I7: a claim takes what free slots can start, the next one the rest, then none."""
    apply(rows, limits={"concurrency": 3})
    jobs = _jobs(rows, 5)
    worker = Claimer(rows).know()
    first = worker.claim(2)
    assert (first.jobs, first.told["room"]) == (jobs[:2], 2)
    second = worker.claim(2)
    assert (second.jobs, second.told["room"]) == (jobs[2:3], 1)
    assert worker.claim(2).told["room"] == 0
    assert in_use(rows) == 3
    assert {(job, token) for _, job, token in slots(rows)} == {(i, first.token) for i in jobs[:2]} | {(jobs[2], second.token)}


def test_a_task_has_a_limit_of_its_own_and_the_others_go_on(rows: Rows) -> None:
    """I7: both limits hold at once; a task at its limit holds nobody else up, and the order is that of every claim."""
    apply(rows, limits={"concurrency": 6}, tasks=[{"name": "t", "concurrencyLimit": 2}])
    slow, quick = _jobs(rows, 4), _jobs(rows, 6, task="u")
    urgent = rows.job(task="t", priority=10)
    worker = Claimer(rows, classes={"t": None, "u": None}).know()
    got = worker.claim(4)
    assert sorted(got.jobs) == sorted([urgent, slow[0], *quick[:2]])
    again = worker.claim(10)
    assert (again.jobs, again.told["caps"]) == (quick[2:4], [0, 2])
    assert (in_use(rows), in_use(rows, "t")) == (6, 2)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("success", {}),
        ("error", {"delay": 60}),
        ("timeout", {"delay": 60}),
        ("retry_after", {"delay": 60}),
        ("permanent", {}),
        ("snooze", {"delay": 60}),
        ("interrupted", {}),
        ("handback", {}),
        ("cancelled", {}),
        ("expired", {}),
        ("corrupt", {}),
    ],
)
def test_every_outcome_frees_the_slot(rows: Rows, kind: str, more: dict[str, Any]) -> None:
    """Whatever ends a run, the next claim finds the slot free; no statement of its own is needed for that."""
    apply(rows, limits={"concurrency": 1}, tasks=[{"name": "t", "concurrencyLimit": 1}])
    first = rows.job()
    worker = Claimer(rows).know()
    got = worker.claim()
    assert got.jobs == [first]
    second = rows.job(run_at="2000-01-01")
    assert worker.claim().jobs == []
    rows.fail(first, got.token, kind, **more)
    assert (in_use(rows), in_use(rows, "t")) == (0, 0)
    assert second in worker.claim().jobs


def test_hands_from_outside_free_slots_too(rows: Rows) -> None:
    """BF-05, FQ-27: the reaper, a proof of death, leases released by hand, the audit and a discarded last attempt."""
    apply(rows, limits={"concurrency": 1})
    rows.worker()
    worker = Claimer(rows).know()

    def claimed() -> int:
        rows.conn.execute("delete from tailrace.job; delete from tailrace.lease")
        rows.job()
        got = worker.claim()
        assert len(got.jobs) == 1
        assert worker.claim().told["room"] == 0
        return got.token

    claimed()
    rows.worker(until=-100)
    rows.steady()
    assert rows.reap()["leases"] == 1
    assert worker.claim().told["room"] == 1
    rows.worker()
    claimed()
    rows.value("select tailrace.worker_died_v1('w', 'OOMKilled')")
    assert worker.claim().told["room"] == 1
    rows.worker()
    token = claimed()
    rows.conn.execute("select tailrace.release_leases_v1(%s, true)", [[token]])
    assert worker.claim().told["room"] == 1
    claimed()
    rows.conn.execute("delete from tailrace.lease")
    rows.walk()
    assert worker.claim().told["room"] == 1


def test_a_job_that_completes_itself_frees_its_slot_with_its_commit(rows: Rows, other: Rows) -> None:
    """While the handler's transaction is open the slot is taken; a rollback leaves it taken, a commit frees it."""
    apply(rows, limits={"concurrency": 1})
    job, following = rows.job(), rows.job()
    worker = Claimer(rows).know()
    token = worker.claim().token
    other.conn.execute("select tailrace.complete_v1(%s, %s, 'w')", [job, token])
    assert worker.claim().told["room"] == 0
    other.conn.rollback()
    assert worker.claim().told["room"] == 0
    other.conn.execute("select tailrace.complete_v1(%s, %s, 'w')", [job, token])
    other.conn.commit()
    assert worker.claim().jobs == [following]


def test_slots_are_not_taken_twice(database: RigDatabase, rows: Rows) -> None:
    """I7: claims whose snapshots are older than each other's commits never take one slot both."""
    apply(rows, limits={"concurrency": 4})
    _jobs(rows, 40)
    with database.connect(autocommit=False) as one, database.connect(autocommit=False) as two:
        first, second = Claimer(Rows(one)).know(), Claimer(Rows(two)).know()
        one.commit()
        two.commit()
        a = first.claim(3)
        b = second.claim(3)
        assert len(a.jobs) == 3
        assert len(b.jobs) <= 1  # the other's slots are locked, not waited for
        one.commit()
        c = second.claim(3)
        two.commit()
        assert len(a.jobs) + len(b.jobs) + len(c.jobs) == 4
        assert not set(a.jobs) & set(b.jobs + c.jobs)
    assert in_use(rows) == 4
    taken = [job for _, job, _ in slots(rows)]
    assert len(taken) == len(set(taken)) == 4


def test_jobs_by_id_and_jobs_lost_before_need_slots_too(rows: Rows) -> None:
    """A poison job is claimed alone and under its limit, stragglers by id as far as slots are free."""
    apply(rows, limits={"concurrency": 2})
    lost, found, more = rows.job(lost=1), rows.job(), rows.job()
    worker = Claimer(rows).know()
    assert worker.claim(1, suspect=True).jobs == [lost]
    assert worker.claim(5, ids=[found, more]).jobs == [found]
    assert worker.claim(1, suspect=True).jobs == []
    assert in_use(rows) == 2


def test_a_last_attempt_that_was_spent_comes_back_marked(rows: Rows) -> None:
    """CJ-04: an exhausted row comes out of a limited claim marked as out of any other."""
    apply(rows, limits={"concurrency": 5})
    spent, last = rows.job(attempts=3, max_attempts=3), rows.job(attempts=2, max_attempts=3)
    got = Claimer(rows).know().claim()
    assert {(row[0], row[2], row[7] & 9) for row in got.rows} == {(spent, 3, 9), (last, 3, 8)}


def test_a_held_queue_gives_nothing(rows: Rows) -> None:
    """A hold goes before limits."""
    apply(rows, limits={"concurrency": 5})
    rows.job()
    worker = Claimer(rows).know()
    rows.value("select tailrace.hold_queue('q')")
    assert worker.claim().told["state"] == "held"


def test_slots_above_a_hundred_are_made_as_they_are_needed(rows: Rows) -> None:
    """A limit of a million costs what runs: rows exist for jobs that ran at a time, and some."""
    apply(rows, limits={"concurrency": 1_000_000})
    _jobs(rows, 200)
    worker = Claimer(rows).know()
    assert len(worker.claim(150).jobs) == 150
    assert len(worker.claim(150).jobs) == 50
    assert 200 <= rows.count("limit_slot") <= 600
    assert in_use(rows) == 200


def test_housekeeping_empties_slots_of_runs_that_ended(rows: Rows) -> None:
    """A slot whose run is over says so after a while; slots and rates without a limit go."""
    apply(rows, limits={"concurrency": 3})
    rows.job()
    worker = Claimer(rows).know()
    got = worker.claim()
    running = rows.job()
    worker.claim()
    rows.fail(got.jobs[0], got.token, "success")
    assert rows.count("limit_slot", "token is not null") == 2
    assert rows.value("select tailrace.housekeeping_v1()")["limit_slots"] == 1
    assert rows.conn.execute("select job from tailrace.limit_slot where token is not null").fetchall() == [(running,)]
    apply(rows)
    rows.value("select tailrace.housekeeping_v1()")
    assert rows.count("limit_slot") == 0


def test_a_server_that_crashes_keeps_what_runs_and_frees_the_rest(rows: Rows) -> None:
    """Slots are logged, and free is what no running job holds: an emptied lease table leaves no slot taken for ever."""
    assert rows.value("select relpersistence from pg_class where oid = 'tailrace.limit_slot'::regclass") == "p"
    apply(rows, limits={"concurrency": 1})
    rows.job()
    worker = Claimer(rows).know()
    worker.claim()
    rows.conn.execute("delete from tailrace.lease; update tailrace.job set token = null")
    assert len(worker.claim().jobs) == 1


def test_views_and_counts_tell_what_is_blocked(rows: Rows) -> None:
    """A due job behind a taken limit or a used-up rate is blocked; the states stay disjoint and sum to the rows."""
    rows.worker()
    apply(
        rows,
        limits={"rates": [{"name": "slow", "jobs": 1, "periodSeconds": 3600, "tasks": ["u"]}]},
        tasks=[{"name": "t", "concurrencyLimit": 1}],
    )
    rows.conn.execute("update tailrace.worker set tasks = '{t,u,v}'")
    _jobs(rows, 3)
    _jobs(rows, 2, task="u")
    rows.job(task="v")
    Claimer(rows, classes={"t": None}).know().claim()
    rows.conn.execute(
        "select tailrace.take_rates_v1('q', (select limits from tailrace.queue), '{1}', '{1}', '{slow}', '{}', '{}')"
    )
    states: dict[str, int] = dict(rows.conn.execute("select state, count(*) from tailrace.jobs group by state").fetchall())
    assert states == {"running": 1, "blocked": 4, "ready": 1}
    counted = rows.conn.execute("select running, blocked, ready, total from tailrace.queue_stats('q')").fetchone()
    assert counted == (1, 4, 1, 6)
    shown = rows.conn.execute("select kind, name, tasks, most, in_use, free from tailrace.limits order by kind").fetchall()
    assert shown == [("concurrency", "t", ["t"], 1, 1, 0), ("rate", "slow", ["u"], 1, None, 0)]
