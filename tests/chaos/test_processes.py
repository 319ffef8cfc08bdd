"""Processes that stand still, die, do not listen and are told to go: the others work on, and every job ends once."""

from __future__ import annotations

from functools import partial

from tests.chaos.frozen_claim import JOBS
from tests.chaos.trial import Trial
from tests.rig.processes import StartProcess
from tests.rig.waiting import eventually

LATER = {"strategy": "fixed", "base": 600, "cap": 600, "jitter": 0}
POISONED = 1000
DRAINS = 12
FREE = 10
"""Interruptions that cost no attempt."""


def test_a_worker_that_stands_still_with_buffered_jobs(trial: Trial) -> None:
    """FQ-03, CJ-19, BF-07: longer than its lease; when it goes on it starts nothing of what it had, and writes nothing."""
    trial.lease, trial.reaper = trial.length.lease, trial.length.reaper
    trial.load()
    quick = trial.enqueue("quick", 200)
    [job] = trial.enqueue("freeze", options={"backoff": LATER})  # behind what was buffered: lost jobs run one by one
    quick += trial.enqueue("quick", 200)
    trial.begin()
    started = "select pid from public.ledger where task = 'freeze' and what = 'start'"
    frozen = trial.crew.of(eventually(lambda: trial.ledger.database.query(started), 30, what="the stop")[0][0])
    trial.last(trial.length.frozen)
    taken = (
        "select count(*) = 0 from tailrace.lease l join tailrace.worker w on w.id = l.worker where w.until < clock_timestamp()"
    )
    again = trial.lease + 3 * trial.reaper + 10
    eventually(lambda: trial.database.value(taken), again, what="the take-over")
    eventually(lambda: trial.ledger.ended("quick") == len(quick), 30, what="the jobs that it had buffered")
    trial.database.query("select tailrace.run_now(%s)", [job])
    eventually(lambda: len(trial.ledger.database.query(started)) == 2, 20, what="the second run of the one that it was running")
    went_on = trial.ledger.now()
    frozen.cont()
    eventually(lambda: frozen.metric("tailrace_fenced_writes_total") >= 1, 20, what="a refused write")
    eventually(lambda: trial.ledger.count("end", "freeze") == 1, 20, what="the end of what it was running")
    row = "select attempts, token is not null from tailrace.job where id = %s"
    assert trial.database.query(row, [job]) == [(2, True)], "it ended a job that runs elsewhere"
    trial.open("reported")  # until then that job takes one of the ten slots
    trial.over(went_on)
    verdict = trial.verdict("worker stopped (SIGSTOP) with buffered jobs, then SIGCONT", excused=[frozen.pid])
    batch = [run for run in trial.ledger.runs() if run.task in ("quick", "freeze")]
    assert not [run for run in batch if run.pid == frozen.pid and run.began > went_on]
    # What had ended there and was not reported yet ran again, as what ran; nothing else did.
    again_run = [run for run in batch if sum(other.job == run.job for other in batch) > 1 and run.pid != frozen.pid]
    assert all(any(o.pid == frozen.pid and o.job == run.job for o in batch) for run in again_run)
    assert trial.ledger.count("start", "freeze") == 2
    assert trial.count("succeeded") == verdict.jobs
    assert job not in quick


