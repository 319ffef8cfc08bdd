"""What /metrics of a controller shows: its own plain counters through the metrics library, and the queues' gauges as text.

Everything is read at the scrape from what other parts keep; nothing is asked of a database or the API server for it.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from tailrace.clock import boot
from tailrace.exposition import Board, Family
from tailrace.health import MetricsPage
from tailrace.maintenance.counts import RoutineCounts
from tailrace.names import controller_metrics as names
from tailrace.names import metrics as shared
from tailrace.names.metrics import Metric
from tailrace_controller.queue_page import QUEUE_METRICS, Line, queue_page
from tailrace_controller.version import VERSION
from tailrace_controller.work_queue import RESULTS, WorkCounts, WorkQueue

__all__ = ["State", "page"]

_MINE = tuple(metric for metric in names.ALL if metric not in QUEUE_METRICS)


@dataclass(frozen=True)
class Kept:
    """What routines did in one database.

    Attributes:
        label: The value of the label `database`.
        namespaces: The namespace of each queue there.
        counts: The numbers.
    """

    label: str
    namespaces: Mapping[str, str]
    counts: RoutineCounts


@dataclass
class State:
    """Where the numbers of one process are.

    Attributes:
        counts: What was done with JobQueues.
        leads: Whether this process leads.
        requests: Requests to the API server by (verb, status), of each client.
        heard: When each watch was heard last, by kind.
        restarts: How often the watches were begun anew, by why.
        kept: Databases with what routines did there.
        lines: What is known of each JobQueue.
        queue: The work queue while this process leads.
        lag: The main event loop's last lag in seconds.
    """

    counts: WorkCounts
    leads: Callable[[], bool]
    requests: list[Mapping[tuple[str, int], int]] = field(default_factory=list)
    heard: Callable[[], Mapping[str, float]] = dict
    restarts: Callable[[], Mapping[str, int]] = dict
    kept: Callable[[], Iterable[Kept]] = tuple
    lines: Callable[[], Iterable[Line]] = tuple
    queue: WorkQueue | None = None
    lag: float = 0.0


class ControllerCollector(Collector):
    """Reads a controller's state."""

    def __init__(self, state: State) -> None:
        """Read nothing yet.

        Args:
            state: Where the numbers are.
        """
        self._state = state

    def collect(self) -> Iterable[Family]:
        """The families of one scrape, also those without a sample."""
        board, state = Board(), self._state
        _work(board, state)
        board.add(names.LEADER, (), int(state.leads()))
        for requests in state.requests:
            for (verb, code), n in list(requests.items()):
                board.add(names.API_REQUESTS, (verb, str(code)), n)
        wall = time.time() - boot()
        for kind, at in state.heard().items():
            board.add(names.WATCH_HEARD, (kind,), wall + at)
        for why, n in state.restarts().items():
            board.add(names.WATCH_RESTARTS, (why,), n)
        for kept in state.kept():
            _maintenance(board, kept)
        board.add(shared.EVENT_LOOP_LAG, (), state.lag)
        board.add(shared.BUILD_INFO, (VERSION, platform.python_version()), 1)
        return board.families(_MINE)


def _work(board: Board, state: State) -> None:
    counts, queue = state.counts, state.queue
    for result in RESULTS:
        board.add(names.RECONCILES, (result,), counts.results[result])
    for reason, n in list(counts.errors.items()):
        board.add(names.RECONCILE_ERRORS, (reason,), n)
    board.histogram(names.RECONCILE_DURATION, (), counts.seconds)
    board.add(names.QUEUE_DEPTH, (), 0 if queue is None else queue.depth)
    board.add(names.QUEUE_OLDEST, (), 0.0 if queue is None else queue.oldest_seconds)


def _maintenance(board: Board, kept: Kept) -> None:
    counts, database = kept.counts, kept.label
    for (routine, result), n in list(counts.runs.items()):
        board.add(names.MAINTENANCE_RUNS, (database, routine, result), n)
    for (routine, kind), n in list(counts.errors.items()):
        board.add(names.MAINTENANCE_ERRORS, (database, routine, kind), n)
    for routine, seconds in list(counts.durations.items()):
        board.histogram(names.MAINTENANCE_DURATION, (database, routine), seconds)
    for routine, at in list(counts.last_success.items()):
        board.add(names.MAINTENANCE_LAST_SUCCESS, (database, routine), at)
    board.add(names.ORPHANED_JOBS, (database,), counts.orphans)
    by_queue: tuple[tuple[Metric, Mapping[Any, int]], ...] = (
        (shared.LEASES_RECLAIMED, counts.leases),
        (shared.DEAD_ADDED, counts.died),
        (shared.DEAD_REQUEUED, counts.back),
        (shared.DEAD_DELETED, counts.gone),
        (shared.SCHEDULE_TICKS, counts.fired),
    )
    for metric, numbers in by_queue:
        for (queue, *more), n in list(numbers.items()):
            board.add(metric, (kept.namespaces.get(queue, ""), queue, *more), n)


def page(state: State) -> MetricsPage:
    """Return what serves /metrics: this controller's metrics and those of its process.

    Args:
        state: What to read.
    """
    registry = CollectorRegistry()
    registry.register(ControllerCollector(state))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)

    def serve(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        parts = [generate_latest(registry), queue_page(state.lines())]
        start_response("200 OK", [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")])
        return parts

    return serve
