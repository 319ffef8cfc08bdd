"""Many more workers than the machine has processors, all claiming from one queue."""

from __future__ import annotations

from tests.chaos.trial import SLOTS, Trial
from tests.rig.waiting import eventually

JOBS = 5000


def test_a_crowd_on_a_busy_machine_starts_each_job_once(trial: Trial) -> None:
    """a4, GW-01: tiny jobs, so that the processes themselves keep the machine busy."""
    crowd = [trial.worker("--queue", f"chaos={SLOTS}") for _ in range(trial.length.crowd)]
    for worker in crowd:
        worker.wait_ready(60)
    for _ in range(trial.length.rounds):
        jobs = trial.enqueue("quick", JOBS)
        eventually(lambda: trial.database.value("select count(*) from tailrace.job") == 0, 90, what="the end of all jobs")
        runs = [run for run in trial.ledger.runs() if run.job >= jobs[0]]
        assert sorted(run.job for run in runs) == jobs
        assert {run.attempt for run in runs} == {1}
    assert trial.count("succeeded") == JOBS * trial.length.rounds
    assert len({run.pid for run in trial.ledger.runs()}) > 1
    assert sum(worker.metric("tailrace_fenced_writes_total") for worker in crowd) == 0
