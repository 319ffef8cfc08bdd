"""What the tests of lease, faults and shutdown share: jobs in, the ledger of real runs out, gates for handlers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from tests.rig.processes import StartWorker, WorkerProcess
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

APP = "tests.worker.fault_apps:app"
LEASE = 3.0
REAPER = 1.0
SLACK = 15.0
"""Seconds that a slow machine may add to a bound."""
PATIENCE = 40.0
"""Seconds to wait for what must come."""
AT_ONCE = {"strategy": "fixed", "base": 0.05, "cap": 0.05, "jitter": 0}


@dataclass(frozen=True)
class Line:
    """One line that a handler wrote."""

    what: str
    job: int
    attempt: int
    pid: int
    at: float
    note: str | None


class Scene:
    """One test's database, its workers and what their handlers did."""

    def __init__(self, database: RigDatabase, start: StartWorker, home: Path) -> None:
        """Prepare an empty ledger.

        Args:
            database: Where the jobs are.
            start: Starts worker processes.
            home: A folder for the ledger and the gates.
        """
        self.database, self.home = database, home
        self._start = start
        self.app = APP
        home.mkdir(exist_ok=True)
        (home / "ledger").touch()

    # ---- workers -----------------------------------------------------------------------------------------------------
    def worker(
        self,
        *arguments: str,
        lease: float = LEASE,
        env: Mapping[str, str] | None = None,
        dsn: str | None = None,
        ready: bool = True,
    ) -> WorkerProcess:
        """Start a worker with a short lease, and wait until it claims."""
        settings = {"FAULTS_HOME": str(self.home), "TAILRACE_REAPER_SECONDS": f"{REAPER:g}", **(env or {})}
        made = self._start(self.app, "--lease-seconds", f"{lease:g}", *arguments, env=settings, dsn=dsn or self.database.dsn)
        return made.wait_ready(PATIENCE) if ready else made

    # ---- jobs --------------------------------------------------------------------------------------------------------
    def enqueue(self, task: str, *, options: Mapping[str, Any] | None = None, **payload: Any) -> int:
        """Enqueue a job that is tried again at once, and return its id."""
        chosen = {"backoff": AT_ONCE, "max_attempts": 5, **(options or {})}
        statement = "select id from tailrace.enqueue('faults', %s, %s, %s)"
        return int(self.database.value(statement, [task, Jsonb(payload), Jsonb(chosen)]))

    def fill(self, task: str, n: int, *, priority: int = 0, queue: str = "faults", **payload: Any) -> list[int]:
        """Insert many equal jobs at once and return their ids."""
        rows = self.database.query(
            """insert into tailrace.job (queue, task, payload, priority, backoff)
               select %s, %s, %s, %s, %s from generate_series(1, %s) returning id""",
            [queue, task, Jsonb(payload), priority, Jsonb(AT_ONCE), n],
        )
        self.database.query("select pg_notify(tailrace.signal_channel_v1(), %s)", [queue])
        return [ident for (ident,) in rows]

    def open(self, gate: str) -> float:
        """Let the handlers behind a gate go on; returns the time."""
        (self.home / gate).touch()
        return time.time()

    def row(self, job: int, columns: str = "token is not null, attempts, lost, interrupted") -> tuple[Any, ...] | None:
        """Columns of a live job; None when it has ended."""
        rows = self.database.query(f"select {columns} from tailrace.job where id = %s", [job])
        return rows[0] if rows else None

    def count(self, what: str) -> int:
        """How many jobs have ended so, by the engine's own count."""
        statement = """select (select coalesce(sum(n), 0) from tailrace.tally where what = %(what)s)
                              + (select coalesce(sum(n), 0) from tailrace.total where what = %(what)s)"""
        return int(self.database.value(statement, {"what": what}))

    def live(self) -> int:
        """How many jobs wait or run."""
        return int(self.database.value("select count(*) from tailrace.job"))

    def wait_gone(self, timeout: float = PATIENCE) -> None:
        """Wait until every job has ended."""
        eventually(lambda: self.live() == 0, timeout, what="the end of all jobs")

    # ---- the ledger --------------------------------------------------------------------------------------------------
    def lines(self, what: str | None = None, job: int | None = None) -> list[Line]:
        """Return what handlers wrote, in order."""
        found = []
        written = (self.home / "ledger").read_text()
        for text in written[: written.rfind("\n") + 1].splitlines():  # the last line may be half written
            raw = json.loads(text)
            line = Line(raw["what"], raw.get("job", 0), raw.get("attempt", 0), raw["pid"], raw["at"], raw["note"])
            if what in (None, line.what) and job in (None, line.job):
                found.append(line)
        return found

    def wait_line(self, what: str, job: int, n: int = 1, timeout: float = PATIENCE) -> Line:
        """Wait until a handler has written its n-th line of a kind, and return it."""
        return eventually(lambda: self.lines(what, job)[n - 1 : n], timeout, what=f"line {n} {what!r} of job {job}")[0]

    def ran_once(self, jobs: list[int]) -> None:
        """Check that each of these jobs was started once, at its first attempt, and has ended.

        Raises:
            AssertionError: One was not.
        """
        started = [(line.job, line.attempt) for line in self.lines("start")]
        assert sorted(started) == sorted((job, 1) for job in jobs)
        assert self.count("succeeded") == len(jobs)
        assert self.live() == 0


def let_pass(seconds: float) -> None:
    """Let an amount of time pass that is itself what the test is about: a job's length, an outage."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= until, seconds + 5, what="time")
