"""held: what is left of the drain and the pickup while another session holds an old snapshot.

Finished rows cannot be vacuumed then, so each claim that starts from the beginning walks all of them.
"""

from bench.report import Outcome, Table, median
from bench.runs import Drained, Lab, Pickups
from bench.scenarios import Options, pickup
from bench.sides import CONTROL, Side, ceil, ours

STEPS, QUICK_STEPS = 11, 2
STEP_JOBS, QUICK_STEP_JOBS = 20_000, 1_000
LATENCIES, QUICK_LATENCIES = 100, 10
WARM_JOBS = 100

HEADINGS = ("who", "churned", "first jobs/s", "last jobs/s", "kept", "min", "max", "p50 ms", "p99 ms")


def _step(lab: Lab, side: Side, database: str, *, jobs: int) -> Drained:
    floor = lab.fill(side, database, jobs)
    lab.settle(database, vacuum=False)
    return lab.drain(side, database, jobs=jobs, floor=floor)


def once(lab: Lab, side: Side, options: Options) -> tuple[list[Drained], Pickups]:
    """Churn in steps, each with a fresh worker, under one snapshot; then take pickup latencies with it still held."""
    jobs = options.number(STEP_JOBS, QUICK_STEP_JOBS)
    database = lab.fresh(side)
    _step(lab, side, database, jobs=WARM_JOBS)
    with lab.server.connect(database) as holder:
        holder.execute("begin isolation level repeatable read")
        holder.execute(CONTROL["snapshot"])  # the first statement takes the snapshot
        steps = [_step(lab, side, database, jobs=jobs) for _ in range(options.scaled(STEPS, QUICK_STEPS))]
        latencies = pickup.once(lab, side, database, jobs=options.scaled(LATENCIES, QUICK_LATENCIES))
        holder.execute("rollback")
    return steps, latencies


def run(lab: Lab, options: Options) -> Outcome:
    """Run the reference and ours in turn; kept is the last step's rate to the first's."""
    sides = (ceil(), ours())
    runs: dict[str, list[tuple[list[Drained], Pickups]]] = {side.label: [] for side in sides}
    for _ in range(options.rounds):
        for side in sides:
            runs[side.label].append(once(lab, side, options))
    table = Table(title="Under a held snapshot", headings=HEADINGS)
    kept: dict[str, list[float]] = {}
    for label, found in runs.items():
        kept[label] = [steps[-1].rate / steps[0].rate for steps, _ in found]
        churned = sum(step.jobs for step in found[0][0])
        first, last = (median(steps[place].rate for steps, _ in found) for place in (0, -1))
        times = [median(latencies.p50 for _, latencies in found), median(latencies.p99 for _, latencies in found)]
        table.rows.append((label, churned, first, last, median(kept[label]), min(kept[label]), max(kept[label]), *times))
    return Outcome(
        ratios={"held_kept": median(kept["ours"])},
        figures={
            "held_pickup_p50_ms": median(latencies.p50 for _, latencies in runs["ours"]),
            "held_pickup_p99_ms": median(latencies.p99 for _, latencies in runs["ours"]),
            "ceil_held_kept": median(kept["ceil"]),
        },
        tables=[table],
    )
