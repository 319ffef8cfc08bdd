"""future: whether a million jobs that are due next month cost the jobs that are due now anything."""

from bench.report import Outcome, Table, median, ratio
from bench.runs import Drained, Lab, Pickups
from bench.scenarios import Options, drain, pickup
from bench.sides import CONTROL, ours

FUTURE_JOBS, QUICK_FUTURE_JOBS = 1_000_000, 20_000
PICKUPS, QUICK_PICKUPS = 300, 20
DRAIN_JOBS, QUICK_DRAIN_JOBS = 100_000, 2_000


def run(lab: Lab, options: Options) -> Outcome:
    """Take turns between a database without and one with the future jobs; ratios are with to without."""
    side = ours()
    jobs = options.number(DRAIN_JOBS, QUICK_DRAIN_JOBS)
    future = options.scaled(FUTURE_JOBS, QUICK_FUTURE_JOBS)
    databases = {case: lab.fresh(side, case=case) for case in ("without", "with")}
    with lab.server.connect(databases["with"]) as connection:
        connection.execute(CONTROL["ours_future"], (future,))
    pickups: dict[str, list[Pickups]] = {case: [] for case in databases}
    drains: dict[str, list[Drained]] = {case: [] for case in databases}
    for _ in range(options.rounds):
        for case, database in databases.items():
            lab.settle(database)
            pickups[case].append(pickup.once(lab, side, database, jobs=options.scaled(PICKUPS, QUICK_PICKUPS)))
        for case, database in databases.items():
            floor = lab.fill(side, database, jobs)
            lab.settle(database)
            drains[case].append(lab.drain(side, database, jobs=jobs, floor=floor))
    latency = Table(title=f"Pickup without and with {future:,} jobs due next month", headings=pickup.HEADINGS)
    latency.rows += [pickup.row(case, found) for case, found in pickups.items()]
    speed = Table(title=f"Drain of {jobs:,} jobs without and with them", headings=drain.HEADINGS)
    speed.rows += [drain.row(case, 1, found) for case, found in drains.items()]
    return Outcome(
        ratios={
            "future_pickup_p50": ratio([run.p50 for run in pickups["with"]], [run.p50 for run in pickups["without"]]),
            "future_drain": ratio([run.rate for run in drains["with"]], [run.rate for run in drains["without"]]),
        },
        figures={
            "future_pickup_p50_ms": median(run.p50 for run in pickups["with"]),
            "future_pickup_p99_ms": median(run.p99 for run in pickups["with"]),
        },
        tables=[latency, speed],
    )
