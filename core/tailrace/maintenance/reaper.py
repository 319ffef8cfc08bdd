"""The reaper: takes over the leases of workers that are gone, and ends sessions that are frozen in a transaction.

Its cost follows what runs, not the backlog. The rules (steady ticks, guarded writes) are in `reap_v1`; `sweep` finds the rest.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from tailrace.maintenance.configured import ConfiguredRoutine, RoutineConfig
from tailrace.maintenance.routine import Tick
from tailrace.names.events import Event

__all__ = ["Reaper", "ReaperConfig"]

log: Final = logging.getLogger("tailrace.maintenance.reaper")


@dataclass(frozen=True, kw_only=True)
class ReaperConfig(RoutineConfig):
    """Settings of the reaper.

    Raises:
        InvalidOption: A field is out of its range.
    """

    routine = "reaper"

    interval_seconds: float = 15.0
    """Seconds between two ticks. After a pause of more than three of them nothing is taken for one lease."""

    batch_leases: int = 100
    """Leases taken over in one transaction."""

    budget_seconds: float = 10.0
    """Time for one tick; what is left is taken in the next."""


class Reaper(ConfiguredRoutine[ReaperConfig]):
    """Takes over expired leases, batch by batch."""

    config_type = ReaperConfig

    def run(self, tick: Tick) -> None:
        """Take over what has expired.

        Args:
            tick: The run.

        Raises:
            TailraceError: The database refused a batch.
        """
        after: int | None = None
        for _ in tick.batches(self.config.budget_seconds):
            report = tick.call("reap", interval_seconds=self.config.interval_seconds, batch=self.config.batch_leases, after=after)
            if report is None:
                return
            tick.count(leases=report["leases"], skipped=report["skipped"], ended_sessions=report["ended_sessions"])
            tick.count_rows(report["rows"], routine=self.name, evidence="expired")
            _tell(report)
            after = report["next"]
            if after is None:
                return

    def preview(self, tick: Tick) -> None:
        """Count the leases that have expired.

        Args:
            tick: The run.
        """
        tick.count(**(tick.call("reap_preview") or {}))


def _tell(report: dict[str, Any]) -> None:
    if report["leases"]:
        jobs = sum(row["n"] for row in report["rows"])
        log.warning(
            "took over %d leases of dead workers",
            report["leases"],
            extra={"event": Event.LEASES_TAKEN_OVER, "leases": report["leases"], "jobs": jobs, "skipped": report["skipped"]},
        )
    if report["ended_sessions"]:
        log.warning(
            "ended %d sessions that stood in a transaction for longer than a lease",
            report["ended_sessions"],
            extra={"event": Event.SESSIONS_ENDED, "sessions": report["ended_sessions"]},
        )
