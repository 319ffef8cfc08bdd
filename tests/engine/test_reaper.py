"""What the reaper takes over, and what it must leave alone."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.engine.rows import Rows, error_of, results
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually


@pytest.fixture(autouse=True)
def _steady(rows: Rows) -> None:
    """These tests are about a reaper that has ticked for an hour."""
    rows.steady()


def test_a_dead_workers_job_is_given_back_and_charged(rows: Rows) -> None:
    """BF-08, GW-02, CJ-05, a2: no sign of life for a lease; the attempt stays, `lost` goes up, it waits backoff(1)."""
    rows.worker(until=-0.01)
    token, [ident] = rows.running(errors=[error_of("Before")])
    report = rows.reap()
    assert (report["leases"], report["workers"], results(report)) == (1, 1, {"lost": 1})
    row = rows.row(ident)
    assert row is not None
    assert (row["token"], row["attempts"], row["lost"]) == (None, 1, 1)
    assert 2 < row["wait"] <= 6
    assert [e["type"] for e in row["errors"]] == ["Before", "WorkerLost"]
    assert row["errors"][-1]["worker"] == "w"
    assert rows.leases() == set()
    assert rows.fail(ident, token) == "fenced"


def test_a_living_workers_jobs_stay_however_long_they_run(rows: Rows) -> None:
    """BF-07, FQ-11, CJ-02, a2: only the worker's own lease counts, never the time since the claim."""
    rows.worker(until=30)
    token, ids = rows.running(3)
    rows.conn.execute("update tailrace.lease set claimed_at = now() - interval '10 days'")
    assert rows.reap()["rows"] == []
    assert rows.leases() == {token}
    assert all(rows.row(i)["token"] == token for i in ids)  # type: ignore[index]


def test_a_job_that_kills_its_process_reaches_the_dead_letters(rows: Rows) -> None:
    """CJ-05, GW-04: a crash counts; dead (lease_expired) after max_attempts runs, never more."""
    rows.worker(until=-0.01)
    ident = rows.job(max_attempts=3, key="k")
    for run in (1, 2):
        rows.claim(ident)
        assert results(rows.reap()) == {"lost": 1}
        assert rows.row(ident)["lost"] == run  # type: ignore[index]
    rows.claim(ident)
    report = rows.reap()
    assert report["rows"] == [{"queue": "q", "task": "t", "result": "dead", "reason": "lease_expired", "n": 1}]
    dead = rows.dead(ident)
    assert dead is not None
    assert (dead["reason"], dead["total_attempts"], dead["worker"], dead["key"]) == ("lease_expired", 3, "w", "k")
    assert len(dead["errors"]) == 3
    assert rows.tally() == {"dead": 1}


def test_later_losses_wait_longer(rows: Rows) -> None:
    rows.worker(until=-0.01)
    _, [ident] = rows.running(lost=3, attempts=2)
    rows.reap()
    assert 31 < rows.row(ident)["wait"] <= 48  # type: ignore[index]


def test_the_queues_settings_hold_for_the_reaper_too(rows: Rows) -> None:
    """BF-39: Discard drops what is exhausted; backoff and interruptions are the queue's."""
    settings = {
        "exhaustedPolicy": "Discard",
        "jobDefaults": {"backoff": {"strategy": "Fixed", "baseSeconds": 77, "jitterPercent": 0}},
    }
    rows.conn.execute("insert into tailrace.queue (name, settings) values ('q', %s)", [Jsonb(settings)])
    rows.worker(until=-0.01)
    _, [back] = rows.running()
    rows.running(attempts=5)
    assert results(rows.reap()) == {"lost": 1, "dropped": 1}
    assert 75 < rows.row(back)["wait"] <= 77  # type: ignore[index]
    assert rows.count("dead_letter") == 0


def test_what_a_draining_worker_had_started_counts_as_interrupted(rows: Rows) -> None:
    """The platform cut it: the attempt is given back, ten times; then it is charged (engine.md 2.3)."""
    rows.worker(until=-0.01, state="draining")
    _, [first, again, spent] = rows.running(3, max_attempts=1)
    rows.conn.execute("update tailrace.job set interrupted = 9 where id = %s", [again])
    rows.conn.execute("update tailrace.job set interrupted = 10 where id = %s", [spent])
    assert results(rows.reap()) == {"interrupted": 2, "dead": 1}
    row = rows.row(first)
    assert row is not None
    assert (row["attempts"], row["interrupted"], row["lost"]) == (0, 1, 0)
    assert row["wait"] <= 0
    assert rows.row(again)["interrupted"] == 10  # type: ignore[index]
    assert rows.dead(spent)["reason"] == "interrupted"  # type: ignore[index]


