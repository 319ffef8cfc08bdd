"""A database that is away, that loses answers, and whose rows an application locks."""

from __future__ import annotations

from typing import Any

from tests.chaos.lossy import EVERY, LossyProxy
from tests.chaos.trial import SLOTS, WORKERS, Trial
from tests.rig.servers import Connection, Server
from tests.rig.waiting import eventually

RUNNING = 300
STEADY = 0.8
"""The part of the throughput that is left while an application holds locks: its rows cost a wait or two."""


def test_answers_to_commits_are_lost(trial: Trial) -> None:
    """FQ-21, GW-01, d2: one pipeline in fifty is committed and nobody hears of it; every job runs once all the same."""
    proxy = LossyProxy(trial.database.dsn)
    try:
        trial.dsn = proxy.dsn
        trial.load()
        trial.begin()
        proxy.losing = True
        trial.last(trial.length.losing)
        eventually(lambda: proxy.lost_answers >= 2, 60, what="lost answers")
        proxy.losing = False
        trial.over()
        note = f"{proxy.lost_answers} lost answers"
        verdict = trial.verdict(f"COMMIT's answer lost in 1 of {EVERY} pipelines", note=note)
        assert trial.count("succeeded") == verdict.jobs
        assert trial.ledger.count("start", "work") == verdict.jobs
    finally:
        proxy.close()


def test_the_server_is_away_while_many_jobs_run(own_trial: Trial, private_server: Server) -> None:
    """d2, CJ-06, FQ-21, engine rule 7: longer than a lease; nobody loses a job for it, and none runs twice on its return."""
    trial = own_trial
    trial.lease, trial.reaper = trial.length.lease, trial.length.reaper
    each = RUNNING // WORKERS
    trial.arguments = ("--queue", f"chaos={SLOTS}", "--queue", f"held={each}")
    early = trial.enqueue("gated", each, queue="held", gate="early")
    trial.enqueue("gated", RUNNING - len(early), queue="held", gate="late")
    trial.load()
    eventually(lambda: trial.ledger.count("start", "gated") == RUNNING, 30, what=f"{RUNNING} running jobs")
    trial.begin()
    private_server.postgres.stop("fast")
    trial.open("early")
    trial.last(trial.length.outage)
    assert trial.ledger.count("end", "gated") == len(early)
    private_server.postgres.start()
    trial.over()
    trial.open("late")
    trial.verdict(f"server stopped with {RUNNING} jobs running", note=f"{len(early)} ended while it was away")
    assert trial.ledger.count("start", "gated") == RUNNING
    assert trial.ledger.count("start", "work") == len({run.job for run in trial.ledger.runs() if run.task == "work"})


LOCKED = {
    "jobs": "select id, token from tailrace.job for update skip locked",
    "dead letters": "select from tailrace.dead_letter for update skip locked",
    "queues": "select from tailrace.queue for update skip locked",
}
CHANGES = (
    "select tailrace.apply_queue('just-made', '{}', 'cli')",
    "select tailrace.hold_queue('other', 1)",
    """select e.id from tailrace.enqueue('chaos', 'quick', '{}', '{"key": "k"}') e""",
)
"""Words of administration and an enqueue that leave something in an open transaction."""


def locked(conn: Connection) -> dict[str, int]:
    """Take every lock on rows that can be had, change what can be changed, and return how many rows are locked."""
    found = {what: conn.execute(statement).fetchall() for what, statement in LOCKED.items()}
    for statement in CHANGES:
        conn.execute(statement)
    running = [ident for ident, token in found["jobs"] if token is not None]
    conn.execute("select tailrace.cancel(i) from unnest(%s::bigint[]) i", [running])
    return {what: len(rows) for what, rows in found.items()}


def test_an_application_holds_every_lock_it_can_get(trial: Trial) -> None:
    """BF-16, FQ-21, engine rule 8: claim, finish, heartbeat and reaper go on; only the rows themselves wait."""
    dead = trial.enqueue("quick", 20, queue="other", options={"max_attempts": 1})
    trial.database.query("update tailrace.job set token = 7, attempts = 1 where id = any(%s)", [dead])
    outcomes = "select jsonb_agg(jsonb_build_object('id', i, 'token', 7, 'kind', 'permanent')) from unnest(%s::bigint[]) i"
    trial.database.query(f"select tailrace.settle_v1('test', ({outcomes}))", [dead])
    trial.load()
    eventually(lambda: life(trial), 40, what="a first run of all routines")
    with trial.database.connect(autocommit=False, application_name="application") as conn:
        held = locked(conn)
        assert all(held.values()), held
        trial.feeder.backlog += held["jobs"]  # those wait for the application
        # The statistics want a row for this queue, which the application is making.
        unserved = trial.database.value("select id from tailrace.enqueue('just-made', 'quick', '{}')")
        since, before = trial.begin(), life(trial)
        trial.last(trial.length.locking)

        def all_went_on() -> bool:
            after = life(trial)
            assert all(old < new for old, new in zip(before, after, strict=True)), (before, after)
            return True

        eventually(all_went_on, 20, what="all that must go on")
        meanwhile = len(trial.ledger.ends("work", since)) / (trial.ledger.now() - since)
        conn.rollback()
    trial.over()
    trial.database.query("select tailrace.cancel(%s)", [unserved])
    note = f"{held['jobs']} jobs, {held['dead letters']} dead letters, {held['queues']} queues; {meanwhile:.0f} jobs/s meanwhile"
    trial.verdict("an application's transaction holds every row lock it can get", note=note)
    assert meanwhile >= STEADY * trial.before


def life(trial: Trial) -> tuple[Any, ...]:
    """Return what must go on: the earliest lease of the workers, and the last success of reaper and statistics; () before."""
    signs = trial.database.query(
        """select (select min(until) from tailrace.worker),
                  (select last_success from tailrace.maintenance where routine = 'reaper'),
                  (select last_success from tailrace.maintenance where routine = 'statistics')"""
    )[0]
    return () if None in signs else signs
