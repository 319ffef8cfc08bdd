"""Housekeeping: removes rows that nobody needs any more: old waiters, workers dead for a week, requests of ended jobs.

Nothing here holds work: jobs, leases and dead letters are never touched. `statistics` is the other routine that only tidies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.maintenance.routine import Tick, check_interval

__all__ = ["PARTS", "Housekeeping", "HousekeepingConfig"]

PARTS: Final = ("housekeeping",)
"""Blocks of maintenance.sql that each remove something, in this order; the preview of one ends in `_preview`.

What has rows of its own to tidy (groups, limits) adds its block here.
"""


@dataclass(frozen=True, kw_only=True)
class HousekeepingConfig:
    """Settings of the housekeeping.

    Raises:
        InvalidOption: A field is out of its range.
    """

    interval_seconds: float = 60.0
    """Seconds between two runs."""

    def __post_init__(self) -> None:
        """Check the fields."""
        check_interval("housekeeping", self.interval_seconds)


class Housekeeping:
    """Removes what is no longer needed."""

    name = "housekeeping"

    def __init__(self, config: HousekeepingConfig | None = None) -> None:
        """Keep the settings.

        Args:
            config: Default: every minute.
        """
        self.config = config or HousekeepingConfig()

    @property
    def interval_seconds(self) -> float:
        """Its period."""
        return self.config.interval_seconds

    def run(self, tick: Tick) -> None:
        """Remove it.

        Args:
            tick: The run.

        Raises:
            TailraceError: The database refused it.
        """
        for part in PARTS:
            tick.count(**(tick.call(part) or {}))

    def preview(self, tick: Tick) -> None:
        """Count what would be removed.

        Args:
            tick: The run.
        """
        for part in PARTS:
            tick.count(**(tick.call(f"{part}_preview") or {}))
