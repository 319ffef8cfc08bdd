"""Housekeeping: removes rows that nobody needs any more: old waiters, workers dead for a week, requests of ended jobs.

Nothing here holds work: jobs, leases and dead letters are never touched. `statistics` is the other routine that only tidies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.maintenance.configured import ConfiguredRoutine, RoutineConfig
from tailrace.maintenance.routine import Tick

__all__ = ["PARTS", "Housekeeping", "HousekeepingConfig"]

PARTS: Final = ("housekeeping",)
"""Blocks of maintenance.sql that each remove something, in this order; the preview of one ends in `_preview`.

What has rows of its own to tidy (groups, limits) adds its block here.
"""


@dataclass(frozen=True, kw_only=True)
class HousekeepingConfig(RoutineConfig):
    """Settings of the housekeeping.

    Raises:
        InvalidOption: A field is out of its range.
    """

    routine = "housekeeping"

    interval_seconds: float = 60.0
    """Seconds between two runs."""


class Housekeeping(ConfiguredRoutine[HousekeepingConfig]):
    """Removes what is no longer needed."""

    config_type = HousekeepingConfig

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
