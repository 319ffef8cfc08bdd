"""What this process did to dead letters, for its metrics.

Kept as plain numbers, which a worker shows among its own; a program that exports metrics by prometheus_client shows them in
its default registry. Counting needs neither. Apart from `dead_letters`, so that a worker need not load that.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable
from typing import Any, Final

from tailrace.names import metrics as names
from tailrace.names.events import Event
from tailrace.names.metrics import Metric

__all__ = ["METRICS", "MORE_LABELS", "Tally", "counted"]

METRICS: Final[dict[str, Metric]] = {
    "requeue": names.DEAD_REQUEUED,
    "delete": names.DEAD_DELETED,
    "resolve": names.DEAD_RESOLVED,
    "add": names.DEAD_ADDED,
}
"""The counter of each verb that has one."""

MORE_LABELS: Final[dict[str, tuple[str, ...]]] = {"add": ("manual",)}
"""Labels of a verb's counter behind queue and task: what is added by hand has that reason."""

_EVENTS: Final = {
    "requeue": Event.DEAD_LETTERS_REQUEUED,
    "delete": Event.DEAD_LETTERS_DELETED,
    "resolve": Event.DEAD_LETTERS_RESOLVED,
    "add": Event.DEAD_LETTER_ADDED,
}

_log: Final = logging.getLogger("tailrace.dead_letters")
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

    def __init__(self, namespace: str, *, tells: bool = False) -> None:
        """Take the label.

        Args:
            namespace: The label of the metric.
            tells: Log what was done; only where each statement is committed when it is counted.
        """
        self._namespace, self._tells = namespace, tells

    def add(self, verb: str, counts: Iterable[tuple[str, str, int]]) -> None:
        """Count.

        Args:
            verb: requeue, delete, resolve, add, or note, which has no counter.
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
                    _counter(METRICS[verb]).labels(self._namespace, queue, label, *MORE_LABELS.get(verb, ())).inc(n)
                if self._tells:
                    fields = {"event": _EVENTS[verb], "queue": queue, "task": task, "jobs": n}
                    _log.info("dead letters: %s", verb, extra=fields)


def _counter(metric: Metric) -> Any:
    if metric.name not in _exported:
        client = sys.modules["prometheus_client"]
        _exported[metric.name] = client.Counter(metric.name, metric.help, metric.labels)
    return _exported[metric.name]
