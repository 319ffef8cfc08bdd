"""limits: what a concurrency limit and a rate cost a job where they do not bind, in claims of ten.

The reference takes claims of ten too: a queue whose settings forbid to take jobs ahead, and nothing else. The plain drain
stands beside them in the table. Costs are the time a job takes, to that of the reference in the same rounds.
"""

from typing import Any

from psycopg.types.json import Jsonb

from bench.report import Outcome, Table, ratio
from bench.runs import Drained, Lab
from bench.scenarios import Options, drain
from bench.sides import CONTROL, ours

JOBS, QUICK_JOBS = 40_000, 1_000
SLOTS, WORKERS = 10, 2
NOT_AHEAD: dict[str, Any] = {"jobDefaults": {"maxAttempts": 1}}
"""Applied after the jobs are there, so they have their attempts; the workers take nothing ahead."""

LOTS = {"jobs": 1_000_000, "periodSeconds": 1, "burst": 1_000_000}
CASES: dict[str, dict[str, Any] | None] = {
    "taken ahead": None,
    "claims of ten": NOT_AHEAD,
    "limit of 100": {**NOT_AHEAD, "limits": {"concurrency": 100}},
    "limit of 1,000": {**NOT_AHEAD, "limits": {"concurrency": 1000}},
    "limit of the task": {**NOT_AHEAD, "tasks": [{"name": "noop", "concurrencyLimit": 100}]},
    "rate": {**NOT_AHEAD, "limits": {"rates": [{"name": "all", **LOTS}]}},
    "limit of 10, binding": {**NOT_AHEAD, "limits": {"concurrency": 10}},
}


def once(lab: Lab, settings: dict[str, Any] | None, *, jobs: int) -> Drained:
    """Fill a fresh database, set the limits and drain it."""
    side = ours(slots=SLOTS)
    database = lab.fresh(side)
    floor = lab.fill(side, database, jobs)
    if settings is not None:
        with lab.server.connect(database) as connection:
            connection.execute(CONTROL["ours_settings"], (Jsonb(settings),))
    lab.settle(database)
    return lab.drain(side, database, jobs=jobs, floor=floor, workers=WORKERS)


def run(lab: Lab, options: Options) -> Outcome:
    """Take turns between the kinds."""
    jobs = options.number(JOBS, QUICK_JOBS)
    runs: dict[str, list[Drained]] = {case: [] for case in CASES}
    for _ in range(options.rounds):
        for case, settings in CASES.items():
            runs[case].append(once(lab, settings, jobs=jobs))
    rates = {case: [run.rate for run in found] for case, found in runs.items()}
    plain = rates["claims of ten"]
    table = Table(title=f"Drain of {jobs:,} no-op jobs by {WORKERS} workers of {SLOTS} slots", headings=drain.HEADINGS)
    table.rows += [drain.row(case, WORKERS, found) for case, found in runs.items()]
    return Outcome(
        ratios={
            "limit_cost_10": ratio(plain, rates["limit of 100"]),
            "limit_1000_cost_10": ratio(plain, rates["limit of 1,000"]),
            "limit_task_cost_10": ratio(plain, rates["limit of the task"]),
            "rate_cost_10": ratio(plain, rates["rate"]),
        },
        figures={},
        tables=[table],
    )
