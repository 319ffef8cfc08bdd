"""Clocks that are set: the server's by five minutes, the workers' by an hour. Nothing is lost, taken over or run early."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.chaos.clocks import Clock
from tests.chaos.trial import Trial
from tests.rig.processes import StartProcess
from tests.rig.servers import Server
from tests.rig.waiting import eventually

FIVE_MINUTES, HOUR = 300, 3600


@pytest.fixture
def clock() -> Clock:
    """A clock whose file every account can read."""
    folder = Path(tempfile.mkdtemp(prefix="tailrace-clock-"))
    folder.chmod(0o755)
    return Clock(folder / "offset")


@pytest.mark.parametrize("seconds", [FIVE_MINUTES, -FIVE_MINUTES], ids=["forward", "back"])
def test_the_servers_clock_is_set(
    own_trial: Trial, private_server: Server, clock: Clock, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """f2, FQ-10, engine rule 7: no living worker loses its lease for it, and jobs of the new time are found at once."""
    trial = own_trial
    with monkeypatch.context() as patch:
        for name, value in clock.environment.items():
            patch.setenv(name, value)
        private_server.postgres.restart()
    trial.load()
    trial.begin()
    clock.set(seconds)
    now = "select extract(epoch from clock_timestamp())::float8"
    eventually(lambda: abs(float(trial.database.value(now)) - trial.ledger.now() - seconds) < 5, 10, what="the new time")
    trial.over()
    lost = trial.count("dead")
    if seconds < 0:
        clock.set(0)  # so that jobs whose time had moved away fall due
    verdict = trial.verdict(f"server's clock set {seconds:+d} s")
    assert lost == 0
    assert trial.ledger.count("start", "work") == verdict.jobs


@pytest.mark.parametrize("seconds", [HOUR, -HOUR], ids=["forward", "back"])
def test_the_workers_clocks_are_set(trial: Trial, clock: Clock, process: StartProcess, seconds: int) -> None:
    """f2, FQ-10, CJ-16: one worker's clock is an hour off and is set while jobs run; only the database's clock decides."""
    trial.env = clock.environment
    trial.load()
    delayed = trial.enqueue("quick", 5, options={"delay": 3600})
    trial.begin()
    clock.set(seconds)
    producer = {**clock.environment, "TAILRACE_DATABASE_URL": trial.database.dsn}
    words = ("enqueue", "chaos", "quick", "{}", "--priority", "10")
    running = [process("-m", "tailrace_cli", *words, *more, env=producer) for more in ((), ("--delay", "600"))]
    assert [one.wait(60) for one in running] == [0, 0], [one.output for one in running]
    eventually(lambda: trial.ledger.ended("quick") == 1, 20, what="the job that a producer of that time enqueued")
    trial.last(trial.lease * 2)
    assert trial.ledger.ended("quick") == 1, "a job ran early"
    due = "select extract(epoch from run_at - created_at)::float8 from tailrace.job where task = 'quick' and not id = any(%s)"
    assert [round(after) for (after,) in trial.database.query(due, [delayed])] == [600]
    assert trial.database.value("select count(*) from tailrace.job where created_at > clock_timestamp()") == 0, "a negative age"
    trial.over()
    assert trial.database.value("select count(*) from tailrace.job where id = any(%s)", [delayed]) == 5
    trial.database.query("select tailrace.run_now(id) from tailrace.job where task = 'quick'")
    verdict = trial.verdict(f"workers' clocks set {seconds:+d} s")
    assert trial.ledger.count("start", "work") + len(delayed) == verdict.jobs
    assert trial.ledger.count("start", "quick") == len(delayed) + len(running)
