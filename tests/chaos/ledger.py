"""The ledger of real runs: a table without constraints, in a database that no fault touches.

Whatever ran twice, at once or never shows here. `overlaps` is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from tests.rig.servers import RigDatabase

TABLE = """create table public.ledger (
  n bigint generated always as identity, what text, job bigint, task text, attempt int, pid int,
  at timestamptz default clock_timestamp())"""


@dataclass(frozen=True)
class Run:
    """One run of a job; `ended` is infinite for one whose end nobody wrote."""

    job: int
    task: str
    attempt: int
    pid: int
    began: float
    ended: float


class Ledger:
    """Reads what handlers wrote; times are seconds since 1970 by the ledger's server."""

    def __init__(self, database: RigDatabase) -> None:
        """Make the table.

        Args:
            database: An empty database, on another server than the one under test where that one is to fail.
        """
        self.database = database
        database.query(TABLE)

    def now(self) -> float:
        """The time by which the lines are stamped."""
        return float(self.database.value("select extract(epoch from clock_timestamp())"))

    def ends(self, task: str, since: float) -> list[float]:
        """Return when runs of a task ended, from a moment on, in order."""
        statement = """select extract(epoch from at)::float8 from public.ledger
                       where what = 'end' and task = %s and at >= to_timestamp(%s) order by at"""
        return [at for (at,) in self.database.query(statement, [task, since])]

    def count(self, what: str, task: str) -> int:
        """Return how many lines there are of a kind."""
        return int(self.database.value("select count(*) from public.ledger where what = %s and task = %s", [what, task]))

    def ended(self, task: str) -> int:
        """Return how many jobs of a task have ended, however often."""
        return int(self.database.value("select count(distinct job) from public.ledger where what = 'end' and task = %s", [task]))

    def runs(self) -> list[Run]:
        """Return all runs in the order of their starts."""
        lines = self.database.query(
            "select what, job, task, attempt, pid, extract(epoch from at)::float8 from public.ledger order by n"
        )
        ends: dict[tuple[int, int, int], list[float]] = defaultdict(list)
        for what, job, _, attempt, pid, at in lines:
            if what == "end":
                ends[job, attempt, pid].append(at)
        found = []
        for what, job, task, attempt, pid, at in lines:
            if what == "start":
                mine = ends[job, attempt, pid]
                found.append(Run(job, task, attempt, pid, at, mine.pop(0) if mine else inf))
        return found


def overlaps(runs: Iterable[Run], deaths: Mapping[int, float]) -> list[tuple[Run, Run]]:
    """Return the pairs of runs of one job that went on at the same time.

    Args:
        runs: All runs.
        deaths: When processes ended, by their ids: nothing of theirs ran longer.
    """
    of_job: dict[int, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda r: r.began):
        of_job[run.job].append(run)
    found: list[tuple[Run, Run]] = []
    for mine in of_job.values():
        for n, first in enumerate(mine):
            until = min(first.ended, deaths.get(first.pid, inf))
            found.extend((first, second) for second in mine[n + 1 :] if second.began < until)
    return found
