"""late: how soon a job starts after its commit when its transaction stayed open after the enqueue.

Such a row appears behind newer rows that were claimed long ago, so a worker that only looks
forward would miss it. A stream of other jobs, committed at once, moves the worker forward.
"""

from bench.report import Outcome, Table, median
from bench.runs import Lab, Pickups
from bench.scenarios import Options
from bench.sides import Side, ceil, ours

OPEN_SECONDS = (0.02, 0.2, 2.0)
STREAM_PER_SECOND = 10_000
LANES = 16
JOBS, QUICK_JOBS = 100, 8

HEADINGS = ("who", "open s", "other jobs/s", "jobs", "p50 ms", "p99 ms", "worst ms")


def once(lab: Lab, side: Side, *, jobs: int, seconds: float, load: int) -> Pickups:
    """Take the latencies of late commits on a fresh database."""
    database = lab.fresh(side)
    lab.settle(database)
    with lab.idle_worker(side, database) as worker:
        return lab.latencies(side, database, worker, "late", jobs=jobs, lanes=LANES, open_seconds=seconds, load=load)


def run(lab: Lab, options: Options) -> Outcome:
    """Run each open time, beside a stream and on an idle queue; the reference only to show what the problem is."""
    jobs = options.number(JOBS, QUICK_JOBS)
    stream = options.scaled(STREAM_PER_SECOND, 500)
    plan = [(ours(), seconds, load) for seconds in OPEN_SECONDS for load in (stream, 0)]
    plan.append((ceil(), OPEN_SECONDS[-1], stream))
    runs: dict[tuple[str, float, int], list[Pickups]] = {(side.label, seconds, load): [] for side, seconds, load in plan}
    for _ in range(options.rounds):
        for side, seconds, load in plan:
            runs[side.label, seconds, load].append(once(lab, side, jobs=jobs, seconds=seconds, load=load))
    table = Table(title="Late commits, from the commit's return to the handler", headings=HEADINGS)
    for (label, seconds, load), found in runs.items():
        count = sum(len(run.ms) for run in found)
        worst = max(max(run.ms) for run in found)
        table.rows.append((label, seconds, load, count, median(r.p50 for r in found), median(r.p99 for r in found), worst))
    p50 = {seconds: median(run.p50 for run in runs["ours", seconds, stream]) for seconds in OPEN_SECONDS}
    p99 = {seconds: median(run.p99 for run in runs["ours", seconds, stream]) for seconds in OPEN_SECONDS}
    return Outcome(
        figures={
            "late_p50_ms": max(p50[0.2], p50[2.0]),
            "late_p50_ms_0.02": p50[0.02],
            "late_p50_ms_0.2": p50[0.2],
            "late_p50_ms_2": p50[2.0],
            "late_p99_ms_2": p99[2.0],
        },
        tables=[table],
    )
