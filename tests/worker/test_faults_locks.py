"""Locks and limits of others: what an application or an administrator does to the database stops no other job."""

from __future__ import annotations

import time

import pytest
from psycopg.conninfo import make_conninfo

from tests.rig.waiting import eventually
from tests.worker.scene import PATIENCE, SLACK, Scene

LONG_LEASE = 12.0


@pytest.mark.parametrize("task", ["gated", "fails"])
def test_a_locked_row_of_a_running_job_keeps_only_itself(scene: Scene, task: str) -> None:
    """FQ-21, BF-16: an application holds the row of one job; the others end, and this one when the lock is gone."""
    held, *others = scene.fill(task, 5, gate="go")
    more = scene.fill("quick", 40, priority=-5)
    worker = scene.worker("--slots", "5", lease=LONG_LEASE)
    eventually(lambda: len(scene.lines("start")) == 5, what="five running jobs")
    with scene.database.connect(autocommit=False) as conn:
        conn.execute("select from tailrace.job where id = %s for update", [held])
        scene.open("go")
        ended = "select count(*) from tailrace.job where id = any(%s) and attempts = 1 and token is not null"
        eventually(lambda: scene.database.value(ended, [others]) == 0, PATIENCE, what="the end of the other runs")
        eventually(lambda: {line.job for line in scene.lines("start")} >= set(more), PATIENCE, what="jobs behind them")
        assert scene.row(held) == (True, 1, 0, 0)
        conn.rollback()
    eventually(lambda: scene.row(held) != (True, 1, 0, 0), PATIENCE, what="the end of the locked job")
    assert worker.metric("tailrace_fenced_writes_total") == 0
    assert [line.attempt for line in scene.lines("start", held)][:1] == [1]
    scene.wait_gone()  # what was written one by one is counted by its task like everything else
    counted = {"quick": len(more), "gated": 5 if task == "gated" else 0}
    eventually(
        lambda: {name: worker.metric("tailrace_jobs_completed_total", task=name) for name in counted} == counted, what="counters"
    )


def test_locked_waiting_jobs_keep_only_themselves(scene: Scene) -> None:
    """BF-16: an application holds hundreds of waiting rows that a rescan finds again and again: new jobs go on at once."""
    scene.database.query("select tailrace.hold_queue('faults')")
    held = scene.fill("quick", 400)
    worker = scene.worker("--slots", "1", lease=LONG_LEASE)
    with scene.database.connect(autocommit=False) as conn:
        conn.execute("select from tailrace.job where id = any(%s) for update", [held])
        scene.database.query("select tailrace.resume_queue('faults')")
        began = time.monotonic()
        for _ in range(30):
            job = scene.enqueue("quick")
            scene.wait_line("start", job)
        assert time.monotonic() - began < 40
        conn.rollback()
    scene.wait_gone()
    assert worker.metric("tailrace_fenced_writes_total") == 0
    assert len(scene.lines("start")) == len(held) + 30


def test_a_locked_dead_letter_keeps_only_its_job(scene: Scene) -> None:
    """BF-16, FQ-21: somebody writes a note to the dead letter of a job that was requeued and has just succeeded."""
    job = scene.enqueue("fails", gate="fail", options={"max_attempts": 1})
    scene.open("fail")
    worker = scene.worker(lease=LONG_LEASE)
    eventually(lambda: scene.row(job) is None, what="the dead letter")
    scene.database.query("update tailrace.dead_letter set task = 'gated', payload = '{\"gate\": \"go\"}'")
    scene.database.query("select tailrace.requeue_dead_letter(%s)", [job])
    scene.wait_line("start", job, 2)
    others = scene.fill("gated", 3, gate="go")
    for other in others:
        scene.wait_line("start", other)
    with scene.database.connect(autocommit=False) as conn:
        conn.execute("update tailrace.dead_letter set notes = 'looking at it' where job_id = %s", [job])
        scene.open("go")
        eventually(lambda: all(scene.row(other) is None for other in others), PATIENCE, what="the others")
        assert scene.row(job, "token is not null") == (True,)
        conn.commit()
    scene.wait_gone()
    assert scene.database.query("select state, notes from tailrace.dead_letter") == [("resolved", "looking at it")]
    assert len(scene.lines("start", job)) == 2
    worker.terminate()
    assert worker.wait(SLACK) == 0


