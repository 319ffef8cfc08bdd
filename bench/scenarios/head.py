"""head: whether rows that a worker must pass by at the head of the queue cost the jobs behind them anything.

Two kinds: jobs of tasks that no worker knows, and jobs that run in other workers. Those ten workers take a part of the
machine, so the same ones with jobs of another queue are what that is compared with. A first worker has met them, as in a
queue that lives; the cost of the very first look is a figure of its own.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack

from bench.children import Child
from bench.report import Outcome, Table, ratio
from bench.runs import Drained, Lab, RunError
from bench.scenarios import Options, drain
from bench.sides import CONTROL, ours

JOBS, QUICK_JOBS = 200_000, 2_000
UNKNOWN, QUICK_UNKNOWN = 300_000, 10_000
RUNNING, QUICK_RUNNING = 10_000, 200
MAX_SLOTS = 1_000
"""Most slots that a worker takes: 10,000 running jobs need ten of them."""
WARM_JOBS = 1_000
WARM_LINGER_SECONDS = 1.0
"""Floors are stored each 250 ms; a worker that has lived this long has left one."""
CLAIM_SECONDS = 60.0


def _measure(lab: Lab, database: str, *, jobs: int, warm: bool) -> Drained:
    side = ours()
    if warm:
        floor = lab.fill(side, database, WARM_JOBS)
        lab.drain(side, database, jobs=WARM_JOBS, floor=floor, linger=WARM_LINGER_SECONDS)
    floor = lab.fill(side, database, jobs)
    lab.settle(database)
    return lab.drain(side, database, jobs=jobs, floor=floor)


def plain(lab: Lab, options: Options) -> Drained:
    """Drain a queue with nothing at its head."""
    return _measure(lab, lab.fresh(ours()), jobs=options.number(JOBS, QUICK_JOBS), warm=True)


def unknown(lab: Lab, options: Options, *, warm: bool = True) -> Drained:
    """Drain a queue with due jobs of an unknown task at its head."""
    database = lab.fresh(ours())
    with lab.server.connect(database) as connection:
        connection.execute(CONTROL["ours_unknown"], (options.scaled(UNKNOWN, QUICK_UNKNOWN),))
    return _measure(lab, database, jobs=options.number(JOBS, QUICK_JOBS), warm=warm)


def running(lab: Lab, options: Options, *, queue: str = "default") -> Drained:
    """Drain a queue whose head runs in other, living workers; of another queue they only take their share of the machine."""
    number = options.scaled(RUNNING, QUICK_RUNNING)
    database = lab.fresh(ours())
    with lab.server.connect(database) as connection:
        connection.execute(CONTROL["ours_held_open"], (queue, number))
    with ExitStack() as stack:
        side = ours(slots=min(number, MAX_SLOTS), queue=queue)
        busy = [stack.enter_context(lab.worker(side, database)) for _ in range(-(-number // MAX_SLOTS))]
        for child in busy:
            child.wait_ready()
            child.go()
        _await_running(lab, database, busy, number)
        return _measure(lab, database, jobs=options.number(JOBS, QUICK_JOBS), warm=True)


def _await_running(lab: Lab, database: str, busy: list[Child], number: int) -> None:
    """Wait until all the jobs at the head run."""
    deadline = time.monotonic() + CLAIM_SECONDS
    with lab.server.connect(database) as connection:
        while (row := connection.execute(CONTROL["ours_running"]).fetchone()) is None or row[0] < number:
            for child in busy:
                child.check()
            if time.monotonic() > deadline:
                raise RunError(f"the busy workers did not claim {number} jobs within {CLAIM_SECONDS:.0f} s")
            time.sleep(0.05)


def run(lab: Lab, options: Options) -> Outcome:
    """Take turns between a plain queue and those with a head; ratios are with to without."""
    cases: dict[str, Callable[[], Drained]] = {
        "without": lambda: plain(lab, options),
        "unknown": lambda: unknown(lab, options),
        "running elsewhere": lambda: running(lab, options, queue="elsewhere"),
        "running": lambda: running(lab, options),
        "unknown, first look": lambda: unknown(lab, options, warm=False),
    }
    runs: dict[str, list[Drained]] = {case: [] for case in cases}
    for _ in range(options.rounds):
        for case, measure in cases.items():
            runs[case].append(measure())
    rates = {case: [run.rate for run in found] for case, found in runs.items()}
    table = Table(title="Drain behind rows that must be passed by", headings=drain.HEADINGS)
    table.rows += [drain.row(case, 1, found) for case, found in runs.items()]
    return Outcome(
        ratios={
            "unknown_head_drain": ratio(rates["unknown"], rates["without"]),
            "running_head_drain": ratio(rates["running"], rates["running elsewhere"]),
        },
        figures={"unknown_head_first_look_drain": ratio(rates["unknown, first look"], rates["without"])},
        tables=[table],
    )
