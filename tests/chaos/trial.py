"""One fault under load: the throughput before it, how soon it is back after it, and what became of every job.

A test makes the fault between `begin` and `over`; `verdict` then waits for the end of all jobs and adds up.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from tests.chaos.crew import SECONDS_A_JOB, Crew, Feeder
from tests.chaos.ledger import Ledger, overlaps
from tests.chaos.length import Length
from tests.rig.processes import StartWorker, WorkerProcess
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

RECORDS = "TAILRACE_CHAOS_RECORDS"
APP = "tests.chaos.apps:app"
AT_ONCE = {"strategy": "fixed", "base": 0.05, "cap": 0.05, "jitter": 0}
WINDOW_SECONDS = 2.0
STEP_SECONDS = 0.25
WORKERS, SLOTS = 2, 5


@dataclass(frozen=True)
class Verdict:
    """What a trial found.

    Attributes:
        case: The fault, in words.
        fault_seconds: How long it lasted.
        jobs: Jobs that were committed.
        lost: Those of them that neither ended nor are dead nor live.
        overlapping: Runs of one job at the same time whose first one still had its lease.
        after_loss: The same where the first one had lost its lease before.
        before: Jobs a second before the fault.
        back_seconds: From the fault's end until the throughput was back.
        note: What else was seen.
    """

    case: str
    fault_seconds: float
    jobs: int
    lost: int
    overlapping: int
    after_loss: int
    before: float
    back_seconds: float
    note: str


class Trial:
    """A database under load."""

    def __init__(self, database: RigDatabase, start: StartWorker, ledger: Ledger, home: Path, length: Length) -> None:
        """Prepare; nothing runs yet.

        Args:
            database: Where the jobs are.
            start: Starts worker processes.
            ledger: What handlers write to.
            home: A folder for the gates.
            length: How long faults last.
        """
        self.database, self.ledger, self.home, self.length = database, ledger, home, length
        self._start = start
        home.mkdir(exist_ok=True)
        self.feeder = Feeder(database)
        self.more: list[int] = []
        self.lease, self.reaper = length.quick_lease, length.quick_reaper
        self.crew = Crew(self.worker, WORKERS)
        self.arguments: tuple[str, ...] = ("--queue", f"chaos={SLOTS}")
        self.env: Mapping[str, str] = {}
        self.dsn = database.dsn
        self.before = self._began = self._ended = self.back_seconds = 0.0

    # ---- processes and jobs ------------------------------------------------------------------------------------------
    def worker(self, *arguments: str) -> WorkerProcess:
        """Start one worker, with the trial's arguments unless others are given."""
        env = {
            "CHAOS_HOME": str(self.home),
            "CHAOS_LEDGER": self.ledger.database.dsn,
            "TAILRACE_REAPER_SECONDS": f"{self.reaper:g}",
            **self.env,
        }
        chosen = arguments or self.arguments
        return self._start(APP, "--lease-seconds", f"{self.lease:g}", *chosen, env=env, dsn=self.dsn)

    def enqueue(
        self, task: str, n: int = 1, *, queue: str = "chaos", options: Mapping[str, Any] | None = None, **payload: Any
    ) -> list[int]:
        """Enqueue equal jobs before all others, in one transaction, and return their ids."""
        # The queue depends on g, so that the function is called for each.
        statement = """select e.id from generate_series(1, %s) g,
                         lateral tailrace.enqueue(case when g > 0 then %s end, %s, %s, %s) e"""
        chosen = {"backoff": AT_ONCE, "priority": 10, **(options or {})}
        ids = [int(i) for (i,) in self.database.query(statement, [n, queue, task, Jsonb(payload), Jsonb(chosen)])]
        self.more += ids
        return ids

    def open(self, gate: str) -> None:
        """Let the handlers behind a gate go on."""
        (self.home / gate).touch()

    # ---- a fault -----------------------------------------------------------------------------------------------------
    def load(self) -> None:
        """Start the crew and the producer, and measure the throughput before the fault."""
        self.crew.start()
        self.feeder.start()
        steady = self.ledger.now() + 1.0
        eventually(lambda: self.ledger.now() >= steady + self.length.before, 30, what="the throughput before")
        self.before = len(self.ledger.ends("work", steady)) / (self.ledger.now() - steady)
        least = self.length.least * WORKERS * SLOTS / SECONDS_A_JOB
        assert self.before >= least, (
            f"the load does not run: {self.before:.0f} jobs/s, {least:.0f} are needed to measure anything"
        )

    def begin(self) -> float:
        """Note that the fault begins; returns the time."""
        self._began = self.ledger.now()
        return self._began

    def last(self, seconds: float) -> None:
        """Let the fault last for so long since its begin."""
        eventually(lambda: self.ledger.now() >= self._began + seconds, seconds + 30, what="the length of the fault")

    def over(self, at: float | None = None) -> None:
        """Note that the fault is over, and wait until the throughput is back.

        Args:
            at: When it ended; None for now.

        Raises:
            AssertionError: It was not back in time.
        """
        self._ended = self.ledger.now() if at is None else at
        found = eventually(
            lambda: self.windows(self._ended),
            self.length.back_seconds + WINDOW_SECONDS + 10,
            what=f"{self.length.back:.0%} of {self.before:.0f} jobs/s",
        )
        self.back_seconds = found[0]
        assert self.back_seconds <= self.length.back_seconds, f"the throughput was back after {self.back_seconds:.1f} s only"

    def windows(self, since: float) -> list[float]:
        """Return the beginnings, in seconds after a moment, of stretches of two seconds with the throughput of before."""
        ends, now = self.ledger.ends("work", since), self.ledger.now()
        needed, found, at = self.length.back * self.before * WINDOW_SECONDS, [], 0.0
        while since + at + WINDOW_SECONDS <= now:
            first, last = (bisect_left(ends, since + at + extra) for extra in (0.0, WINDOW_SECONDS))
            if last - first >= needed:
                found.append(at)
            at += STEP_SECONDS
        return found

    # ---- the sum -----------------------------------------------------------------------------------------------------
    def verdict(self, case: str, *, note: str = "", excused: Collection[int] = (), patience: float = 60.0) -> Verdict:
        """Stop the producer, wait for the end of all jobs, add up, and record it.

        Args:
            case: The fault, in words.
            note: What else was seen.
            excused: Processes that had lost their leases: their runs may overlap with later ones, and are counted apart.
            patience: Seconds until all jobs must have ended.

        Raises:
            AssertionError: A job was lost, or two runs of one overlapped.
        """
        self.feeder.stop()
        eventually(lambda: self.database.value("select count(*) from tailrace.job") == 0, patience, what="the end of all jobs")
        self.crew.stop()
        runs = self.ledger.runs()
        over = overlaps(runs, self.crew.deaths)
        ended = {run.job for run in runs if run.ended < float("inf")}
        dead = {job for (job,) in self.database.query("select job_id from tailrace.dead_letter")}
        committed = {*self.feeder.ids, *self.more}
        after_loss = sum(first.pid in excused for first, _ in over)
        found = Verdict(
            case=case,
            fault_seconds=self._ended - self._began,
            jobs=len(committed),
            lost=len(committed - ended - dead),
            overlapping=len(over) - after_loss,
            after_loss=after_loss,
            before=self.before,
            back_seconds=self.back_seconds,
            note=note,
        )
        _record(found)
        assert found.lost == 0, f"lost: {sorted(committed - ended - dead)[:10]}"
        assert found.overlapping == 0, f"overlapping: {over[:3]}"
        assert self.database.value("select count(*) from tailrace.lease") == 0
        return found

    def count(self, what: str) -> int:
        """How many jobs have ended so, by the engine's own count."""
        statement = """select (select coalesce(sum(n), 0) from tailrace.tally where what = %(what)s)
                              + (select coalesce(sum(n), 0) from tailrace.total where what = %(what)s)"""
        return int(self.database.value(statement, {"what": what}))

    def close(self) -> None:
        """End the threads."""
        self.feeder.stop()
        self.crew.stop()


def _record(verdict: Verdict) -> None:
    path = os.environ.get(RECORDS)
    if path:
        with Path(path).open("a") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")
