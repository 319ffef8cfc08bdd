"""What a maintenance routine is, what a run of it reports, and where it counts.

Each routine has a file that implements `Routine`; `once` and `loop` call them; a worker passes its metrics as `Counters`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from tailrace.db import Connection, Database, Statement, run, settled

__all__ = ["Counters", "NoCounters", "Routine", "RoutineResult", "Tick", "Verdict"]

Verdict = Literal["ok", "error", "skipped", "stopped", "dry_run"]
SESSION: Final = {
    "lock_timeout": "500ms",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "5s",
    "jit": "off",
}
"""Settings of a connection that runs routines; a maintainer that stands still must hold nothing for long."""

_REST: Final = 3.0
"""Rest of a gentle routine, in batches. Deleting without rests doubled the p99 of pickups beside a requeue of many; with rests of
one batch it was 1.6 times as long, with three 1.3."""
_SOON_SECONDS: Final = 10.0
"""Pause of a gentle routine that had more to do than its budget allows; others of its loop come between."""

# What became of a job whose lease was taken over, as the metric of reclaimed leases tells it.
_RECLAIMED: Final = {"lost": "requeued", "interrupted": "requeued", "dead": "dead", "dropped": "dead"}


class Counters(Protocol):
    """Where a routine counts; the worker's adapter puts it into metrics. Called from the thread that runs the routine."""

    def ran(self, routine: str, result: Verdict, seconds: float) -> None:
        """A run has ended: ok, error, or skipped because another runner was at it."""

    def failed(self, routine: str, error_type: str, n: int) -> None:
        """Errors of a run: the class name of a database error, or `row` for rows that cannot be moved."""

    def reclaimed(self, queue: str, result: str, evidence: str, n: int) -> None:
        """Jobs taken from a lease: result requeued or dead, evidence expired or audit."""

    def dead(self, queue: str, task: str, reason: str, n: int) -> None:
        """Rows that came to the dead letters, by reason."""

    def orphaned(self, n: int) -> None:
        """Jobs that had a token without a lease."""

    def ticks(self, queue: str, result: str, n: int) -> None:
        """Ticks of schedules: fired, skipped, missed or failed."""

    def requeued(self, queue: str, task: str, n: int) -> None:
        """Dead letters that came back as jobs."""

    def deleted(self, queue: str, task: str, n: int) -> None:
        """Dead letters that were too old."""


class NoCounters:
    """Counts nothing."""

    def ran(self, routine: str, result: Verdict, seconds: float) -> None:
        """Ignore a run."""

    def failed(self, routine: str, error_type: str, n: int) -> None:
        """Ignore errors."""

    def reclaimed(self, queue: str, result: str, evidence: str, n: int) -> None:
        """Ignore reclaimed jobs."""

    def dead(self, queue: str, task: str, reason: str, n: int) -> None:
        """Ignore dead letters."""

    def orphaned(self, n: int) -> None:
        """Ignore orphans."""

    def ticks(self, queue: str, result: str, n: int) -> None:
        """Ignore ticks."""

    def requeued(self, queue: str, task: str, n: int) -> None:
        """Ignore requeues."""

    def deleted(self, queue: str, task: str, n: int) -> None:
        """Ignore deletions."""


@dataclass(frozen=True, kw_only=True)
class RoutineResult:
    """What one run of a routine did.

    Attributes:
        routine: Its name.
        result: ok, error, skipped (another runner held its lock), stopped, or dry_run.
        seconds: How long it took.
        counts: What it did, by the routine's own words; with dry_run what it would do.
        error: What went wrong, when the result is error.
    """

    routine: str
    result: Verdict
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None


