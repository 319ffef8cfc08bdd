"""Statistics: one reading of every queue, published in the queue's row, and the counts of ends folded into totals.

Everybody serves gauges from that reading, so nobody counts for himself. The database counts and keeps the averages;
`demand` makes of them how many workers are needed, which is published with the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.db import Jsonb
from tailrace.demand import Load, Terms, demand
from tailrace.maintenance.configured import ConfiguredRoutine, RoutineConfig
from tailrace.maintenance.routine import Tick

__all__ = ["Statistics", "StatisticsConfig"]


@dataclass(frozen=True, kw_only=True)
class StatisticsConfig(RoutineConfig):
    """Settings of the statistics.

    Raises:
        InvalidOption: A field is out of its range.
    """

    routine = "statistics"

    interval_seconds: float = 15.0
    """Seconds between two readings: the oldest that a gauge should be."""

    fold_rows: int = 20_000
    """Rows of counts folded into the totals in one transaction."""

    budget_seconds: float = 5.0
    """Time for one run; counts that are left are folded in the next."""


class Statistics(ConfiguredRoutine[StatisticsConfig]):
    """Publishes readings and folds counts."""

    config_type = StatisticsConfig

    def run(self, tick: Tick) -> None:
        """Publish a reading, and fold until nothing is left.

        Args:
            tick: The run.

        Raises:
            TailraceError: The database refused a batch.
        """
        for n in tick.batches(self.config.budget_seconds):
            report = tick.call("statistics", fold=self.config.fold_rows, readings=n == 0)
            if report is None:
                return
            tick.count(folded=report["folded"], created=report["created"])
            if n == 0:
                tick.count(queues=report["queues"], skipped=report["skipped"])
            if not report["more"]:
                break
        _publish_demand(tick)

    def preview(self, tick: Tick) -> None:
        """Count the rows that would be folded.

        Args:
            tick: The run.
        """
        tick.count(**(tick.call("statistics_preview") or {}))


def _publish_demand(tick: Tick) -> None:
    """Add to each reading how many workers it asks for; a reading that was renewed meanwhile has its own turn."""
    found = tick.call("loads")
    published = [
        {**{name: one[name] for name in ("queue", "read_at")}, "demand": demand(_load(one), _terms(one)).as_json()}
        for one in (found or {}).get("queues", ())
    ]
    if published:
        tick.call("publish_demand", demands=Jsonb(published))


def _terms(one: dict[str, Any]) -> Terms:
    return Terms.of_settings(one["settings"])


def _load(one: dict[str, Any]) -> Load:
    return Load(claimable=one["claimable"], running=one["running"], arrivals=one["arrivals"], run_seconds=one["run_seconds"])
