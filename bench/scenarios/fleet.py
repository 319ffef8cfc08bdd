"""fleet: a thousand JobQueues on a real API server: from nothing to their children, the cost of standing still, a resync.

Cold is from the start of the controller's process until each JobQueue has its Deployment, its PodDisruptionBudget and a
status of its generation. Pods run because the benchmark writes what a kubelet would.
"""

import time

from bench import procfs
from bench.fleet_site import Site, scrape, site
from bench.report import Outcome, Table, median
from bench.runs import Lab, RunError
from bench.scenarios import Options
from bench.sides import ours
from tests.rig.kube.controllers import ControllerProcess

QUEUES, QUICK_QUEUES = 1000, 20
REPLICAS = 2
"""With one there would be no PodDisruptionBudget."""
COLD_SECONDS = 600.0
SETTLE_SECONDS, QUICK_SETTLE_SECONDS = 60.0, 3.0
IDLE_SECONDS, QUICK_IDLE_SECONDS = 120.0, 5.0
RESYNC_SECONDS, QUICK_RESYNC_SECONDS = 120, 10
SCRAPES = 7

GOALS = {
    "fleet_cold_s": "≤ 120",
    "fleet_idle_cores_percent": "≤ 5",
    "fleet_rss_mb": "≤ 256",
    "fleet_series_a_queue": "≤ 40",
    "fleet_scrape_ms": "≤ 300",
    "fleet_resync_writes": "0",
}


def _done(process: ControllerProcess) -> float:
    return process.metric("tailrace_reconcile_total")


def _settle(process: ControllerProcess, seconds: float) -> None:
    """Wait until no JobQueue waits to be looked at, and then for what comes of it."""
    Site.until(lambda: process.metric("tailrace_workqueue_depth") == 0, COLD_SECONDS, "an empty work queue")
    time.sleep(seconds)


def cold(place: Site, queues: int, options: Options) -> dict[str, float]:
    """From nothing to children and status, then the cost of standing still."""
    figures: dict[str, float] = {}
    with place.controller() as process:
        figures["fleet_cold_s"] = place.until(lambda: place.converged() >= queues, COLD_SECONDS, "children and status")
        place.run_pods(queues * REPLICAS, seconds=COLD_SECONDS)
        place.until(lambda: place.ready() >= queues, COLD_SECONDS, "ready JobQueues")
        _settle(process, QUICK_SETTLE_SECONDS if options.quick else SETTLE_SECONDS)
        seconds = QUICK_IDLE_SECONDS if options.quick else IDLE_SECONDS
        before, looks = procfs.process_cpu_seconds(process.pid), _done(process)
        began = time.monotonic()
        time.sleep(seconds)
        used = procfs.process_cpu_seconds(process.pid) - before
        figures["fleet_idle_cores_percent"] = 100 * used / (time.monotonic() - began)
        figures["fleet_idle_looks_per_s"] = (_done(process) - looks) / seconds
        taken = [scrape(process) for _ in range(SCRAPES)]
        lines = taken[-1][1]
        figures["fleet_scrape_ms"] = 1000 * median(seconds for seconds, _ in taken)
        figures["fleet_series"] = len(lines)
        figures["fleet_series_a_queue"] = sum(1 for line in lines if 'queue="q1"' in line)
        figures["fleet_rss_mb"] = procfs.peak_rss_mb(process.pid)
    return figures


def resync(place: Site, queues: int, options: Options) -> dict[str, float]:
    """Look at every JobQueue again with nothing changed; what is written then is written for nothing."""
    period = options.scaled(RESYNC_SECONDS, QUICK_RESYNC_SECONDS)
    with place.controller(TAILRACE_RESYNC_SECONDS=str(period)) as process:
        process.wait_ready(COLD_SECONDS)
        _settle(process, 2.0 * period)  # after a start each child is applied once
        mark, looks = place.cluster.audit.mark(), _done(process)
        place.until(lambda: _done(process) - looks >= queues, 4.0 * period, "a look at each")
        return {"fleet_resync_writes": float(place.writes(mark)), "fleet_resync_looks": _done(process) - looks}


def run(lab: Lab, options: Options) -> Outcome:
    """Measure once a round, each on a control plane of its own; `--jobs` is the number of JobQueues."""
    queues = options.number(QUEUES, QUICK_QUEUES)
    rounds: list[dict[str, float]] = []
    for _ in range(options.rounds):
        database = lab.fresh(ours())
        with site() as place:
            place.secret(lab.server.dsn(database))
            place.create(queues, replicas=REPLICAS)
            rounds.append({**cold(place, queues, options), **resync(place, queues, options)})
    if not rounds:
        raise RunError("no round was asked for")
    figures = {name: median(one[name] for one in rounds) for name in rounds[0]}
    table = Table(title=f"{queues} JobQueues with {REPLICAS} workers each", headings=["what", "measured", "goal"])
    table.rows += [(name, value, GOALS.get(name, "")) for name, value in figures.items()]
    return Outcome(figures=figures, tables=[table])