class Tick:
    """One run in progress: the connection, the wish to stop, and what has been done so far."""

    def __init__(
        self,
        *,
        conn: Connection,
        database: Database,
        counters: Counters,
        stop: threading.Event,
        full: bool = False,
        queues: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            conn: An autocommitting connection.
            database: Gives the SQL blocks.
            counters: Where to count.
            stop: Set when the run should end after its current batch.
            full: Do all there is, without the budget of an ordinary run.
            queues: Only for these; none means all.
            clock: Seconds that only go forward.
        """
        self.conn, self.database, self.counters, self.stop, self.full, self.clock = conn, database, counters, stop, full, clock
        self.queues = tuple(queues)
        self.queue: str | None = None
        self.started = clock()
        self.counts: dict[str, int] = {}
        self.locked = False
        self.again: float | None = None
        """Seconds after which the routine wants to run again, if that is before its period."""

    def each_queue(self) -> Iterator[str | None]:
        """Go through the named queues, or once for all of them; each has the whole budget."""
        for queue in self.queues or (None,):
            if self.stop.is_set():
                return
            self.queue, self.started, self.locked = queue, self.clock(), False
            yield queue

    def call(self, block: str, **params: Any) -> dict[str, Any] | None:
        """Run one batch and return its report; None, and `locked` set, when another runner was at it.

        Args:
            block: The named block of maintenance.sql.
            params: Its parameters; `queue` is given to each: the queue of this part of the run, null for all.

        Raises:
            TailraceError: What the database's refusal means.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
            return dict(rows[0][0])

        with settled(self.conn, self.database.blocks, SESSION):
            given = {"queue": self.queue, **params}
            report = run(self.conn, Statement(self.database.blocks[f"maintenance.{block}"], given, read))
        self.locked = bool(report.get("locked"))
        return None if self.locked else report

    def batches(self, budget_seconds: float, *, gently: bool = False) -> Iterator[int]:
        """Count batches until the budget is used up (a full run has none) or the run should stop.

        Args:
            budget_seconds: Time for the whole run.
            gently: Nobody waits for this routine, and workers need the cores and the log: an ordinary run rests between two
                batches, three times as long as the last one took but no longer than its budget, since others of its loop wait,
                and wishes to go on soon when that is used up.
        """
        gently = gently and not self.full
        n = 0
        while not self.stop.is_set() and (n == 0 or self.full or self.clock() - self.started < budget_seconds):
            began = self.clock()
            yield n
            n += 1
            if gently:
                self.stop.wait(min(budget_seconds, _REST * (self.clock() - began)))
        if gently:
            self.again = _SOON_SECONDS

    def wish(self) -> float | None:
        """What the part of the run that has just ended asked for in `again`."""
        again, self.again = self.again, None
        return again

    def count(self, **numbers: int) -> None:
        """Add to what the run reports."""
        for name, n in numbers.items():
            self.counts[name] = self.counts.get(name, 0) + n

    def count_rows(self, rows: Sequence[Mapping[str, Any]], *, routine: str, evidence: str) -> None:
        """Count what became of jobs, as `counted_v1` lists it.

        Args:
            rows: The list.
            routine: For errors.
            evidence: How lost leases were found: expired or audit.
        """
        for row in rows:
            result, n = str(row["result"]), int(row["n"])
            self.count(**{result: n})
            if result == "failed":
                self.counters.failed(routine, "row", n)
            if row["reason"] is not None:
                self.counters.dead(row["queue"], row["task"], row["reason"], n)
            lost = result in ("lost", "interrupted") or row["reason"] in ("lease_expired", "interrupted")
            if lost and result in _RECLAIMED:
                self.counters.reclaimed(row["queue"], _RECLAIMED[result], evidence, n)

    def count_letters(self, rows: Sequence[Mapping[str, Any]], *, routine: str) -> None:
        """Count what became of dead letters.

        Args:
            rows: The list of `retain_v1` or `auto_requeue_v1`.
            routine: For errors.
        """
        for row in rows:
            result, n = str(row["result"]), int(row["n"])
            self.count(**{result: n})
            if result == "failed":
                self.counters.failed(routine, "row", n)
            elif result == "requeued":
                self.counters.requeued(row["queue"], row["task"], n)
            elif result in ("dead", "resolved"):
                self.counters.deleted(row["queue"], row["task"], n)


class Routine(Protocol):
    """One routine: a name, a period, and what to do in a run."""

    @property
    def name(self) -> str:
        """Its name: in table maintenance, in metrics, and as argument of `tailrace maintain`."""

    @property
    def interval_seconds(self) -> float:
        """Its period."""

    def run(self, tick: Tick) -> None:
        """Do it, batch by batch, counting in the tick.

        Raises:
            TailraceError: The database refused a batch; those before it have been committed.
        """

    def preview(self, tick: Tick) -> None:
        """Count what a run would do, changing nothing."""
