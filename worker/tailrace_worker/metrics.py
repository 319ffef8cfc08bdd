"""What /metrics shows: a collector that reads the worker's plain counters at each scrape.

Names, labels and help texts come from tailrace.names.metrics. The gauges of dead letters come from the reading that
the statistics routine publishes in the queue row; nothing is counted for a scrape.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.registry import Collector

from tailrace.dead_counters import METRICS, MORE_LABELS, counted
from tailrace.exposition import Board, Family
from tailrace.histogram import Histogram
from tailrace.maintenance.counts import RoutineCounts
from tailrace.names import metrics as names
from tailrace.names.metrics import priority_band
from tailrace_worker.bound import BoundTask
from tailrace_worker.consumer import Consumer
from tailrace_worker.operations import Operations
from tailrace_worker.version import VERSION

MOST_TASKS = 100
_MINE = tuple(metric for metric in names.ALL if metric is not names.JOBS_ENQUEUED)  # that one is the producers'


@dataclass
class State:
    """What the collector reads.

    Attributes:
        namespace: Value of the label.
        consumers: The queues.
        draining: Whether the worker drains.
        renew_failures: Failed heartbeats.
        reconnects: Of the listening connection.
        readings: Per queue its published reading.
        routines: What its maintenance routines did.
        dead_hooks: Calls of on_dead hooks by (queue, result).
        operations: What ran on each of the connections.
        lag: The event loop's last lag in seconds.
    """

    namespace: str = ""
    consumers: list[Consumer] = field(default_factory=list)
    draining: bool = False
    renew_failures: int = 0
    reconnects: int = 0
    readings: dict[str, dict[str, Any]] = field(default_factory=dict)
    routines: RoutineCounts = field(default_factory=RoutineCounts)
    dead_hooks: dict[tuple[str, str], int] = field(default_factory=dict)
    operations: list[Operations] = field(default_factory=list)
    lag: float = 0.0


class WorkerCollector(Collector):
    """Reads a worker's state."""

    def __init__(self, state: State) -> None:
        self.state = state

    def collect(self) -> Iterable[Family]:
        """The families of one scrape; every declared worker metric is there, also before its first event."""
        board, state = Board(), self.state
        for consumer in state.consumers:
            _queue(board, state, consumer)
            _tasks(board, state, consumer)
        _routines(board, state)
        dead = dict(state.routines.died)
        for consumer in state.consumers:
            for task, label in _labelled(consumer):
                for reason, n in list(task.dead.items()):
                    key = (consumer.queue, label, reason)
                    dead[key] = dead.get(key, 0) + n
        for (queue, label, reason), n in dead.items():
            board.add(names.DEAD_ADDED, (state.namespace, queue, label, reason), n)
        for (verb, queue, label), n in counted().items():
            board.add(METRICS[verb], (state.namespace, queue, label, *MORE_LABELS.get(verb, ())), n)
        for (queue, result), n in list(state.dead_hooks.items()):
            board.add(names.DEAD_HOOKS, (state.namespace, queue, result), n)
        _operations(board, state)
        board.add(names.EVENT_LOOP_LAG, (), state.lag)
        board.add(names.BUILD_INFO, (VERSION, platform.python_version()), 1)
        return board.families(_MINE)


def _routines(board: Board, state: State) -> None:
    counts = state.routines
    for (routine, result), n in list(counts.runs.items()):
        board.add(names.MAINTENANCE_RUNS, (routine, result), n)
    for (routine, kind), n in list(counts.errors.items()):
        board.add(names.MAINTENANCE_ERRORS, (routine, kind), n)
    for routine, seconds in list(counts.durations.items()):
        board.histogram(names.MAINTENANCE_DURATION, (routine,), seconds)
    for routine, at in counts.last_success.items():
        board.add(names.MAINTENANCE_LAST_SUCCESS, (routine,), at)
    for (queue, result, evidence), n in list(counts.leases.items()):
        board.add(names.LEASES_RECLAIMED, (state.namespace, queue, result, evidence), n)
    for metric, letters in ((names.DEAD_REQUEUED, counts.back), (names.DEAD_DELETED, counts.gone)):
        for (queue, task), n in list(letters.items()):
            board.add(metric, (state.namespace, queue, task), n)
    for (queue, result), n in list(counts.fired.items()):
        board.add(names.SCHEDULE_TICKS, (state.namespace, queue, result), n)
    board.add(names.ORPHANED_JOBS, (), counts.orphans)


