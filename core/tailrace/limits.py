"""How far the limits and rates of a queue are used, as `app.queues.show` and `tailrace queues show` tell it.

The settings say what is allowed; the view `limits` counts what runs. queues.py reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LimitUse"]


@dataclass(frozen=True)
class LimitUse:
    """One limit or rate now."""

    kind: str
    """concurrency: jobs that run at a time; rate: jobs that start in a period."""
    name: str
    """The task, or empty for the whole queue; of a rate its name."""
    tasks: tuple[str, ...] | None
    """The tasks it counts; None = every task."""
    most: int
    """Jobs at a time, or in a period."""
    period: float | None
    """Seconds, of a rate."""
    burst: int | None
    """How many may start at once, of a rate."""
    in_use: int | None
    """Jobs that run now; None for a rate."""
    free: int
    """Jobs that could start now."""

    @classmethod
    def read(cls, rows: Iterable[Mapping[str, Any]]) -> tuple[LimitUse, ...]:
        """Read rows of the view.

        Args:
            rows: As JSON objects.
        """
        return tuple(cls(**{**row, "tasks": None if row["tasks"] is None else tuple(row["tasks"])}) for row in rows)