def test_a_task_has_its_own_number_of_interruptions(rows: Rows) -> None:
    """BF-39: the task's entry comes before the queue's defaults, in either form of the list; others have the queue's."""
    rows.worker(until=-0.01, state="draining")
    own = {"jobDefaults": {"maxInterruptions": 1}, "tasks": {"sturdy": {"maxInterruptions": 3}, "frail": {"maxInterruptions": 0}}}
    rows.conn.execute("insert into tailrace.queue (name, settings) values ('q', %s)", [Jsonb(own)])
    ids = {task: rows.running(max_attempts=1, task=task)[1][0] for task in ("sturdy", "frail", "other")}
    rows.conn.execute("update tailrace.job set interrupted = 2 where task = 'sturdy'")
    rows.conn.execute("update tailrace.job set interrupted = 1 where task = 'other'")
    assert results(rows.reap()) == {"interrupted": 1, "dead": 2}
    assert rows.row(ids["sturdy"])["interrupted"] == 3  # type: ignore[index]
    assert {rows.dead(ids[task])["reason"] for task in ("frail", "other")} == {"interrupted"}  # type: ignore[index]


def test_a_cancel_request_of_a_lost_job_is_kept(rows: Rows) -> None:
    rows.worker(until=-0.01)
    _, [ident] = rows.running()
    rows.conn.execute("insert into tailrace.cancel_request (job_id, requested_by) values (%s, 'me')", [ident])
    assert results(rows.reap()) == {"cancelled": 1}
    assert (rows.row(ident), rows.count("cancel_request")) == (None, 0)


def test_a_requeued_job_that_is_lost_for_good_is_the_same_dead_letter(rows: Rows) -> None:
    rows.worker(until=-0.01)
    ident = rows.job(max_attempts=1)
    rows.fail(ident, rows.claim(ident))
    rows.requeue(ident)
    rows.claim(ident)
    assert results(rows.reap()) == {"dead": 1}
    assert (rows.dead(ident)["dead_count"], rows.count("dead_letter")) == (2, 1)  # type: ignore[index]


def test_sixty_and_more_leases_go_in_batches(rows: Rows) -> None:
    """FQ-18, BF-17: bounded batches until nothing is left; a lease that cannot be freed does not stand in the way."""
    rows.worker(until=-0.01)
    for _ in range(65):
        rows.running(2)
    taken, after = 0, None
    for _ in range(7):
        report = rows.reap(batch=10, after=after)
        taken, after = taken + report["leases"], report["next"]
    assert (taken, after, rows.leases(), rows.count("job", "lost = 1")) == (65, None, set(), 130)


def test_large_leases_go_in_several_transactions(rows: Rows) -> None:
    """A batch is bounded in jobs as well as in leases."""
    rows.worker(until=-0.01)
    rows.conn.execute(
        """insert into tailrace.job (queue, task, payload, attempts, token)
           select 'q', 't', '{}', 1, n / 2000 + 1 from generate_series(0, 7999) n"""
    )
    rows.conn.execute(
        """insert into tailrace.lease (token, worker, queue, ids)
           select token, 'w', 'q', array_agg(id) from tailrace.job group by 1"""
    )
    first = rows.reap()
    assert (first["leases"], first["next"], results(first)) == (3, 3, {"lost": 6000})
    second = rows.reap(after=first["next"])
    assert (second["leases"], second["next"], rows.count("lease")) == (1, None, 0)


@pytest.mark.parametrize("how", ["finished", "claimed again"])
def test_a_job_that_is_just_being_finished_is_not_dragged_back(rows: Rows, other: Rows, how: str) -> None:
    """a1: B changes nothing of a row that A is finishing, or has given back and C claimed; other rows are recovered."""
    rows.worker(until=-0.01)
    rows.worker("c")
    token, [ident, stale] = rows.running(2)
    other.settle({"id": ident, "token": token, "kind": "success" if how == "finished" else "handback"})
    report = rows.reap()
    assert (report["leases"], report["skipped"], results(report)) == (0, 1, {"lost": 1})
    assert rows.row(stale)["lost"] == 1  # type: ignore[index]
    other.conn.commit()

    fresh = rows.claim(ident, worker="c") if how == "claimed again" else None
    before = rows.row(ident)
    assert (before is None) == (how == "finished")
    report = rows.reap()
    assert (report["leases"], report["skipped"], report["rows"]) == (1, 0, [])
    after = rows.row(ident)
    if after is not None and before is not None:
        assert {**after, "wait": 0} == {**before, "wait": 0}
        assert after["token"] == fresh
    assert rows.leases() == ({fresh} if fresh else set())


@pytest.mark.parametrize("table", ["job", "lease", "worker", "dead_letter"])
def test_the_reaper_waits_for_nobody(rows: Rows, other: Rows, table: str) -> None:
    """FQ-18: rows that an application or another worker holds are skipped, counted, and taken in a later tick."""
    rows.worker(until=-0.01)
    ident = rows.job(max_attempts=1)
    rows.fail(ident, rows.claim(ident))
    rows.requeue(ident)
    token = rows.claim(ident)
    other.conn.execute(f"select from tailrace.{table} for update")
    rows.conn.execute("set lock_timeout = '5s'")
    assert results(rows.reap()).get("dead", 0) == 0
    assert (rows.leases(), rows.row(ident)["token"]) == ({token}, token)  # type: ignore[index]
    other.conn.rollback()
    assert results(rows.reap()) == {"dead": 1}
    assert rows.leases() == set()