OUR_SESSIONS = """select pid from pg_stat_activity where datname = current_database()
                  and application_name in ('tailrace work', 'tailrace heartbeat') order by pid"""


def test_limits_of_the_database_do_not_touch_our_sessions(scene: Scene) -> None:
    """d2, d4, FQ-21: short timeouts that its owner has set, also for idle sessions, end no statement and no session of ours."""
    limits = {
        "statement_timeout": "50ms",
        "lock_timeout": "50ms",
        "idle_in_transaction_session_timeout": "500ms",
        "idle_session_timeout": "700ms",
        "default_transaction_isolation": "serializable",
        "default_transaction_read_only": "on",
        "default_transaction_deferrable": "on",
    }
    with scene.database.connect() as conn:
        for name, value in limits.items():
            conn.execute(f"alter database \"{scene.database.name}\" set {name} = '{value}'")
    env = {"TAILRACE_POLL_SECONDS": "3600"}
    ours = {name: "0" for name in limits if name.endswith("timeout")} | {"default_transaction_read_only": "off"}
    with scene.database.connect(options=" ".join(f"-c {name}={value}" for name, value in ours.items())) as conn:
        worker = scene.worker("--slots", "4", lease=LONG_LEASE, env=env)
        sessions = conn.execute(OUR_SESSIONS).fetchall()
        fill = """insert into tailrace.job (queue, task, payload)
                  select 'faults', 'quick', '{}' from generate_series(1, 500) returning id"""
        jobs = [ident for (ident,) in conn.execute(fill).fetchall()]
        conn.execute("select pg_notify(tailrace.signal_channel_v1(), 'faults')")
        eventually(
            lambda: conn.execute("select count(*) from tailrace.job").fetchone() == (0,), PATIENCE, what="the end of all jobs"
        )
        began = conn.execute("select clock_timestamp()").fetchone()
        eventually(
            lambda: conn.execute("select clock_timestamp() > %s + interval '2 s'", began).fetchone() == (True,), what="idle time"
        )
        job = conn.execute(fill.replace("500", "1")).fetchone()
        conn.execute("select pg_notify(tailrace.signal_channel_v1(), 'faults')")
        assert job is not None
        scene.wait_line("start", job[0])
        assert conn.execute(OUR_SESSIONS).fetchall() == sessions
    assert not [e for e in worker.events() if e.get("event") in ("claim_failed", "beat_failed", "database_away", "listener_back")]
    started = [(line.job, line.attempt) for line in scene.lines("start")]
    assert sorted(started) == [(ident, 1) for ident in sorted([*jobs, job[0]])]


def test_too_many_clients_means_patience(scene: Scene) -> None:
    """CJ-06, d4: a server without room is asked again; nothing is lost, and a worker that runs goes on with what it has."""
    role = scene.database.name
    scene.database.query(f"create role \"{role}\" login password 'x' in role tailrace_worker connection limit 2")
    dsn = make_conninfo(scene.database.dsn, user=role, password="x")
    try:
        job = scene.enqueue("quick")
        waiting = scene.worker(dsn=dsn, ready=False)
        refused = eventually(lambda: [e for e in waiting.events() if "too many" in e["message"]], what="the refusal")
        assert refused[0]["event"] in ("database_away", "beat_failed")
        assert waiting.get("/readyz")[0] == 503
        assert waiting.get("/livez")[0] == 200
        scene.database.query(f'alter role "{role}" connection limit 4')
        waiting.wait_ready(PATIENCE)
        scene.wait_line("start", job)
        scene.database.query(f'alter role "{role}" connection limit 0')
        scene.database.terminate_backends("tailrace%")
        later = scene.enqueue("quick")
        eventually(lambda: waiting.get("/readyz")[0] == 503, what="no database")
        scene.database.query(f'alter role "{role}" connection limit 10')
        scene.wait_line("start", later)
        scene.wait_gone()
        eventually(
            lambda: waiting.metric("tailrace_maintenance_runs_total", routine="reaper", result="ok"), PATIENCE, what="the reaper"
        )
        assert "permission denied" not in waiting.output  # the worker's role is enough for all that it does
        waiting.terminate()
        assert waiting.wait(SLACK) == 0
    finally:
        scene.database.terminate_backends("tailrace%")
        scene.database.query(f'drop role "{role}"')
