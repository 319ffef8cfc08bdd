"""The views tell each state apart, and their counts add up to the rows of the tables."""

from __future__ import annotations

import pytest

from tests.rig.servers import Connection

STATES = ("ready", "scheduled", "retrying", "blocked", "held", "unclaimable", "running", "stale")
ROWS = {
    "ready": "('q', 'known', now() - interval '1 hour', 0, null::bigint)",
    "scheduled": "('q', 'known', now() + interval '1 hour', 0, null::bigint)",
    "retrying": "('q', 'known', now() + interval '2 hours', 2, null::bigint)",
    "held": "('held', 'known', now() - interval '1 minute', 0, null::bigint)",
    "unclaimable": "('q', 'unknown', now() - interval '1 minute', 1, null::bigint)",
    "running": "('q', 'known', now() - interval '1 minute', 1, 11)",
    "stale": "('q', 'known', now() - interval '1 minute', 1, 22)",
}

# Numbers 1 to 4 in queue a, 5 to 7 in b; 5 is requeued, 6 resolved; number n has n attempts and died n hours ago.
SEVEN = """
insert into tailrace.dead_letter (job_id, queue, task, payload, priority, run_at, max_attempts, reason, error_type, fingerprint,
  total_attempts, first_failed_at, failed_at, created_at, state, requeued_count)
select n, case when n < 5 then 'a' else 'b' end, case n % 2 when 0 then 'x' else 'y' end, '{}', 0, now(), 1, 'r', 'e', 'f',
  n, now(), now() - n * interval '1 hour', now(), case n when 5 then 'requeued' when 6 then 'resolved' else 'dead' end, 2
from generate_series(1, 7) n"""


@pytest.fixture
def zoo(conn: Connection) -> Connection:
    """One living worker, a dead and a draining one, a held queue, and each state as often as its place in STATES says."""
    conn.execute(
        "insert into tailrace.worker (id, until, version, queues, tasks, slots, state) values"
        " ('alive', now() + interval '1 minute', '1', '{q,held}', '{known}', 4, 'working'),"
        " ('dead', now() - interval '1 second', '1', '{q}', '{known,unknown}', 4, 'working'),"
        " ('leaves', now() + interval '1 minute', '1', '{q}', '{known,unknown}', 4, 'draining')"
    )
    conn.execute(
        "insert into tailrace.lease (token, worker, queue, ids) values (11, 'alive', 'q', '{1}'), (22, 'dead', 'q', '{2}')"
    )
    conn.execute("select tailrace.hold_queue('held')")
    for state, values in ROWS.items():
        conn.execute(
            f"insert into tailrace.job (queue, task, run_at, attempts, token, payload)"
            f" select v.*, '{{}}' from (values {values}) v, generate_series(1, {STATES.index(state) + 1})".encode()
        )
    return conn


def test_states_are_disjoint_and_sum_to_the_rows(zoo: Connection) -> None:
    """BF-44: each row has exactly one state; scheduled ones count, and a running last attempt is running only."""
    counts: dict[str, int] = dict(zoo.execute("select state, count(*) from tailrace.jobs group by 1").fetchall())
    assert counts == {state: STATES.index(state) + 1 for state in ROWS}
    assert sum(counts.values()) == zoo.execute("select count(*) from tailrace.job").fetchall()[0][0]
    assert zoo.execute("select count(*) - count(distinct id) from tailrace.jobs").fetchone() == (0,)


@pytest.mark.parametrize("queue", ["q", "held", "nobody"])
def test_stats_and_view_agree(zoo: Connection, queue: str) -> None:
    """BF-44, BF-31: one reading, of one queue, zero where there is nothing."""
    row = zoo.execute(f"select {', '.join(STATES)}, total from tailrace.queue_stats(%s)", [queue]).fetchall()[0]
    seen: dict[str, int] = dict(
        zoo.execute("select state, count(*) from tailrace.jobs where queue = %s group by 1", [queue]).fetchall()
    )
    assert dict(zip(STATES, row, strict=False)) == {state: seen.get(state, 0) for state in STATES}
    assert row[-1] == sum(seen.values())


def test_a_successor_is_blocked(zoo: Connection) -> None:
    zoo.execute("alter table tailrace.job disable trigger user")
    zoo.execute("insert into tailrace.job (queue, task, payload, key, key_slot) values ('q', 'known', '{}', 'k', 1)")
    assert zoo.execute("select state from tailrace.jobs where key = 'k'").fetchone() == ("blocked",)
    assert zoo.execute("select blocked from tailrace.queue_stats('q')").fetchone() == (1,)


def test_ages_are_of_what_could_run(zoo: Connection) -> None:
    """The age counts from the later of run_at and the insertion, so an import with an old run_at alarms nobody."""
    zoo.execute("update tailrace.job set created_at = now() - interval '10 minutes' where task = 'known' and run_at < now()")
    stats = "select oldest_ready_age, next_due_in, oldest_dead_age from tailrace.queue_stats('q')"
    age, due, dead = zoo.execute(stats).fetchall()[0]
    assert 600 <= age < 660
    assert 3500 < due <= 3600
    assert dead == 0
    assert zoo.execute("select oldest_ready_age, next_due_in from tailrace.queue_stats('nobody')").fetchone() == (0, None)


