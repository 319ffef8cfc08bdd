"""What the worker's tests ask of the database: jobs in, ledger and dead letters out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from tests.rig.servers import Connection
from tests.rig.waiting import eventually
from tests.worker.apps import LEDGER


@dataclass(frozen=True)
class Line:
    """One line that a handler wrote."""

    job: int
    task: str
    attempt: int
    pid: int
    note: str | None


class Board:
    """One test's view of its database."""

    def __init__(self, conn: Connection) -> None:
        """Make the ledger.

        Args:
            conn: Autocommit.
        """
        self.conn = conn
        conn.execute(LEDGER)

    def enqueue(self, task: str, *, queue: str = "work", options: dict[str, Any] | None = None, **payload: Any) -> int:
        """Enqueue one job and return its id."""
        return int(
            self.value("select id from tailrace.enqueue(%s, %s, %s, %s)", [queue, task, Jsonb(payload), Jsonb(options or {})])
        )

    def fill(self, task: str, n: int, *, queue: str = "work", payload: dict[str, Any] | None = None, ago: float = 0.0) -> None:
        """Insert many equal jobs at once."""
        self.conn.execute(
            """insert into tailrace.job (queue, task, payload, run_at)
               select %s, %s, %s, clock_timestamp() - %s * interval '1 s' from generate_series(1, %s)""",
            [queue, task, Jsonb(payload or {}), ago, n],
        )

    def value(self, text: str, parameters: Any = None) -> Any:
        """Return the first column of the first row."""
        row = self.conn.execute(text, parameters).fetchone()
        assert row is not None
        return row[0]

    def lines(self, job: int | None = None, *, task: str | None = None) -> list[Line]:
        """Return what handlers wrote, in order; of one job or one task."""
        rows = self.conn.execute(
            """select job, task, attempt, pid, note from public.ledger
               where (%(job)s::bigint is null or job = %(job)s) and (%(task)s::text is null or task = %(task)s) order by n""",
            {"job": job, "task": task},
        )
        return [Line(*row) for row in rows]

    def notes(self, job: int) -> list[str | None]:
        """Return the notes of one job."""
        return [line.note for line in self.lines(job)]

    def left(self) -> int:
        """Return how many jobs are in the table."""
        return int(self.value("select count(*) from tailrace.job"))

    def wait_gone(self, timeout: float = 40.0, *, left: int = 0) -> None:
        """Wait until the table holds only `left` jobs."""
        eventually(lambda: self.left() == left, timeout, what=f"an empty job table (but for {left})")

    def wait_lines(self, n: int, timeout: float = 40.0, *, task: str | None = None) -> list[Line]:
        """Wait until handlers wrote n lines."""
        eventually(lambda: len(self.lines(task=task)) >= n, timeout, what=f"{n} lines")
        return self.lines(task=task)

    def dead(self) -> dict[int, tuple[str, str, int, list[dict[str, Any]]]]:
        """Return the dead letters: job → reason, error_type, attempts, errors."""
        rows = self.conn.execute("select job_id, reason, error_type, total_attempts, errors from tailrace.dead_letter")
        return {job: (reason, kind, attempts, errors) for job, reason, kind, attempts, errors in rows}

    def ends(self) -> dict[str, int]:
        """Return how many jobs ended in each way; part of it may have been folded into the totals."""
        return dict(
            self.conn.execute(
                """select what, sum(n)::int
                   from (select what, n from tailrace.tally union all select what, n from tailrace.total) e group by what"""
            ).fetchall()
        )

    def row(self, job: int) -> dict[str, Any]:
        """Return a job's row."""
        found = self.value("select to_jsonb(j) from tailrace.job j where id = %s", [job])
        return dict(found)
