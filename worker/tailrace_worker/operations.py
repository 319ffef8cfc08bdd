"""How often and how long each named SQL block ran in this worker, by whether it succeeded; metrics.py shows it.

Blocks that travel in one pipeline share the duration of their transaction: the server answers them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tailrace.histogram import Histogram

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Operations:
    """Counts and durations by (block, status); written by the event loop and the heartbeat thread, each its own blocks."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], Histogram] = {}

    def note(self, blocks: Iterable[str], seconds: float, *, ok: bool) -> None:
        """Count blocks that were sent together.

        Args:
            blocks: Their names.
            seconds: From sending to the answer.
            ok: Whether the server took them.
        """
        status = "success" if ok else "error"
        for block in blocks:
            histogram = self.seen.get((block, status))
            if histogram is None:
                histogram = self.seen[block, status] = Histogram(BOUNDS)
            histogram.observe(seconds)
