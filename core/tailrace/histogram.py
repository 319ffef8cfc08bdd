"""A histogram as plain numbers: what measures counts in it, and a collector shows it at the next scrape.

Kept apart from any metrics library, so that counting costs little and needs none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

__all__ = ["Histogram"]


class Histogram:
    """Counts per bucket and a sum; the last bucket is +Inf."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Begin empty.

        Args:
            bounds: The upper bounds in rising order.
        """
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_sorted(self, values: list[float]) -> None:
        """Count many values that are in rising order."""
        before = 0
        for number, bound in enumerate(self.bounds):
            upto = bisect_right(values, bound, before)
            self.counts[number] += upto - before
            before = upto
        self.counts[-1] += len(values) - before
        self.sum += sum(values)
