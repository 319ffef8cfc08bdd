"""pickup: how soon an idle worker starts a job after its commit, also when the commit comes late."""

from bench.report import Outcome, Table, median, ratio
from bench.runs import Lab, Pickups
from bench.scenarios import Options, late
from bench.sides import Side, ceil, ours

JOBS, QUICK_JOBS = 300, 20
GAP_MS = 20.0

HEADINGS = ("who", "jobs", "p50 ms", "p99 ms", "worst ms")


def once(lab: Lab, side: Side, database: str, *, jobs: int) -> Pickups:
    """Take the latencies of jobs that come one by one, 20 to 40 ms apart."""
    with lab.idle_worker(side, database) as worker:
        return lab.latencies(side, database, worker, "paced", jobs=jobs, gap_ms=GAP_MS)


def row(label: str, runs: list[Pickups]) -> tuple[object, ...]:
    """Return the line of a table for some runs of one kind, under `HEADINGS`."""
    count = sum(len(run.ms) for run in runs)
    return (label, count, median(run.p50 for run in runs), median(run.p99 for run in runs), max(max(run.ms) for run in runs))


def run(lab: Lab, options: Options) -> Outcome:
    """Run the reference and ours in turn, then the late commits."""
    jobs = options.number(JOBS, QUICK_JOBS)
    sides = (ceil(), ours())
    runs: dict[str, list[Pickups]] = {side.label: [] for side in sides}
    for _ in range(options.rounds):
        for side in sides:
            database = lab.fresh(side)
            lab.settle(database)
            runs[side.label].append(once(lab, side, database, jobs=jobs))
    table = Table(title="Pickup on an idle queue, from the commit's return to the handler", headings=HEADINGS)
    table.rows += [row(label, found) for label, found in runs.items()]
    outcome = Outcome(
        ratios={"pickup_p50": ratio([run.p50 for run in runs["ours"]], [run.p50 for run in runs["ceil"]])},
        figures={
            "pickup_p50_ms": median(run.p50 for run in runs["ours"]),
            "pickup_p99_ms": median(run.p99 for run in runs["ours"]),
            "ceil_pickup_p50_ms": median(run.p50 for run in runs["ceil"]),
            "ceil_pickup_p99_ms": median(run.p99 for run in runs["ceil"]),
        },
        tables=[table],
    )
    behind = late.run(lab, Options(rounds=options.rounds, jobs=None, quick=options.quick))
    outcome.figures.update(behind.figures)
    outcome.tables += behind.tables
    return outcome
