"""drain: how fast a filled queue is emptied, by one and two processes, tuned and untouched."""

from bench.report import Outcome, Table, median, ratio
from bench.runs import Drained, Lab
from bench.scenarios import Options
from bench.sides import Side, ceil, ours

JOBS, QUICK_JOBS = 100_000, 2_000

HEADINGS = ("who", "workers", "jobs/s", "min", "max", "start ms", "PG us", "worker us", "RSS MB", "ran twice", "other CPU")


def once(lab: Lab, side: Side, *, jobs: int, workers: int = 1) -> Drained:
    """Fill a fresh database and drain it."""
    database = lab.fresh(side)
    floor = lab.fill(side, database, jobs)
    lab.settle(database)
    return lab.drain(side, database, jobs=jobs, floor=floor, workers=workers)


def reference(lab: Lab, options: Options) -> float:
    """Return the rate of the reference's drain: what the rates of other work are taken to, so that machines compare."""
    rate = once(lab, ceil(), jobs=options.scaled(JOBS, QUICK_JOBS)).rate
    lab.discard(ceil())
    return rate


def row(label: str, workers: int, runs: list[Drained]) -> tuple[object, ...]:
    """Return the line of a table for some runs of one kind, under `HEADINGS`."""
    rates = [run.rate for run in runs]
    middle = [median(getattr(run, name) for run in runs) for name in ("start_ms", "pg_us", "worker_us", "rss_mb")]
    twice = sum(run.ran_twice for run in runs)
    return (label, workers, median(rates), min(rates), max(rates), *middle, twice, max(run.other_cores for run in runs))


def run(lab: Lab, options: Options) -> Outcome:
    """Run the reference and ours in turn; ratios are ours to the tuned reference."""
    jobs = options.number(JOBS, QUICK_JOBS)
    tuned, untouched = ours(), ours(slots=None)
    plan = [(ceil(), 1), (tuned, 1), (untouched, 1), (ceil(), 2), (tuned, 2)]
    runs: dict[tuple[str, int], list[Drained]] = {(side.label, workers): [] for side, workers in plan}
    for _ in range(options.rounds):
        for side, workers in plan:
            runs[side.label, workers].append(once(lab, side, jobs=jobs, workers=workers))
    rates = {key: [run.rate for run in found] for key, found in runs.items()}
    ours_1 = runs[tuned.label, 1]
    table = Table(title=f"Drain of {jobs:,} no-op jobs", headings=HEADINGS)
    table.rows += [row(label, workers, found) for (label, workers), found in runs.items()]
    return Outcome(
        ratios={
            "drain_1": ratio(rates[tuned.label, 1], rates["ceil", 1]),
            "drain_2": ratio(rates[tuned.label, 2], rates["ceil", 2]),
            "drain_default_1": ratio(rates[untouched.label, 1], rates["ceil", 1]),
        },
        figures={
            "drain_1_per_s": median(rates[tuned.label, 1]),
            "drain_2_per_s": median(rates[tuned.label, 2]),
            "ceil_1_per_s": median(rates["ceil", 1]),
            "ceil_2_per_s": median(rates["ceil", 2]),
            "worker_rss_mb": max(run.rss_mb for run in ours_1),
            "pg_us": median(run.pg_us for run in ours_1),
            "worker_us": median(run.worker_us for run in ours_1),
        },
        tables=[table],
    )
