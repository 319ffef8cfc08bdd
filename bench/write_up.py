"""Writes the result table of `docs/performance.md` from recorded runs.

``python -m bench NAME --record FILE`` appends a run; ``python -m bench.write_up FILE`` puts the newest run of each
name into the page, between its two markers.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


@dataclass(frozen=True)
class Line:
    """One line of the table: which value, what it is, and what it should be."""

    bench: str
    name: str
    meaning: str
    goal: str


LINES = (
    Line("drain", "drain_1", "drain, 1 process, to ceil", "≥ 0.75"),
    Line("drain", "drain_2", "drain, 2 processes, to ceil", "≥ 0.75"),
    Line("drain", "drain_default_1", "drain, 1 process, default settings, to tuned ceil", "≥ 0.75"),
    Line("drain", "drain_1_per_s", "jobs a second, 1 process", ""),
    Line("drain", "drain_2_per_s", "jobs a second, 2 processes", ""),
    Line("drain", "pg_us", "CPU of PostgreSQL a job, µs", "≤ 9"),
    Line("drain", "worker_us", "CPU of the worker a job, µs", "≤ 12"),
    Line("drain", "worker_rss_mb", "peak memory of a draining worker, MB", "≤ 80"),
    Line("pickup", "pickup_p50", "pickup p50, to ceil", "≤ 0.85"),
    Line("pickup", "pickup_p50_ms", "pickup p50, ms", ""),
    Line("pickup", "pickup_p99_ms", "pickup p99, ms", "≤ 4"),
    Line("pickup", "late_p50_ms_0.2", "transaction open 0.2 s, p50 after its commit, ms", "≤ 20"),
    Line("pickup", "late_p50_ms_2", "transaction open 2 s, p50 after its commit, ms", "≤ 20"),
    Line("held", "held_kept", "drain kept under a held snapshot", "≥ 0.88"),
    Line("held", "held_pickup_p50_ms", "pickup p50 then, ms", "≤ 3"),
    Line("held", "held_pickup_p99_ms", "pickup p99 then, ms", "≤ 20"),
    Line("held", "ceil_held_kept", "the same drain kept by ceil", ""),
    Line("future", "future_pickup_p50", "pickup p50 with 1,000,000 future jobs, to without", "1"),
    Line("future", "future_drain", "drain with them, to without", "1"),
    Line("head", "unknown_head_drain", "drain behind 300,000 jobs of an unknown task, to without", "1"),
    Line("head", "running_head_drain", "drain behind 10,000 running jobs, to the same ones in another queue", "1"),
    Line("head", "unknown_head_first_look_drain", "the unknown head, met for the first time", ""),
    Line("groups", "groups_many_drain", "drain of 10,000 groups of 20 by 2 processes, to without groups", "≥ 0.3"),
    Line("groups", "groups_few_drain", "drain of 100 groups of 2,000 by 2 processes, to without groups", "≥ 0.2"),
    Line("groups", "groups_stuck_drain", "drain beside 100,000 members of busy groups, to without", "≥ 0.95"),
    Line("limits", "limit_cost_10", "a concurrency limit, time of a job in claims of ten, to without", "≤ 2"),
    Line("limits", "limit_task_cost_10", "a limit of the task, likewise", "≤ 2"),
    Line("limits", "rate_cost_10", "a rate, likewise", "≤ 2"),
    Line("enqueue", "enqueue_1", "enqueue one by one, 1 connection, to ceil", ""),
    Line("enqueue", "enqueue_16", "enqueue one by one, 16 connections, to ceil", ""),
    Line("enqueue", "enqueue_bulk", "enqueue 100,000 in bulk, to ceil", ""),
    Line("enqueue", "enqueue_1_per_s", "jobs a second, 1 connection", ""),
    Line("enqueue", "enqueue_16_per_s", "jobs a second, 16 connections", ""),
    Line("enqueue", "enqueue_bulk_per_s", "jobs a second, bulk", ""),
    Line("dead_letters", "dead_page_worst_ms", "slowest page of 5,000,000 dead letters, any filter, ms", "≤ 20"),
    Line("dead_letters", "dead_stats_ms", "their counts, ms", "≤ 100"),
    Line("dead_letters", "dead_requeue_per_s", "requeue of 100,000, jobs a second", "≥ 20,000"),
    Line("dead_letters", "dead_requeue_to_ceil", "the same, to a drain by ceil", "≥ 0.225"),
    Line("dead_letters", "dead_requeue_pickup_p99", "pickup p99 meanwhile, to idle", "≤ 2"),
    Line("maintenance_scale", "sweep_rows_per_s", "full sweep of 1,000,000 exhausted jobs, rows a second", "≥ 50,000"),
    Line("maintenance_scale", "sweep_to_ceil", "the same, to a drain by ceil", "≥ 0.56"),
    Line("maintenance_scale", "sweep_pickup_p99", "pickup p99 meanwhile, to idle", ""),
    Line("maintenance_scale", "audit_slice_ms", "a minute's slice of the audit over 10,000,000 ready jobs, ms", "≤ 200"),
    Line("maintenance_scale", "audit_slice_worst_ms", "the slowest such slice, ms", ""),
    Line("fleet", "fleet_cold_s", "1,000 JobQueues from nothing to children and status, s", "≤ 120"),
    Line("fleet", "fleet_idle_cores_percent", "the controller standing still, % of a core", "≤ 5"),
    Line("fleet", "fleet_rss_mb", "its peak memory, MB", "≤ 256"),
    Line("fleet", "fleet_series_a_queue", "series of a queue", "≤ 40"),
    Line("fleet", "fleet_scrape_ms", "a scrape, ms", "≤ 300"),
    Line("fleet", "fleet_resync_writes", "writes of an unchanged resync", "0"),
)


def newest(lines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the last recorded run of each benchmark."""
    runs = (json.loads(line) for line in lines if line.strip())
    return {run["bench"]: run for run in runs}


def table(runs: dict[str, dict[str, Any]]) -> str:
    """Return the markdown table of the recorded runs, and where they took place."""
    rows = ["| what | measured | goal | command | rounds |", "|---|---|---|---|---|"]
    for line in LINES:
        run = runs.get(line.bench)
        value = {**run["figures"], **run["ratios"]}.get(line.name) if run else None
        if run and value is not None:
            rows.append(f"| {line.meaning} | {_number(value)} | {line.goal} | `make bench NAME={line.bench}` | {run['rounds']} |")
    return "\n".join([*(_place(run) for run in list(runs.values())[:1]), "", *rows])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _place(run: dict[str, Any]) -> str:
    machine = run["machine"]
    memory = f"{machine['memory_mb'] / 1024:.0f} GiB"
    return (
        f"{machine['cores']} cores, {memory}, {machine['system']}, Python {machine['python']}, "
        f"PostgreSQL {machine['postgresql']}, {machine['at'][:10]}. Medians of the rounds."
    )


def put_into(page: str, text: str) -> str:
    """Return the page with everything between its markers replaced.

    Raises:
        ValueError: a marker is missing.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN} and {END}: put them where the table belongs")
    return f"{head}{BEGIN}\n{text}\n{END}{tail}"


def main(record: Path) -> None:
    """Rewrite the page's table from a file of recorded runs."""
    runs = newest(record.read_text(encoding="utf-8").splitlines())
    PAGE.write_text(put_into(PAGE.read_text(encoding="utf-8"), table(runs)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
