"""Runs routines, each at its period: for `tailrace maintain`, for a controller, and for a worker that stands in.

Sync, on a connection of its own, to be driven from a thread. A stop is honoured within a second, also inside a batch; a
database that fails is asked again with growing pauses. `once` is one run, `stand_in` says when a worker may do one.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tailrace.db import Connection, Database, Statement, run
from tailrace.errors import DatabaseUnavailable
from tailrace.maintenance.apart import apart, run_apart
from tailrace.maintenance.once import run_routine
from tailrace.maintenance.routine import Counters, NoCounters, Routine, RoutineResult, Tick
from tailrace.maintenance.session import FAULTS, cancelled_by, connect
from tailrace.maintenance.stand_in import Seen, StandIn
from tailrace.names.events import Event

__all__ = ["Loop", "run_forever"]

log: Final = logging.getLogger("tailrace.maintenance")

_FIRST_PAUSE_SECONDS: Final = 0.5
_MOST_DOUBLINGS: Final = 5
_LOOKS: Final = frozenset({"seen", "queues", "folded", "skipped"})
"""Counts that a run has although it changed nothing worth a line in the log."""


class _Turn:
    """One routine and when it is due next."""

    def __init__(self, routine: Routine, due: float, *, stand_in: bool) -> None:
        self.routine = routine
        self.due = due
        self.part = StandIn(routine.interval_seconds) if stand_in else None
        self.failures = 0
        self.again: float | None = None


class Loop:
    """Runs routines at their periods until it is stopped."""

    def __init__(
        self,
        database: Database,
        routines: Sequence[Routine],
        *,
        counters: Counters | None = None,
        queues: Sequence[str] = (),
        stand_in: bool = False,
        on_result: Callable[[RoutineResult], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            database: Where to work.
            routines: What to run.
            counters: Where to count.
            queues: Only for these; none means all. Such runs do not count as runs for all queues.
            stand_in: Run a routine only while nobody else does, and keep no connection between two looks.
            on_result: Told each run's result.
            clock: Seconds that only go forward.
            jitter: Gives a number from 0 up to 1; a period is shortened by up to a tenth of itself.
        """
        self._database, self._counters, self._on_result = database, counters or NoCounters(), on_result
        self._clock, self._jitter, self._keeps, self._queues = clock, jitter, not stand_in, tuple(queues)
        now = clock()
        # Onlookers that started together should not look together.
        self._turns = [_Turn(r, now + stand_in * jitter() * r.interval_seconds / 3, stand_in=stand_in) for r in routines]
        self._conn: Connection | None = None

    def run(self, stop: threading.Event) -> None:
        """Run until the event is set.

        Args:
            stop: Ends the loop within a second, also while a statement runs.
        """
        try:
            with cancelled_by(stop, lambda: self._conn):
                while self._turns and not stop.is_set():
                    turn = min(self._turns, key=lambda t: t.due)
                    if stop.wait(max(0.0, turn.due - self._clock())):
                        return
                    self._take(turn, stop)
        finally:
            self._close()

    # ---- one turn ----------------------------------------------------------------------------------------------------
    def _take(self, turn: _Turn, stop: threading.Event) -> None:
        began = self._clock()
        try:
            conn = self._connection()
            if turn.part is None:
                self._report(turn, self._run(turn, conn, stop))
            else:
                self._stand_in(turn, turn.part, conn, stop)
            turn.failures = 0
            pause = turn.part.pause if turn.part else turn.routine.interval_seconds
            turn.due = began + pause * (1 - 0.1 * self._jitter())
            again, turn.again = turn.again, None
            if again is not None:
                turn.due = min(turn.due, self._clock() + again)
        except FAULTS as error:
            if not stop.is_set():
                self._failed(turn, error, self._clock() - began)
        if not self._keeps:
            self._close()

    def _stand_in(self, turn: _Turn, part: StandIn, conn: Connection, stop: threading.Event) -> None:
        name, was = turn.routine.name, part.standing_in
        if part.should_run(_seen(conn, self._database).get(name)):
            result = self._run(turn, conn, stop)
            part.ran(_seen(conn, self._database).get(name) if result.result == "ok" else None)
            self._report(turn, result)
        if part.standing_in != was:
            text = "running %s, since nobody else does" if part.standing_in else "no longer running %s: another runner shows"
            log.info(text, name, extra={"event": Event.STANDING_IN, "routine": name, "standing_in": part.standing_in})

    def _run(self, turn: _Turn, conn: Connection, stop: threading.Event) -> RoutineResult:
        tick = Tick(
            conn=conn, database=self._database, counters=self._counters, stop=stop, queues=self._queues, clock=self._clock
        )
        result = run_routine(turn.routine, tick)
        turn.again = tick.again
        return result

    def _report(self, turn: _Turn, result: RoutineResult) -> None:
        self._counters.ran(result.routine, result.result, result.seconds)
        if self._on_result is not None:
            self._on_result(result)
        name, counts = turn.routine.name, {what: n for what, n in result.counts.items() if n}
        level = logging.INFO if counts.keys() - _LOOKS else logging.DEBUG
        said = ", ".join(f"{n} {what}" for what, n in counts.items()) or result.result
        log.log(level, "%s: %s", name, said, extra={"event": Event.ROUTINE_RAN, "routine": name, "counts": dict(result.counts)})

    def _failed(self, turn: _Turn, error: Exception, seconds: float) -> None:
        """Count it, drop the connection if it is broken, and try this routine again after a pause that grows."""
        turn.failures += 1
        pause = _FIRST_PAUSE_SECONDS * 2.0 ** min(turn.failures, _MOST_DOUBLINGS) * (0.75 + 0.25 * self._jitter())
        turn.due = self._clock() + pause
        if self._conn is None or self._conn.broken or self._conn.closed or isinstance(error, DatabaseUnavailable):
            self._close()
        name = turn.routine.name
        self._counters.failed(name, type(error).__name__, 1)
        self._counters.ran(name, "error", seconds)
        if self._on_result is not None:
            self._on_result(RoutineResult(routine=name, result="error", seconds=seconds, error=str(error)))
        fields = {"event": Event.ROUTINE_FAILED, "routine": name, "error": str(error)}
        log.warning("%s failed: %s; again in %.1f s", name, error, pause, extra=fields)

    # ---- the connection ----------------------------------------------------------------------------------------------
    def _connection(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = connect(self._database)
        return self._conn

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()


def run_forever(
    database: Database,
    routines: Sequence[Routine],
    stop: threading.Event,
    *,
    queues: Sequence[str] = (),
    counters: Counters | None = None,
    on_result: Callable[[RoutineResult], None] | None = None,
) -> None:
    """Run routines at their periods until the event is set; a database that fails is asked again with growing pauses.

    Args:
        database: Where to work.
        routines: What to run.
        stop: Ends the loop within a second.
        queues: Only for these; none means all.
        counters: Where to count.
        on_result: Told each run's result.
    """
    loops = [Loop(database, group, queues=queues, counters=counters, on_result=on_result) for group in apart(routines)]
    run_apart(loops, stop)


def _seen(conn: Connection, database: Database) -> Mapping[str, Seen]:
    def read(rows: Sequence[tuple[Any, ...]]) -> dict[str, Seen]:
        return {routine: Seen(last_success, age) for routine, last_success, age, _ in rows}

    return run(conn, Statement(database.blocks["maintenance.seen"], {}, read))
