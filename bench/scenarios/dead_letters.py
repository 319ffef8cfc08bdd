"""dead_letters: lists, counts and requeues beside five million dead letters.

A page is asked for as the library does, on an open connection, each filter many times at different places. The requeue is
one call of the library, while an idle worker's pickup of other jobs is measured beside it; its rate is taken to a drain by
the reference in the same round.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
from psycopg import sql
from pydantic import SecretStr

from bench.report import Outcome, Table, median, quantile, ratio
from bench.runs import Lab, Pickups, RunError
from bench.scenarios import Options, drain, pickup
from bench.sides import CONTROL, ours
from tailrace.admin import AdminUsing
from tailrace.db import Database

ROWS, QUICK_ROWS = 5_000_000, 20_000
REQUEUED, QUICK_REQUEUED = 100_000, 2_000
CHUNK = 100_000
PAGES, QUICK_PAGES = 20, 3
JOBS, QUICK_JOBS = 120, 10
SETTLE_SECONDS = 1.0

FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "queue": {"queue": "queue-3"},
    "task": {"task": "task-7"},
    "key": {"key": "key-4000"},
    "tenant": {"tenant": "tenant-5"},
    "reason": {"reason": "interrupted"},
    "error type": {"error_type": "forbidden"},
    "fingerprint": {"fingerprint": "eccbc87e4b5ce2fe28308fd9f2a7baf3"},
    "state": {"state": "resolved"},
    "any state": {"state": "all"},
    "failed before": {"failed_before": timedelta(days=60)},
    "failed after": {"failed_after": timedelta(days=30)},
    "text": {"text": "no route"},
    "rare text": {"text": "host 4711"},
    "queue and task": {"queue": "queue-3", "task": "task-7"},
    "a rare mix": {"tenant": "tenant-5", "reason": "interrupted", "error_type": "forbidden", "queue": "queue-3"},
}
"""What is asked for; a duration stands for that long ago."""


@contextmanager
def _without_indexes(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Build the indexes at the end: five million rows through eight indexes take half an hour."""
    indexes = connection.execute(CONTROL["ours_dead_letter_indexes"]).fetchall()
    for name, _ in indexes:
        connection.execute(sql.SQL("drop index {}").format(sql.Identifier("tailrace", name)))
    yield
    connection.execute("set maintenance_work_mem = '512MB'")
    for _, definition in indexes:
        connection.execute(definition.encode())


def filled(lab: Lab, rows: int) -> str:
    """Return the name of a database with so many dead letters, vacuumed and with their counts folded."""
    database = lab.fresh(ours(), case="dead")
    bounds = [*range(0, rows, CHUNK), rows]
    with lab.server.connect(database) as connection:
        with _without_indexes(connection):
            for first, last in pairwise(bounds):
                connection.execute(CONTROL["ours_dead_letters"], (first + 1, last))
        connection.execute(CONTROL["ours_after_dead_letters"])
    lab.settle(database)
    return database


def _asked(which: dict[str, Any]) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {name: now - value if isinstance(value, timedelta) else value for name, value in which.items()}


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    found = call()
    return (time.monotonic() - began) * 1e3, found


def pages(words: AdminUsing, which: dict[str, Any], number: int) -> tuple[list[float], int]:
    """Take the times of the first pages of a list, ms, and count their rows."""
    times, rows, after = list[float](), 0, None
    words.dead_letters.list(**which)  # the first call of a session plans
    for _ in range(number):
        ms, page = _timed(lambda after=after: words.dead_letters.list(after=after, **which))  # type: ignore[misc]
        times.append(ms)
        rows, after = rows + len(page), page.after
    return times, rows


def looks(lab: Lab, database: str, options: Options, outcome: Outcome) -> None:
    """Measure lists and counts."""
    number = options.scaled(PAGES, QUICK_PAGES)
    table = Table(title="Pages of 50 dead letters", headings=("filter", "pages", "rows", "p50 ms", "worst ms"))
    place = Database(url=SecretStr(lab.server.dsn(database)))
    with place.connect() as connection:
        words = AdminUsing(connection, place)
        worst = list[float]()
        for label, which in FILTERS.items():
            times, rows = pages(words, _asked(which), number)
            worst.append(max(times))
            table.rows.append((label, number, rows, quantile(times, 0.5), max(times)))
        stats = [_timed(words.dead_letters.stats)[0] for _ in range(number)]
    table.rows.append(("stats", number, 1, quantile(stats, 0.5), max(stats)))
    outcome.tables.append(table)
    outcome.figures |= {"dead_page_worst_ms": max(worst), "dead_stats_ms": max(stats)}


def requeue(lab: Lab, database: str, options: Options) -> tuple[float, Pickups, Pickups]:
    """Requeue many while a worker serves another queue; jobs a second, and its pickups a moment before and meanwhile."""
    wanted, jobs = options.scaled(REQUEUED, QUICK_REQUEUED), options.scaled(JOBS, QUICK_JOBS)
    lab.settle(database, vacuum=False)
    place = Database(url=SecretStr(lab.server.dsn(database)))
    took = list[float]()

    def work() -> None:
        with place.connect() as connection:
            ms, done = _timed(
                lambda: AdminUsing(connection, place).dead_letters.requeue(state="dead", max_jobs=wanted, anew=True)
            )
        if done.done != wanted:
            raise RunError(f"{done.done} of {wanted} were requeued")
        took.append(ms / 1e3)

    with lab.idle_worker(ours(), database) as worker:
        time.sleep(SETTLE_SECONDS)
        alone = lab.latencies(ours(), database, worker, "paced", jobs=jobs, gap_ms=pickup.GAP_MS)
        thread = threading.Thread(target=work)
        beside = lab.latencies(ours(), database, worker, "paced", beside=thread, jobs=jobs, gap_ms=pickup.GAP_MS)
        thread.join()
    if not took:
        raise RunError("the requeue failed")
    return wanted / took[0], alone, beside


def run(lab: Lab, options: Options) -> Outcome:
    """Fill once, look, then requeue in each round; the p99 are over all rounds: that of one is its second worst."""
    outcome = Outcome()
    database = filled(lab, options.number(ROWS, QUICK_ROWS))
    looks(lab, database, options, outcome)
    rounds = [(drain.reference(lab, options), *requeue(lab, database, options)) for _ in range(options.rounds)]
    ceils, rates, before, meanwhile = zip(*rounds, strict=True)
    alone, beside = (Pickups(ms=tuple(ms for one in found for ms in one.ms)) for found in (before, meanwhile))
    table = Table(title="Pickup beside a requeue of many", headings=pickup.HEADINGS)
    table.rows += [pickup.row("idle", [alone]), pickup.row("requeue", [beside])]
    outcome.tables.append(table)
    outcome.figures |= {"dead_requeue_per_s": median(rates), "ceil_1_per_s": median(ceils)}
    outcome.ratios |= {"dead_requeue_to_ceil": ratio(rates, ceils), "dead_requeue_pickup_p99": beside.p99 / alone.p99}
    return outcome
