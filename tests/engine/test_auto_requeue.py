"""Dead letters that come back by themselves: by rule only, after the wait, as often as allowed, and never for ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.maintenance import AutoRequeue, AutoRequeueConfig, run_once
from tests.engine.aged_letters import counted, letter, settings
from tests.engine.gentle_runs import ran
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase

READS = """select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int from pg_stat_xact_user_tables
  where relname = 'dead_letter'"""
RULE = {"afterSeconds": 3600, "maxTimes": 3, "errorTypes": ["timeout", "network"]}


def requeue(rows: Rows, queue: str | None = None, batch: int = 500) -> dict[str, Any]:
    """Call auto_requeue_v1."""
    return dict(rows.value("select tailrace.auto_requeue_v1(%s, %s)", [queue, batch]))


@pytest.fixture
def rule(rows: Rows) -> None:
    """Queue q has the rule."""
    settings(rows, deadLetters={"autoRequeue": RULE})


def again(rows: Rows) -> dict[str, int]:
    """Look at everything once more, as after an hour."""
    rows.conn.execute("delete from tailrace.maintenance_place")
    return counted(requeue(rows))


def test_nothing_comes_back_without_a_rule(rows: Rows) -> None:
    letter(rows, age=7200)
    settings(rows, deadLetters={"retentionSeconds": 60})
    assert requeue(rows) == {"rows": [], "seen": 0, "more": False}


@pytest.mark.usefixtures("rule")
def test_passing_errors_come_back_after_the_wait(rows: Rows) -> None:
    """The wait counts from the last failure; the kinds of error are those of the rule; other queues have no rule."""
    ripe = letter(rows, age=3601, key="k")
    for given in ({"age": 3500}, {"age": 7200, "error_type": "validation"}, {"age": 7200, "queue": "other"}):
        letter(rows, **given)
    assert counted(requeue(rows)) == {"requeued": 1}
    job, found = rows.row(ripe), rows.dead(ripe)
    assert job is not None
    assert found is not None
    assert (job["attempts"], job["requeues"], job["key"], job["token"], job["wait"] <= 0) == (0, 1, "k", None, True)
    assert (found["state"], found["requeued_count"], found["auto_requeued"]) == ("requeued", 1, 1)
    event = found["history"][-1]
    assert (event["event"], event["by"], event["times"]) == ("requeued", "auto_requeue", 1)
    assert rows.count("job") == 1
    assert rows.tally() == {"requeued": 1}


@pytest.mark.usefixtures("rule")
@pytest.mark.parametrize("reason", ["permanent", "manual"])
def test_what_was_called_final_stays(rows: Rows, reason: str) -> None:
    """NoRetry and no_retry are a handler's word that another run is of no use, whatever the error's kind."""
    letter(rows, age=7200, reason=reason)
    assert counted(requeue(rows)) == {}


@pytest.mark.usefixtures("rule")
def test_a_job_comes_back_as_often_as_it_may_and_no_more(rows: Rows) -> None:
    """R13, BF-23: no endless loop: the limit is the job's, over all its lives, and its wait begins anew at each death."""
    ident = letter(rows, age=3601)
    for n in (1, 2, 3):
        assert again(rows) == {"requeued": 1}
        token = rows.claim(ident)
        rows.fail(ident, token, "permanent", error_type="network")
        rows.conn.execute("update tailrace.dead_letter set reason = 'max_attempts'")
        assert again(rows) == {}, "it has just died"
        found = rows.dead(ident)
        assert found is not None
        assert (found["auto_requeued"], found["dead_count"]) == (n, n + 1)
        rows.conn.execute("update tailrace.dead_letter set failed_at = clock_timestamp() - interval '2 h'")
    assert again(rows) == {}
    events = [(e["event"], e.get("by")) for e in rows.dead(ident)["history"]]  # type: ignore[index]
    assert events == [("requeued", "auto_requeue"), ("failed", None)] * 3
    rows.requeue(ident)
    rows.fail(ident, rows.claim(ident), "permanent", error_type="timeout")
    rows.conn.execute("update tailrace.dead_letter set reason = 'timeout', failed_at = clock_timestamp() - interval '2 h'")
    assert again(rows) == {}, "a requeue by hand gives nothing back"


@pytest.mark.usefixtures("rule")
def test_a_key_that_a_live_job_holds_is_a_conflict(rows: Rows) -> None:
    """R14: it stays dead, the live job stays as it is; when that has ended it comes back within the hour."""
    ident = letter(rows, age=7200, key="k")
    holder = rows.job(key="k", payload={"new": True})
    free = letter(rows, age=7200, key="other")
    assert counted(requeue(rows)) == {"conflict": 1, "requeued": 1}
    assert rows.dead(ident)["state"] == "dead"  # type: ignore[index]
    assert rows.row(holder)["payload"] == {"new": True}  # type: ignore[index]
    assert rows.row(free) is not None
    rows.conn.execute("delete from tailrace.job where id = %s", [holder])
    assert counted(requeue(rows)) == {}, "not before it is met again"
    rows.conn.execute("update tailrace.maintenance_place set since = since - interval '61 min'")
    assert counted(requeue(rows)) == {"requeued": 1}


@pytest.mark.usefixtures("rule")
def test_nobody_waits_for_an_open_transaction(rows: Rows, other: Rows) -> None:
    """A producer that has just inserted the key, and an admin that holds a letter: both are passed, the rest comes back."""
    contested = letter(rows, age=7300, key="k")
    held = letter(rows, age=7200)
    free = [letter(rows, age=7100) for _ in range(20)]
    other.job(key="k")
    other.conn.execute("update tailrace.dead_letter set notes = 'mine' where job_id = %s", [held])
    assert counted(requeue(rows)) == {"skipped": 2, "requeued": 20}
    assert all(rows.row(ident) for ident in free)
    assert rows.dead(contested)["state"] == "dead"  # type: ignore[index]
    other.conn.rollback()
    assert again(rows) == {"requeued": 2}