def test_a_poison_job_among_a_thousand(trial: Trial) -> None:
    """CJ-05, GW-04, FQ-27: it ends each process that runs it; exactly one dead letter, and its neighbours end."""
    trial.load()
    trial.begin()
    harmless = trial.enqueue("quick", POISONED // 2)
    [job] = trial.enqueue("poison", options={"max_attempts": 3})
    harmless += trial.enqueue("quick", POISONED - POISONED // 2 - 1)
    letters = "select job_id, reason, total_attempts from tailrace.dead_letter"
    eventually(lambda: trial.database.query(letters), 90, what="the dead letter")
    trial.over()
    trial.verdict(f"a poison job among {POISONED:,}", note="1 dead letter after 3 crashes")
    assert trial.database.query(letters) == [(job, "lease_expired", 3)]
    assert trial.ledger.count("start", "poison") == 3


def test_a_client_frozen_in_its_claim(trial: Trial, process: StartProcess) -> None:
    """FQ-18, d4: it holds rows that nobody sees; the reaper ends its session, and the rows are claimed."""
    trial.load()
    trial.begin()
    client = process("-m", "tests.chaos.frozen_claim", trial.database.dsn)
    eventually(lambda: "claimed" in client.output, 30, what="the claim")
    assert f"claimed {JOBS}" in client.output
    old = """select count(*) from pg_stat_activity where application_name = 'tailrace work' and state = 'idle in transaction'
             and xact_start < clock_timestamp() - %s * interval '1 s'"""
    eventually(lambda: trial.database.value(old, [trial.lease / 2]), 30, what="an old transaction")
    eventually(lambda: not trial.database.value(old, [trial.lease / 2]), 30, what="the end of its session")
    trial.over()
    trial.verdict("client stopped inside its claim's transaction", note=f"{JOBS} locked rows were freed by the reaper")
    client.cont()
    assert client.wait(20) != 0


def test_a_handler_that_ignores_its_cancel_in_a_thread(trial: Trial) -> None:
    """FQ-12, pitfall 2.3: the worker drains and exits; its replacement works, and the outcome was written by the last act."""
    trial.load()
    trial.begin()
    [job] = trial.enqueue("stubborn", gate="never", options={"timeout": 1, "max_attempts": 1})
    eventually(lambda: trial.crew.deaths, 60, what="the end of its process")
    trial.over()
    trial.verdict("a thread that ignores its cancel", note="the worker exits 10 s after the timeout and is replaced")
    assert trial.database.query("select job_id, reason from tailrace.dead_letter") == [(job, "timeout")]


def test_a_blocked_event_loop(trial: Trial) -> None:
    """FQ-12, BF-07, pitfall 2.2: another thread of the process writes what is left and ends it; nothing runs at two places."""
    trial.load()
    trial.begin()
    [job] = trial.enqueue("blocking", gate="never", options={"timeout": 1, "max_attempts": 1})
    eventually(lambda: trial.crew.deaths, 60, what="the end of its process")
    trial.over()
    trial.verdict("a handler that blocks the event loop", note="the worker exits 10 s after the timeout and is replaced")
    assert trial.database.query("select job_id, reason from tailrace.dead_letter") == [(job, "timeout")]


def runs(trial: Trial, n: int) -> bool:
    """Whether the n-th run of the gated job has begun."""
    return trial.ledger.count("start", "gated") == n


def test_twelve_drains_of_one_long_job(trial: Trial) -> None:
    """BF-35, engine rule 3: ten interruptions cost nothing, the others an attempt each; then it ends."""
    trial.load()
    [job] = trial.enqueue("gated", queue="held", gate="go", options={"max_attempts": 5})
    trial.begin()
    row = "select attempts, interrupted from tailrace.job where id = %s"
    for n in range(1, DRAINS + 1):
        worker = trial.worker("--queue", "held=1", "--drain-timeout-seconds", "0.2")
        eventually(partial(runs, trial, n), 40, what=f"run {n}")
        worker.terminate()
        assert worker.wait(20) == 0
        trial.crew.deaths[worker.pid] = trial.ledger.now()
        assert trial.database.query(row, [job]) == [(max(0, n - FREE), min(n, FREE))]
        trial.database.query("select tailrace.run_now(%s)", [job])
    trial.open("go")
    trial.worker("--queue", "held=1").wait_ready()
    eventually(lambda: trial.ledger.count("end", "gated") == 1, 40, what="its end")
    trial.over()
    trial.verdict(f"{DRAINS} drains of one long job", note=f"{FREE} were free, {DRAINS - FREE} cost an attempt each")
    attempts = "select attempt from public.ledger where task = 'gated' and what = 'start' order by n"
    assert [a for (a,) in trial.ledger.database.query(attempts)] == [1] * (FREE + 1) + [2, 3]
