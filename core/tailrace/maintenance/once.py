"""One run: of one routine, over all queues or named ones, and of several routines one after the other.

`loop` repeats `run_routine` at each routine's period; `tailrace maintain --once` and `--dry-run` call `run_once`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from tailrace.db import Database
from tailrace.maintenance.routine import Counters, NoCounters, Routine, RoutineResult, Tick
from tailrace.maintenance.session import FAULTS, cancelled_by, connect

__all__ = ["run_once", "run_routine"]


def run_routine(routine: Routine, tick: Tick) -> RoutineResult:
    """Run one routine once, for each queue of the tick.

    Args:
        routine: Which.
        tick: The run.

    Returns:
        ok, or skipped when another runner held its lock all the time.

    Raises:
        TailraceError: The database refused a batch; those before it have been committed.
    """
    began = tick.clock()
    locked = True
    wishes: list[float] = []
    for _ in tick.each_queue():
        routine.run(tick)
        locked = locked and tick.locked
        if (again := tick.wish()) is not None:
            wishes.append(again)
    tick.again = min(wishes, default=None)
    skipped = locked and not any(tick.counts.values())
    return RoutineResult(
        routine=routine.name, result="skipped" if skipped else "ok", seconds=tick.clock() - began, counts=dict(tick.counts)
    )


def run_once(
    database: Database,
    routines: Iterable[Routine],
    *,
    queues: Sequence[str] = (),
    dry_run: bool = False,
    full: bool = False,
    counters: Counters | None = None,
    stop: threading.Event | None = None,
) -> list[RoutineResult]:
    """Run each routine once, one after the other; the failure of one does not keep the others from running.

    Args:
        database: Where to work.
        routines: What to run.
        queues: Only for these; none means all.
        dry_run: Only count what would be done.
        full: Let the sweep walk the whole table, and give no routine a time budget.
        counters: Where to count.
        stop: Ends the run within a second; what was done until then stays done, and later routines are left out.

    Returns:
        A result per routine that ran; those that failed say why.

    Raises:
        DatabaseUnavailable: No connection could be made.
    """
    ending = stop or threading.Event()
    results: list[RoutineResult] = []
    with connect(database) as conn, cancelled_by(ending, lambda: conn):
        for routine in routines:
            if ending.is_set():
                break
            tick = Tick(conn=conn, database=database, counters=counters or NoCounters(), stop=ending, full=full, queues=queues)
            results.append(_one(routine, tick, dry_run=dry_run))
    if stop is None:
        ending.set()  # nobody else will: lets the watcher go
    return results


def _one(routine: Routine, tick: Tick, *, dry_run: bool) -> RoutineResult:
    began = tick.clock()
    try:
        if dry_run:
            for _ in tick.each_queue():
                routine.preview(tick)
            return RoutineResult(routine=routine.name, result="dry_run", seconds=tick.clock() - began, counts=dict(tick.counts))
        result = run_routine(routine, tick)
    except FAULTS as error:
        seconds = tick.clock() - began
        if tick.stop.is_set():  # its statement was cancelled
            return RoutineResult(routine=routine.name, result="stopped", seconds=seconds, counts=dict(tick.counts))
        tick.counters.failed(routine.name, type(error).__name__, 1)
        result = RoutineResult(routine=routine.name, result="error", seconds=seconds, counts=dict(tick.counts), error=str(error))
    tick.counters.ran(routine.name, result.result, result.seconds)
    return result
