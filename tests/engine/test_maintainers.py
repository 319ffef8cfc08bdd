"""Several maintainers as real processes: five at once, one killed, one frozen, a server that goes away."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tailrace.db import Blocks
from tests.engine.aged_letters import DAY, letter, settings
from tests.engine.rows import Rows
from tests.rig.processes import RealProcess, StartProcess
from tests.rig.servers import RigDatabase, Server
from tests.rig.waiting import eventually

RULE = {"afterSeconds": 3600, "maxTimes": 1, "errorTypes": ["network"]}
EXHAUSTED = """
insert into tailrace.job (queue, task, payload, attempts, key)
select 'q', 'nobody', '{}', 5, case when n %% 10 = 0 then 'k' || n end from generate_series(1, %s) n
"""
SLOW = """
create function slow() returns trigger language plpgsql as
  $$ begin if new.task = 'slow' then perform pg_sleep(%s); end if; return new; end $$;
create trigger slow before insert on tailrace.dead_letter for each row execute function slow()
"""
BUSY = "select count(*) from pg_stat_activity where application_name like '%maintain%' and state <> 'idle'"
SLEEPS = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"

StartMaintainer = Callable[..., RealProcess]


@pytest.fixture
def maintainer(database: RigDatabase, process: StartProcess) -> StartMaintainer:
    """Start `tailrace maintain` with some words; each run is a line of JSON."""

    def start(*words: str, dsn: str | None = None) -> RealProcess:
        env = {"TAILRACE_DATABASE_URL": dsn or database.dsn, "TAILRACE_REAPER_SECONDS": "1"}
        return process("-m", "tailrace_cli", "maintain", *words, "-o", "jsonl", env=env)

    return start


def runs(started: RealProcess) -> list[dict[str, Any]]:
    """What a maintainer has told of its runs."""
    return [json.loads(line) for line in started.output.splitlines() if line.startswith("{")]


def told(found: list[dict[str, Any]], routine: str, what: str) -> int:
    """The sum of one count."""
    return sum(run["counts"].get(what, 0) for run in found if run["routine"] == routine)


@pytest.mark.timeout(150)
def test_five_at_once_do_the_work_of_one(rows: Rows, maintainer: StartMaintainer) -> None:
    """BF-10, BF-19, BF-45: each exhausted job, old letter and returning letter is counted by exactly one of them."""
    settings(rows, deadLetters={"autoRequeue": RULE, "retentionSeconds": int(DAY)})
    rows.conn.execute(EXHAUSTED, [3000])
    old = [letter(rows, age=2 * DAY, error_type="validation") for _ in range(300)]
    back = [letter(rows, age=7200) for _ in range(300)]
    started = [maintainer() for _ in range(5)]

    def done() -> bool:
        states: dict[str, int] = dict(rows.conn.execute("select state, count(*) from tailrace.dead_letter group by 1").fetchall())
        return states == {"dead": 3000, "requeued": 300}

    eventually(done, timeout=90, what="the work")
    eventually(lambda: all(len({run["routine"] for run in runs(each)}) == 7 for each in started), timeout=60, what="runs of all")
    assert rows.value("select count(*) from tailrace.job where id = any(%s)", [back]) == 300
    assert rows.value("select count(*) from tailrace.dead_letter where job_id = any(%s)", [old]) == 0
    for each in started:
        each.terminate()
    assert [each.wait(20) for each in started] == [0] * 5
    found = [run for each in started for run in runs(each)]
    assert not [run for run in found if run["result"] == "error"], found
    sums = {what: told(found, *what) for what in (("sweep", "dead"), ("retention", "dead"), ("auto_requeue", "requeued"))}
    assert sums == {("sweep", "dead"): 3000, ("retention", "dead"): 300, ("auto_requeue", "requeued"): 300}


@pytest.mark.timeout(120)
def test_one_that_is_killed_inside_a_batch_leaves_nothing_half_done(
    rows: Rows, database: RigDatabase, maintainer: StartMaintainer
) -> None:
    """FQ-17, BF-03: its batch counts as a whole or not at all; the next maintainer does the rest."""
    rows.conn.execute((SLOW % 2).encode())
    rows.conn.execute(EXHAUSTED, [500])
    rows.job(task="slow", attempts=5)
    victim = maintainer("sweep", "--full")
    eventually(lambda: rows.value(SLEEPS), timeout=20, what="the batch being at work")
    victim.kill9()
    eventually(lambda: not database.backends("tailrace maintain"), timeout=20, what="the end of its session")
    assert maintainer("sweep", "--full").wait(60) == 0
    assert (rows.count("job"), rows.count("dead_letter"), rows.tally()) == (0, 501, {"dead": 501})


@pytest.mark.timeout(120)
def test_one_that_is_frozen_holds_up_nobody(rows: Rows, database: RigDatabase, maintainer: StartMaintainer) -> None:
    """A stopped process has no transaction open between two statements: others work on, and so do applications."""
    rows.conn.execute((SLOW % 3).encode())
    rows.job(task="slow", attempts=5)
    rows.conn.execute(EXHAUSTED, [2000])
    frozen = maintainer("sweep", "--full")
    eventually(lambda: rows.value(SLEEPS), timeout=20, what="the batch being at work")
    frozen.stop()
    try:
        eventually(
            lambda: rows.value(BUSY) == 0,
            timeout=20,
            what="the end of the statement that was running",
        )
        assert maintainer("sweep", "--full").wait(60) == 0
        assert (rows.count("job"), rows.count("dead_letter")) == (0, 2001)
        with database.connect() as app:
            app.execute("set lock_timeout = '100ms'")
            app.execute("update tailrace.dead_letter set notes = 'seen'")
    finally:
        frozen.cont()
        frozen.wait(30)
    assert rows.tally() == {"dead": 2001}


@pytest.mark.timeout(120)
def test_it_goes_on_after_the_server_was_away(private_server: Server, maintainer: StartMaintainer) -> None:
    """CJ-06, BF-34: the process stays, says that it failed, and works when the server is back."""
    database = private_server.migrated()
    started = maintainer("reaper", "retention", dsn=database.dsn)
    eventually(lambda: {run["routine"] for run in runs(started)} >= {"reaper", "retention"}, timeout=30, what="first runs")
    private_server.postgres.stop("immediate")
    eventually(lambda: [run for run in runs(started) if run["result"] == "error"], timeout=30, what="a failed run")
    private_server.postgres.start()
    before = len(runs(started))
    eventually(lambda: [run for run in runs(started)[before:] if run["result"] == "ok"], timeout=60, what="a run after it")
    assert started.running
    started.terminate()
    assert started.wait(10) == 0


def _claim(conn: psycopg.Connection[Any], text: str, token: int) -> int:
    params = {"queue": "q", "worker": "w", "tasks": ["t"], "context_tasks": [], "limits": 0, "n": 10, "token": token}
    starts = {"priorities": [0], "run_ats": [float("-inf")], "ids": [0]}
    return len(conn.execute(text.encode(), {**params, **starts}).fetchall())


@pytest.mark.timeout(120)
def test_claims_never_wait_for_a_sweep(rows: Rows, database: RigDatabase, maintainer: StartMaintainer) -> None:
    """While rows of the same queue are moved, a claim with a lock timeout of a millisecond is never refused, and stays quick."""
    rows.worker()
    rows.conn.execute(
        "insert into tailrace.job (queue, task, payload, attempts, run_at)"
        " select 'q', 'nobody', '{}', 5, clock_timestamp() + interval '1 h' from generate_series(1, 30000)"
    )
    rows.conn.execute("analyze tailrace.job")
    sweeping = maintainer("sweep", "--full")
    text = Blocks("tailrace")["claim.claim_batch"]
    took: list[float] = []
    eventually(lambda: rows.count("dead_letter") > 0, timeout=30, what="the sweep at work")
    with database.connect() as conn:
        conn.execute("set lock_timeout = '1ms'")
        token = 1
        while sweeping.running and token < 500:
            rows.job()
            began = time.monotonic()
            assert _claim(conn, text, token) == 1
            took.append(time.monotonic() - began)
            token += 1
    assert sweeping.wait(60) == 0
    assert len(took) >= 10
    assert sorted(took)[int(0.9 * len(took))] < 0.25, took


def test_a_stop_is_honoured_inside_one_run(rows: Rows, maintainer: StartMaintainer) -> None:
    """BF-42: SIGTERM during `--once` ends the statement at work; what it had done before stays, and the status says so."""
    rows.conn.execute((SLOW % 60).encode())
    rows.job(task="slow", attempts=5)
    started = maintainer("sweep", "--once")
    eventually(lambda: rows.value(SLEEPS), timeout=20, what="the batch being at work")
    began = time.monotonic()
    started.terminate()
    assert started.wait(10) == 130
    assert time.monotonic() - began < 8
    assert (rows.count("job"), rows.count("dead_letter")) == (1, 0)
