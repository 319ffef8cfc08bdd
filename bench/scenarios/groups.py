"""groups: how fast members of serial groups are drained, and what stuck ones cost the jobs without a group.

Ratios are to the plain drain of as many jobs by as many processes in the same round.
"""

from collections.abc import Callable

from bench.report import Outcome, Table, ratio
from bench.runs import Drained, Lab
from bench.scenarios import Options, drain
from bench.sides import CONTROL, ours

JOBS, QUICK_JOBS = 200_000, 4_000
STUCK, QUICK_STUCK = 100_000, 2_000
MANY, QUICK_MANY = 10_000, 200
FEW, QUICK_FEW = 100, 10
WORKERS = 2


def plain(lab: Lab, options: Options) -> Drained:
    """Drain jobs without a group."""
    return drain.once(lab, ours(), jobs=options.number(JOBS, QUICK_JOBS), workers=WORKERS)


def grouped(lab: Lab, options: Options, groups: int) -> Drained:
    """Drain as many jobs that stand interleaved in groups."""
    side, jobs = ours(), options.number(JOBS, QUICK_JOBS)
    database = lab.fresh(side)
    with lab.server.connect(database) as connection:
        connection.execute(CONTROL["ours_grouped"], (groups, jobs))
    lab.settle(database)
    return lab.drain(side, database, jobs=jobs, floor=0, workers=WORKERS)


def stuck(lab: Lab, options: Options) -> Drained:
    """Drain jobs without a group beside members of two groups that are busy elsewhere."""
    side, jobs = ours(), options.number(JOBS, QUICK_JOBS)
    database = lab.fresh(side)
    with lab.server.connect(database) as connection:
        connection.execute(CONTROL["ours_stuck"], (options.scaled(STUCK, QUICK_STUCK),))
        connection.execute(CONTROL["ours_busy"])
    floor = lab.fill(side, database, jobs)
    lab.settle(database)
    return lab.drain(side, database, jobs=jobs, floor=floor, workers=WORKERS)


def run(lab: Lab, options: Options) -> Outcome:
    """Take turns between the kinds."""
    cases: dict[str, Callable[[], Drained]] = {
        "no groups": lambda: plain(lab, options),
        "beside stuck members": lambda: stuck(lab, options),
        "many groups": lambda: grouped(lab, options, options.scaled(MANY, QUICK_MANY)),
        "few groups": lambda: grouped(lab, options, options.scaled(FEW, QUICK_FEW)),
    }
    runs: dict[str, list[Drained]] = {case: [] for case in cases}
    for _ in range(options.rounds):
        for case, measure in cases.items():
            runs[case].append(measure())
    rates = {case: [run.rate for run in found] for case, found in runs.items()}
    table = Table(title="Drain of serial groups", headings=drain.HEADINGS)
    table.rows += [drain.row(case, WORKERS, found) for case, found in runs.items()]
    return Outcome(
        ratios={
            "groups_stuck_drain": ratio(rates["beside stuck members"], rates["no groups"]),
            "groups_many_drain": ratio(rates["many groups"], rates["no groups"]),
            "groups_few_drain": ratio(rates["few groups"], rates["no groups"]),
        },
        figures={},
        tables=[table],
    )
