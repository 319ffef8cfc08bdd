"""What this process did to dead letters, for its metrics.

Kept as plain numbers, which a worker shows among its own; a program that exports metrics by prometheus_client shows them in
its default registry. Counting needs neither. Apart from `dead_letters`, so that a worker need not load that.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any, Final

from tailrace.names import metrics as names
from tailrace.names.metrics import Metric

__all__ = ["METRICS", "Tally", "counted"]

METRICS: Final[dict[str, Metric]] = {
    "requeue": names.DEAD_REQUEUED,
    "delete": names.DEAD_DELETED,
    "resolve": names.DEAD_RESOLVED,
}
"""The counter of each verb that has one."""

_MOST_TASKS: Final = 100
_lock: Final = threading.Lock()
_tasks: set[str] = set()
_counts: dict[tuple[str, str, str], int] = {}
_exported: dict[str, Any] = {}


def counted() -> dict[tuple[str, str, str], int]:
    """Return how many were changed by this process, by verb, queue and task."""
    with _lock:
        return dict(_counts)


class Tally:
    """Counts changes whose statement succeeded; a later rollback of the caller's transaction is not seen."""

    def __init__(self, namespace: str) -> None:
        """Take the label.

        Args:
            namespace: The label of the metric.
        """
        self._namespace = namespace

    def add(self, verb: str, counts: Iterable[tuple[str, str, int]]) -> None:
        """Count.

        Args:
            verb: requeue, delete, resolve, or note, which has no counter.
            counts: How many of each queue and task.
        """
        if verb not in METRICS:
            return
        with _lock:
            for queue, task, n in counts:
                if task not in _tasks and len(_tasks) < _MOST_TASKS:
                    _tasks.add(task)
                label = task if task in _tasks else "other"
                key = (verb, queue, label)
                _counts[key] = _counts.get(key, 0) + n
                if "prometheus_client" in sys.modules:
                    _counter(METRICS[verb]).labels(self._namespace, queue, label).inc(n)


def _counter(metric: Metric) -> Any:
    if metric.name not in _exported:
        client = sys.modules["prometheus_client"]
        _exported[metric.name] = client.Counter(metric.name, metric.help, metric.labels)
    return _exported[metric.name]
