"""The counter of enqueues, and the trace of the producer.

Neither is imported for its own sake: a program that exports metrics has loaded prometheus_client, one that traces has loaded
opentelemetry, and for all others enqueueing costs nothing. Neighbours: `senders`.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tailrace.enqueue.new_job import Receipt
from tailrace.enqueue.statements import PreparedJob

_NAME: Final = "tailrace_jobs_enqueued_total"
_LABELS: Final = ("namespace", "queue", "task", "outcome", "priority_band")
_MOST_TASKS: Final = 100
_BANDS: Final = (
    (20, None, "emergency"),
    (10, 19, "fast_high"),
    (1, 9, "fast_default"),
    (0, 0, "bulk_default"),
    (-5, -1, "bulk_low"),
    (-10, -6, "bulk_lowest"),
)
_lock: Final = threading.Lock()
_tasks: set[str] = set()
_counter: Any = None


def count(namespace: str, jobs: Sequence[PreparedJob], receipts: Sequence[Receipt]) -> None:
    """Count enqueues whose statement succeeded; a later rollback of the caller's transaction is not seen.

    Args:
        namespace: The label of the metric.
        jobs: What was sent.
        receipts: What came of them, in the same order.
    """
    if "prometheus_client" not in sys.modules:
        return
    kinds = Counter(
        (job.queue, _task_label(job.task), receipt.outcome, priority_band(job.priority))
        for job, receipt in zip(jobs, receipts, strict=True)
    )
    counter = _counter_of_process()
    for labels, n in kinds.items():
        counter.labels(namespace, *labels).inc(n)


def priority_band(priority: int) -> str:
    """Return the label of a priority."""
    for lowest, highest, name in _BANDS:
        if priority >= lowest and (highest is None or priority <= highest):
            return name
    return "other"


def traceparent() -> str | None:
    """Return the W3C traceparent of the current span, or None when the program does not trace."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    carrier: dict[str, str] = {}
    propagate: Any = __import__("opentelemetry.propagate", fromlist=["inject"])
    propagate.inject(carrier)
    return carrier.get("traceparent")


def _task_label(task: str) -> str:
    with _lock:
        if task not in _tasks and len(_tasks) < _MOST_TASKS:
            _tasks.add(task)
        return task if task in _tasks else "other"


def _counter_of_process() -> Any:
    global _counter
    with _lock:
        if _counter is None:
            client = sys.modules["prometheus_client"]
            _counter = client.Counter(_NAME, "Jobs enqueued by this process, by outcome.", _LABELS)
        return _counter