@pytest.mark.usefixtures("rule")
def test_one_bad_row_does_not_keep_the_others(rows: Rows) -> None:
    rows.conn.execute(
        """create function refuse() returns trigger language plpgsql as
             $$ begin if new.task = 'bad' then raise exception 'no'; end if; return new; end $$;
           create trigger refuse before insert on tailrace.job for each row execute function refuse()"""
    )
    for n in range(11):
        letter(rows, age=7200 + n, task="bad" if n == 5 else "t")
    assert counted(requeue(rows)) == {"requeued": 10, "failed": 1}
    assert requeue(rows)["seen"] == 0
    assert rows.count("job") == 10


@pytest.mark.usefixtures("rule")
def test_a_run_goes_on_where_the_last_one_stopped(rows: Rows) -> None:
    """A million that do not come back are not looked at each minute; a changed rule looks at all of them again."""
    for n in range(30):
        letter(rows, age=9000 - n, error_type="validation" if n % 3 else "network")
    assert requeue(rows, batch=2) == {
        "rows": [{"queue": "q", "task": "t", "result": "requeued", "n": 2}],
        "seen": 20,
        "more": True,
    }
    seen = 0
    while (report := requeue(rows, batch=2))["seen"]:
        seen += counted(report).get("requeued", 0)
    assert (seen, rows.count("job")) == (8, 10)
    assert requeue(rows)["seen"] == 0
    settings(rows, deadLetters={"autoRequeue": {**RULE, "errorTypes": ["validation"]}})
    assert counted(requeue(rows)) == {"requeued": 20}


@pytest.mark.usefixtures("rule")
def test_a_run_reads_what_has_come_since_the_last_one(rows: Rows) -> None:
    """20,000 dead letters that stay dead are read once, by an index; the next run reads none of them."""
    letter(rows, age=7200, error_type="validation")
    rows.conn.execute(
        """insert into tailrace.dead_letter (job_id, state, queue, task, payload, priority, run_at, max_attempts, reason,
             error_type, fingerprint, total_attempts, first_failed_at, failed_at, created_at)
           select n + 1000, d.state, d.queue, d.task, d.payload, 0, d.run_at, 5, d.reason, d.error_type, 'f', 5, d.failed_at,
                  d.failed_at, d.created_at
           from tailrace.dead_letter d cross join generate_series(1, 20000) n"""
    )
    rows.conn.execute("analyze tailrace.dead_letter")
    calls = 0
    while requeue(rows)["more"]:
        calls += 1
    assert calls == 4, "5,000 are looked at in one batch"
    with rows.conn.transaction():
        before = rows.value(READS)
        assert requeue(rows)["seen"] == 0
        assert rows.value(READS) - before < 20


@pytest.mark.usefixtures("rule")
def test_a_dry_run_tells_and_changes_nothing(rows: Rows, database: RigDatabase) -> None:
    letter(rows, age=7200)
    letter(rows, age=7200, key="k")
    letter(rows, age=10)
    rows.job(key="k")
    (dry,) = run_once(Database(url=SecretStr(database.dsn)), [AutoRequeue()], dry_run=True)
    assert dict(dry.counts) == {"requeued": 1, "conflict": 1}
    assert (rows.count("job"), rows.count("maintenance_place")) == (1, 0)
    (real,) = run_once(Database(url=SecretStr(database.dsn)), [AutoRequeue()])
    assert {k: n for k, n in real.counts.items() if k != "seen"} == {"requeued": 1, "conflict": 1}


@pytest.mark.usefixtures("rule")
def test_it_rests_between_batches_and_goes_on_soon(rows: Rows, database: RigDatabase) -> None:
    for _ in range(5):
        letter(rows, age=7200)
    tick, rests = ran(database, AutoRequeue(AutoRequeueConfig(batch_rows=2, budget_seconds=6)))
    assert (tick.counts["requeued"], rests, tick.again) == (4, [3.0, 3.0], 10.0)
    tick, rests = ran(database, AutoRequeue(AutoRequeueConfig(batch_rows=2, budget_seconds=6)))
    assert (tick.counts["requeued"], rests, tick.again) == (1, [], None)


@pytest.mark.usefixtures("rule")
def test_four_at_once_bring_each_back_once(rows: Rows, database: RigDatabase) -> None:
    """BF-19: one job for each letter, counted once."""
    for n in range(200):
        letter(rows, age=7200 + n, key=f"k{n}" if n % 2 else None)
    back: list[int] = []

    def work() -> None:
        with database.connect() as conn:
            mine = Rows(conn)
            while mine.count("dead_letter", "state = 'dead'"):
                report = requeue(mine, batch=20)
                if "locked" not in report:
                    back.append(counted(report).get("requeued", 0))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (sum(back), rows.count("job"), rows.tally()["requeued"]) == (200, 200, 200)
    assert rows.count("dead_letter", "requeued_count = 1 and auto_requeued = 1") == 200


@pytest.mark.usefixtures("rule")
def test_waiting_workers_are_woken(rows: Rows, database: RigDatabase) -> None:
    letter(rows, age=7200)
    rows.conn.execute("insert into tailrace.waiter (queue, worker, until) values ('q', 'w', clock_timestamp() + interval '60 s')")
    with database.connect() as ear:
        ear.execute("select set_config('search_path', '', false)")
        channel = rows.value("select tailrace.signal_channel_v1()")
        ear.execute(f'listen "{channel}"'.encode())
        requeue(rows)
        assert [note.payload for note in ear.notifies(timeout=5, stop_after=1)] == ["q"]
