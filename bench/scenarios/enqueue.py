"""enqueue: jobs stored a second, one by one over 1 and 16 connections, and 100,000 in one call."""

from typing import Any

from bench.report import Outcome, Table, median, ratio
from bench.runs import Lab
from bench.scenarios import Options
from bench.sides import ceil, ours

SINGLE_JOBS, QUICK_SINGLE_JOBS = 6_000, 200
BULK_JOBS, QUICK_BULK_JOBS = 100_000, 2_000

HEADINGS = ("who", "how", "jobs/s", "min", "max", "PG us/job", "client us/job")


def run(lab: Lab, options: Options) -> Outcome:
    """Run the reference and ours in turn, each into an empty database."""
    single = options.number(SINGLE_JOBS, QUICK_SINGLE_JOBS)
    bulk = options.scaled(BULK_JOBS, QUICK_BULK_JOBS)
    ways: dict[str, tuple[str, dict[str, object]]] = {
        "enqueue_1": ("single", {"jobs": max(1, single // 2), "lanes": 1}),
        "enqueue_16": ("single", {"jobs": single, "lanes": 16}),
        "enqueue_bulk": ("bulk", {"jobs": bulk, "chunk": bulk}),
    }
    sides = (ceil(), ours())
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {(side.label, way): [] for way in ways for side in sides}
    for _ in range(options.rounds):
        for way, (mode, arguments) in ways.items():
            for side in sides:
                database = lab.fresh(side)
                lab.settle(database)
                runs[side.label, way].append(lab.produce(side, database, mode, **arguments))
    rates = {key: [run["rate"] for run in found] for key, found in runs.items()}
    table = Table(title=f"Enqueue: {single:,} one by one, {bulk:,} in bulk", headings=HEADINGS)
    for (label, way), found in runs.items():
        own = rates[label, way]
        costs = [median(run[name] for run in found) for name in ("pg_us", "cpu_us")]
        table.rows.append((label, way, median(own), min(own), max(own), *costs))
    return Outcome(
        ratios={way: ratio(rates["ours", way], rates["ceil", way]) for way in ways},
        figures={f"{way}_per_s": median(rates["ours", way]) for way in ways},
        tables=[table],
    )