def _operations(board: Board, state: State) -> None:
    for operations in state.operations:
        for (block, status), histogram in list(operations.seen.items()):
            board.add(names.DB_OPERATIONS, (block, status), sum(histogram.counts))
            board.histogram(names.DB_OPERATION_DURATION, (block, status), histogram)


def _queue(board: Board, state: State, consumer: Consumer) -> None:
    labels = (state.namespace, consumer.queue)
    lanes = consumer.lanes
    busy = lanes.busy
    board.add(names.WORKER_SLOTS, (*labels, "busy"), busy)
    board.add(names.WORKER_SLOTS, (*labels, "free"), len(lanes.slots) - busy)
    board.add(names.WORKER_DRAINING, labels, int(state.draining))
    for result, n in consumer.polls.items():
        board.add(names.WORKER_POLLS, (*labels, result), n)
    board.histogram(names.CLAIM_DURATION, labels, consumer.durations)
    board.histogram(names.CLAIM_BATCH, labels, consumer.sizes)
    board.add(names.RENEW_FAILURES, labels, state.renew_failures)
    board.add(names.FENCED_WRITES, labels, lanes.fenced)
    board.add(names.NOTIFY_RECONNECTS, labels, state.reconnects)
    board.add(names.HANDED_BACK, labels, consumer.handed_back)
    for reason in ("shutdown", "cancel", "lease_lost"):
        board.add(names.JOBS_INTERRUPTED, (*labels, reason), lanes.interrupted.get(reason, 0))
    reading = state.readings.get(consumer.queue)
    if reading is not None:  # a reading that failed is not exported as 0
        for kind in ("dead", "requeued", "resolved"):
            board.add(names.DEAD_LETTERS, (*labels, kind), reading.get(kind, 0))
        board.add(names.DEAD_OLDEST, labels, reading.get("oldest_dead_age_seconds") or 0)
        board.add(names.STATS_TIMESTAMP, labels, reading["timestamp"])


def _tasks(board: Board, state: State, consumer: Consumer) -> None:
    for task, label in _labelled(consumer):
        labels = (state.namespace, consumer.queue, label)
        board.add(names.JOBS_CLAIMED, (*labels, "first"), task.first)
        board.add(names.JOBS_CLAIMED, (*labels, "retry"), task.retries)
        board.add(names.JOBS_COMPLETED, labels, task.completed)
        board.add(names.AFTER_COMPLETION, labels, task.after_completion)
        if task.resolved:
            board.add(names.DEAD_RESOLVED, labels, task.resolved)
        for (kind, final), n in list(task.failed.items()):
            board.add(names.JOBS_FAILED, (*labels, kind, str(final).lower()), n)
        for outcome, durations in task.durations.items():
            board.histogram(names.JOB_DURATION, (*labels, outcome), durations)
            board.histogram(names.JOB_ATTEMPTS, (*labels, outcome), _runs(task, outcome))
        for priority, waits in list(task.waits.items()):
            board.histogram(names.JOB_WAIT, (*labels, priority_band(priority)), waits)


def _labelled(consumer: Consumer) -> Iterator[tuple[BoundTask, str]]:
    """The queue's tasks with their label: those that belong to it or came by it; beyond 100 they share `other`."""
    theirs = (t for t in consumer.lanes.tasks.values() if t.task.queue == consumer.queue or t.first or t.retries)
    for number, task in enumerate(theirs):
        yield task, task.name if number < MOST_TASKS else "other"


def _runs(task: BoundTask, outcome: str) -> Histogram:
    counted = task.runs[outcome]
    if outcome != "success":
        return counted
    whole = Histogram(counted.bounds)
    whole.counts, whole.sum = list(counted.counts), counted.sum + task.at_first
    whole.counts[0] += task.at_first
    return whole


def registry(state: State) -> CollectorRegistry:
    """A registry with this worker's metrics and those of its process.

    Args:
        state: What to read.
    """
    made = CollectorRegistry()
    made.register(WorkerCollector(state))
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    return made
