"""The ledger of runs that the tests of limits and rates read: what ran at a time, and when each run began."""

from __future__ import annotations

from typing import Any, Protocol

from psycopg.types.json import Jsonb

from tests.rig.processes import WorkerProcess
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually
from tests.worker.limit_apps import LEDGER

APP = "tests.worker.limit_apps:app"
PATIENCE = 40.0
PEAK = """select coalesce(max(n), 0) from (
  select sum(case what when 'start' then 1 else -1 end) over (order by at, what rows unbounded preceding) as n
  from public.runs where task = any(%s)) s"""


class Track:
    """The database of one test with its ledger."""

    def __init__(self, database: RigDatabase) -> None:
        self.database = database
        self.value, self.query = database.value, database.query
        database.query(LEDGER)

    def apply(self, **settings: Any) -> None:
        """Give the queue settings."""
        self.query("select tailrace.apply_queue('limited', %s, 'cli')", [Jsonb(settings)])

    def fill(self, task: str, n: int, seconds: float = 0.0, **columns: Any) -> None:
        """Insert jobs, and wake workers."""
        names = "".join(f", {name}" for name in columns)
        places = ", %s" * len(columns)
        self.query(
            f"""insert into tailrace.job (queue, task, payload{names})
                select 'limited', %s, %s{places} from generate_series(1, %s)""",
            [task, Jsonb({"seconds": seconds}), *columns.values(), n],
        )
        self.query("select pg_notify(tailrace.signal_channel_v1(), 'limited')")

    def peak(self, *tasks: str) -> int:
        """The most runs of these tasks at a time."""
        return int(self.value(PEAK, [list(tasks)]))

    def live(self, task: str | None = None) -> int:
        """Jobs that wait or run."""
        return int(self.value("select count(*) from tailrace.job where %(t)s::text is null or task = %(t)s", {"t": task}))

    def wait_gone(self, task: str | None = None, timeout: float = PATIENCE) -> None:
        """Wait for the end of all jobs."""
        eventually(lambda: self.live(task) == 0, timeout, what="the end of all jobs")

    def running(self) -> int:
        """Jobs with a lease."""
        return int(self.value("select count(*) from tailrace.job where token is not null"))


class StartLimited(Protocol):
    """Starts a worker of the queue `limited`."""

    def __call__(self, *arguments: str, lease: float = 6, dsn: str | None = None) -> WorkerProcess:
        """Start it, with a lease of so many seconds."""
