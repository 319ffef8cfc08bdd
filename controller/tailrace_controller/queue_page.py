"""The queue gauges as text: a thousand queues have tens of thousands of samples, and a scrape must not take long.

Pure. Names, labels and helps come from `tailrace.names.controller_metrics`; `metrics` puts the text behind what the metrics
library writes. The format is Prometheus' own, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.names import controller_metrics as names
from tailrace.names import metrics as shared
from tailrace.names.conditions import ConditionType
from tailrace.names.metrics import Metric
from tailrace_controller.gauges import Figures

__all__ = ["QUEUE_METRICS", "Line", "queue_page"]

_STATES: Final = ("ready", "scheduled", "retrying", "blocked", "held", "unclaimable", "running", "stale")
_LETTERS: Final = ("dead", "requeued", "resolved")
_CONDITIONS: Final = tuple(kind.value for kind in ConditionType)
_TRUTH: Final = {"True": "1", "False": "0"}

QUEUE_METRICS: Final[tuple[Metric, ...]] = (
    names.QUEUE_JOBS,
    names.OLDEST_READY,
    names.NEXT_DUE,
    names.LATENCY_TARGET,
    names.ARRIVALS,
    names.SERVICE_TIME,
    names.DESIRED_WORKERS,
    names.QUEUE_HELD,
    shared.DEAD_LETTERS,
    shared.DEAD_OLDEST,
    shared.STATS_TIMESTAMP,
    names.QUEUE_REPLICAS,
    names.CONDITION,
)
"""What this module writes; all of them, also without a queue."""


@dataclass
class Line:
    """What is known of one JobQueue.

    Attributes:
        namespace: Its namespace.
        queue: The queue's name in the database.
        figures: The published figures; None when there are none.
        status: The resource's status, on the leader.
        replicas: Workers by kind: current, ready, min, max; on the leader.
    """

    namespace: str
    queue: str
    figures: Figures | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    replicas: Mapping[str, int] = field(default_factory=dict)


def queue_page(lines: Iterable[Line]) -> bytes:
    """Return the text of all queue gauges.

    Args:
        lines: One for each JobQueue.
    """
    samples: dict[Metric, list[str]] = {metric: [] for metric in QUEUE_METRICS}
    for line in lines:
        labels = f'namespace="{_escaped(line.namespace)}",queue="{_escaped(line.queue)}"'
        if line.figures is not None:
            _figures(samples, labels, line.figures)
        conditions = {one.get("type"): one.get("status") for one in line.status.get("conditions") or ()}
        if conditions:
            out, name = samples[names.CONDITION], names.CONDITION.name
            for one in _CONDITIONS:
                out.append(f'{name}{{{labels},condition="{one}"}} {_TRUTH.get(str(conditions.get(one)), "-1")}\n')
        for kind, number in line.replicas.items():
            samples[names.QUEUE_REPLICAS].append(f'{names.QUEUE_REPLICAS.name}{{{labels},kind="{kind}"}} {number}\n')
    text: list[str] = []
    for metric, found in samples.items():
        text.append(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n")
        text += found
    return "".join(text).encode()


def _figures(samples: dict[Metric, list[str]], labels: str, figures: Figures) -> None:
    facts, reading, counts = figures.facts, figures.facts.reading, figures.facts.reading.counts

    def put(metric: Metric, value: float | None) -> None:
        if value is not None:
            samples[metric].append(f"{metric.name}{{{labels}}} {value!r}\n")

    put(names.LATENCY_TARGET, figures.served.latency_target)
    put(names.QUEUE_HELD, int(facts.held))
    if facts.read_at is None:
        return  # a queue that was never counted is not an empty one
    name, out = names.QUEUE_JOBS.name, samples[names.QUEUE_JOBS]
    for state in _STATES:
        out.append(f'{name}{{{labels},state="{state}"}} {counts.get(state, 0)}\n')
    name, out = shared.DEAD_LETTERS.name, samples[shared.DEAD_LETTERS]
    for state in _LETTERS:
        out.append(f'{name}{{{labels},state="{state}"}} {counts.get(state, 0)}\n')
    read_at = facts.read_at.timestamp()
    put(names.OLDEST_READY, reading.oldest_ready_seconds or 0.0)
    put(names.NEXT_DUE, reading.next_due_seconds)
    put(names.ARRIVALS, reading.arrivals)
    put(names.SERVICE_TIME, reading.run_seconds)
    put(names.DESIRED_WORKERS, reading.demand.get("total"))
    put(shared.DEAD_OLDEST, max(0.0, read_at - facts.oldest_dead_at.timestamp()) if facts.oldest_dead_at else 0.0)
    put(shared.STATS_TIMESTAMP, read_at)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