def test_a_hold_that_has_ended_holds_nothing(zoo: Connection) -> None:
    zoo.execute("update tailrace.queue set held_until = now() - interval '1 second'")
    assert zoo.execute("select distinct state from tailrace.jobs where queue = 'held'").fetchall() == [("ready",)]
    assert zoo.execute("select held, held_until from tailrace.queues where queue = 'held'").fetchone() == (False, None)


def test_a_job_of_the_same_transaction_is_ready(zoo: Connection) -> None:
    """f3: The states are those of the statement, not of the beginning of a long transaction."""
    with zoo.transaction():
        zoo.execute("select now()")
        zoo.execute("select tailrace.enqueue('q', 'known', '{\"new\": true}')")
        assert zoo.execute("select state from tailrace.jobs where payload ? 'new'").fetchone() == ("ready",)


def test_durations_are_seconds(zoo: Connection) -> None:
    zoo.execute("update tailrace.job set timeout = '1 minute 30.5 s' where run_at > now() + interval '90 minutes'")
    assert zoo.execute("select distinct timeout from tailrace.jobs where state = 'retrying'").fetchall() == [(90.5,)]
    age, remaining, state = zoo.execute("select age, remaining, state from tailrace.leases where token = 22").fetchall()[0]
    assert age >= 0
    assert remaining < 0
    assert state == "expired"


def test_leases_and_workers(zoo: Connection) -> None:
    zoo.execute("insert into tailrace.lease (token, worker, queue, ids) values (33, 'nobody', 'q', '{}')")
    states: dict[int, str] = dict(zoo.execute("select token, state from tailrace.leases").fetchall())
    assert states == {11: "live", 22: "expired", 33: "orphaned"}
    alive: dict[str, bool] = dict(zoo.execute("select id, alive from tailrace.workers").fetchall())
    assert alive == {"alive": True, "dead": False, "leaves": True}
    assert zoo.execute("select leases, jobs from tailrace.workers where id = 'alive'").fetchone() == (1, 1)


def test_queues_are_those_with_a_row_a_job_or_a_dead_letter(zoo: Connection) -> None:
    """BF-43: one name for a queue everywhere, the one that was given."""
    zoo.execute("insert into tailrace.job (queue, task, payload) select 'only-jobs', 't', '{}' from generate_series(1, 3)")
    zoo.execute("insert into tailrace.job (queue, task, payload, lost) values ('only-suspects', 't', '{}', 1)")
    zoo.execute("insert into tailrace.queue (name) values ('only-a-row')")
    zoo.execute(
        "insert into tailrace.dead_letter (job_id, queue, task, payload, priority, run_at, max_attempts, reason, error_type,"
        " fingerprint, total_attempts, first_failed_at, failed_at, created_at)"
        " values (99, 'only-letters', 't', '{}', 0, now(), 1, 'r', 'e', 'f', 1, now(), now(), now())"
    )
    found = [name for (name,) in zoo.execute("select queue from tailrace.queues order by queue").fetchall()]
    assert found == ["held", "only-a-row", "only-jobs", "only-letters", "only-suspects", "q"]
    assert zoo.execute("select held, workers from tailrace.queues where queue = 'held'").fetchone() == (True, 1)


def test_dead_letter_stats_count_what_is_dead(conn: Connection) -> None:
    """FQ-26, CJ-18: totals, tasks, queues, attempts, requeues, ages and the worst tasks, scoped by queue, zero when empty."""
    stats = "select dead, tasks, queues, average_attempts, requeues, oldest, newest, by_task, requeued, resolved"
    assert conn.execute(f"{stats} from tailrace.dead_letter_stats()").fetchone() == (0, 0, 0, 0, 0, None, None, [], 0, 0)
    conn.execute(SEVEN)
    row = conn.execute(f"{stats} from tailrace.dead_letter_stats()").fetchall()[0]
    assert row[:5] == (5, 2, 2, pytest.approx((1 + 2 + 3 + 4 + 7) / 5), 10)
    assert row[7:] == ([{"task": "y", "dead": 3}, {"task": "x", "dead": 2}], 1, 1)
    assert row[5] < row[6]
    assert conn.execute("select dead, queues, requeued from tailrace.dead_letter_stats('b')").fetchone() == (1, 1, 1)


def test_a_look_at_one_job_does_not_read_the_table(conn: Connection) -> None:
    conn.execute("insert into tailrace.job (queue, task, payload) select 'q', 't', '{}' from generate_series(1, 5000)")
    conn.execute("analyze tailrace.job")
    plan = "\n".join(line for (line,) in conn.execute("explain select * from tailrace.jobs where id = 42").fetchall())
    assert "job_pkey" in plan
    assert "Seq Scan on job " not in plan
