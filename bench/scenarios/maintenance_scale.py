"""maintenance_scale: how fast the sweep moves exhausted jobs, what its look at a backlog costs, and whether claims notice.

Three measures: `maintain sweep --full` over exhausted rows; the minute's slice of the audit over ready rows; pickups by a
worker while a full sweep is at work. The sweep's rate is taken to a drain by the reference in the same round.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import SecretStr

from bench.report import Outcome, Table, median, ratio
from bench.runs import Lab, Pickups, RunError
from bench.scenarios import Options, drain, pickup
from bench.sides import CONTROL, ours
from tailrace.db import Database
from tailrace.maintenance import RoutineResult, Sweep, run_once

EXHAUSTED, QUICK_EXHAUSTED = 1_000_000, 5_000
READY, QUICK_READY = 10_000_000, 20_000
PICKUPS, QUICK_PICKUPS = 300, 20
SLICES = 5
"""Minutes of the audit that are measured; the first reads from disk what the others find in memory."""
FULL_ROUND = 60
"""Slices in which the walk is round."""


def _sweep(lab: Lab, database: str, *, full: bool, stop: threading.Event | None = None) -> RoutineResult:
    (result,) = run_once(Database(url=SecretStr(lab.server.dsn(database))), [Sweep()], full=full, stop=stop)
    if result.result not in ("ok", "stopped"):
        raise RunError(f"the sweep ended with {result.result}: {result.error}")
    return result


def _filled(lab: Lab, case: str, block: str, rows: int) -> str:
    database = lab.fresh(ours(), case=case)
    with lab.server.connect(database) as connection:
        connection.execute(CONTROL[block], (rows,))
    lab.settle(database)
    return database


def moved(lab: Lab, rows: int) -> float:
    """Move exhausted rows to the dead letters by one full sweep; returns rows a second."""
    result = _sweep(lab, _filled(lab, "exhausted", "ours_exhausted", rows), full=True)
    if result.counts.get("dead") != rows:
        raise RunError(f"the sweep moved {result.counts} of {rows} rows")
    return rows / result.seconds


def looked(lab: Lab, rows: int) -> list[float]:
    """Let the sweep do its share of some minutes over ready rows; returns the milliseconds of each."""
    database = _filled(lab, "ready", "ours_ready", rows)
    results = [_sweep(lab, database, full=False) for _ in range(SLICES)]
    seen = sum(result.counts["seen"] for result in results)
    if seen < min(rows, SLICES * (rows // FULL_ROUND)):
        raise RunError(f"a minute's share is {rows // FULL_ROUND} rows, seen in {SLICES} minutes were {seen}")
    return [result.seconds * 1000 for result in results]


@contextmanager
def _sweeping(lab: Lab, database: str) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=_sweep, args=(lab, database), kwargs={"full": True, "stop": stop})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def picked_up(lab: Lab, rows: int, jobs: int) -> tuple[Pickups, Pickups]:
    """Pick jobs up beside exhausted rows of the same queue: before a full sweep, and while it moves them."""
    database = _filled(lab, "claims", "ours_exhausted", rows)
    before = pickup.once(lab, ours(), database, jobs=jobs)
    with _sweeping(lab, database):
        during = pickup.once(lab, ours(), database, jobs=jobs)
    return before, during


def run(lab: Lab, options: Options) -> Outcome:
    """Measure all three in each round; `--jobs` is the number of rows of each."""
    exhausted = options.number(EXHAUSTED, QUICK_EXHAUSTED)
    ready = options.number(READY, QUICK_READY)
    ceils, rates, slices, claims = [], [], [], []
    for _ in range(options.rounds):
        ceils.append(drain.reference(lab, options))
        rates.append(moved(lab, exhausted))
        slices.append(looked(lab, ready))
        claims.append(picked_up(lab, exhausted, options.scaled(PICKUPS, QUICK_PICKUPS)))
    table = Table(title="Maintenance at scale (medians of the rounds)", headings=["measure", "rows", "value"])
    warm = [milliseconds for round_of in slices for milliseconds in round_of[1:]]
    figures = {
        "sweep_rows_per_s": median(rates),
        "audit_slice_ms": median(warm),
        "audit_slice_worst_ms": max(max(round_of) for round_of in slices),
        "pickup_p99_ms": median(before.p99 for before, _ in claims),
        "pickup_p99_while_sweeping_ms": median(during.p99 for _, during in claims),
    }
    table.rows += [(name, ready if name.startswith("audit") else exhausted, value) for name, value in figures.items()]
    figures["ceil_1_per_s"] = median(ceils)
    ratios = {
        "sweep_to_ceil": ratio(rates, ceils),
        "sweep_pickup_p99": ratio([d.p99 for _, d in claims], [b.p99 for b, _ in claims]),
    }
    return Outcome(ratios=ratios, figures=figures, tables=[table])