def test_a_beat_that_comes_first_keeps_its_leases(rows: Rows, other: Rows) -> None:
    """The reaper reads `until` again under the lock: a renewal that is committing now wins."""
    rows.worker(until=-0.01)
    token, _ = rows.running()
    other.value("select tailrace.beat_v1('w', '{}')")
    assert rows.reap()["leases"] == 0
    other.conn.commit()
    assert rows.reap()["leases"] == 0
    assert rows.leases() == {token}


def test_rows_that_cannot_be_moved_are_counted_and_the_others_go(rows: Rows) -> None:
    """BF-16, b3: 150 unmovable rows do not delay row 151, and the tick ends."""
    rows.conn.execute(
        """create function refuse() returns trigger language plpgsql as
             $$ begin if new.task = 'bad' then raise exception 'no'; end if; return new; end $$;
           create trigger refuse before insert on tailrace.dead_letter for each row execute function refuse()"""
    )
    rows.worker(until=-0.01)
    rows.running(150, task="bad", attempts=5)
    rows.running(5, attempts=5)
    assert results(rows.reap()) == {"dead": 5, "failed": 150}
    assert rows.count("dead_letter") == 5
    assert rows.count("job", "token is not null") == 150


def test_a_key_that_is_dead_already_does_not_stop_the_reaper(rows: Rows) -> None:
    """b3: fifty stale leases beside a key with a dead letter: all are freed, the older letter is superseded."""
    rows.worker(until=-0.01)
    old = rows.job(key="k2")
    rows.fail(old, rows.claim(old), "permanent")
    for _ in range(50):
        rows.running()
    _, [ident] = rows.running(key="k2", attempts=5)
    assert results(rows.reap()) == {"lost": 50, "dead": 1}
    assert (rows.dead(old)["resolution"], rows.dead(ident)["key"]) == ("superseded", "k2")  # type: ignore[index]
    assert rows.reap()["rows"] == []


def test_nothing_is_ever_deleted_without_a_dead_letter(rows: Rows) -> None:
    """BF-03, BF-05, FQ-01: whatever the clean-up does, each job is waiting or dead afterwards."""
    rows.worker(until=-0.01)
    ids: list[int] = []
    for n in range(250):
        _, more = rows.running(attempts=5 if n % 2 else 1)
        ids += more
    reports = [rows.reap(batch=1000)]
    assert results(reports[0]) == {"lost": 125, "dead": 125}
    for ident in ids:
        assert (rows.row(ident) is None) == (rows.dead(ident) is not None)


def test_leases_of_workers_without_a_row_are_taken_when_they_are_old(rows: Rows) -> None:
    """c4: an owner that nobody knows must not look alive for ever; a fresh lease may belong to a row written a moment later."""
    fresh, _ = rows.running(worker="nobody")
    old, [ident] = rows.running(worker="nobody")
    rows.conn.execute("update tailrace.lease set claimed_at = now() - interval '2 min' where token = %s", [old])
    assert results(rows.reap()) == {"lost": 1}
    assert (rows.leases(), rows.row(ident)["lost"]) == ({fresh}, 1)  # type: ignore[index]


def test_one_reaper_at_a_time(rows: Rows, other: Rows) -> None:
    """FQ-18: a second runner finds the lock taken, does nothing and does not wait."""
    other.reap()
    assert rows.reap() == {"locked": True}
    other.conn.rollback()
    assert "leases" in rows.reap()


def sleeper(database: RigDatabase, name: str) -> Any:
    """A session that stands in a transaction."""
    conn = database.connect(autocommit=False, application_name=name)
    conn.execute("select 1")
    return conn


def test_frozen_sessions_of_workers_are_ended(rows: Rows, database: RigDatabase) -> None:
    """A stopped client inside a transaction holds rows that nobody sees; applications and people are left alone."""
    rows.worker(until=60, lease_seconds=1)
    frozen = sleeper(database, "tailrace work")
    others = [sleeper(database, name) for name in ("tailrace enqueue", "tailrace migrate", "tailrace cli", "psql")]
    late = """select count(*) from pg_stat_activity
              where datname = current_database() and xact_start < clock_timestamp() - interval '1.05 s'"""
    eventually(lambda: rows.value(late) == 5, what="old transactions")
    assert rows.reap()["ended_sessions"] == 1
    eventually(lambda: database.backends("tailrace work") == [], what="the end of the frozen session")
    assert rows.reap()["ended_sessions"] == 0
    for conn in others:
        conn.execute("select 1")
        conn.close()
    frozen.close()
