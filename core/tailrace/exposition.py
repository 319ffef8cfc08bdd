"""The samples of one scrape, from plain numbers to what a metrics endpoint shows.

Names, labels and helps come from `tailrace.names`; workers and controllers fill a board at each scrape. Needs
prometheus_client, an extra that both have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tailrace.histogram import Histogram
from tailrace.names.metrics import Metric

__all__ = ["Board", "Family"]

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Board:
    """The samples of one scrape; what has the same labels adds up."""

    def __init__(self) -> None:
        """Begin empty."""
        self._values: dict[tuple[Metric, tuple[str, ...]], float] = {}
        self._histograms: dict[tuple[Metric, tuple[str, ...]], Histogram] = {}

    def add(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """Add to a counter or gauge.

        Args:
            metric: Which.
            labels: Values of its labels, in their order.
            value: What to add.
        """
        self._values[metric, labels] = self._values.get((metric, labels), 0) + value

    def histogram(self, metric: Metric, labels: tuple[str, ...], value: Histogram) -> None:
        """Add to a histogram.

        Args:
            metric: Which.
            labels: Values of its labels, in their order.
            value: What to add.
        """
        whole = self._histograms.setdefault((metric, labels), Histogram(value.bounds))
        whole.sum += value.sum
        for number, n in enumerate(value.counts):
            whole.counts[number] += n

    def families(self, declared: Iterable[Metric]) -> Iterator[Family]:
        """Return every declared family with its samples, also without one.

        Args:
            declared: The metrics of this process.
        """
        made = {metric: _family(metric) for metric in declared}
        for (metric, labels), value in self._values.items():
            made[metric].add_metric(list(labels), value)
        for (metric, labels), histogram in self._histograms.items():
            made[metric].add_metric(list(labels), _buckets(histogram), histogram.sum)
        return iter(made.values())


def _family(metric: Metric) -> Any:
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    return kinds[metric.kind](metric.name.removesuffix("_total"), metric.help, labels=list(metric.labels))


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip((*map(float, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((str(bound), float(total)))
    return buckets
