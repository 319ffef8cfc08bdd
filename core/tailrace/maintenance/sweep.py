"""The sweep: walks the job table by primary key and moves or ends what claim and reaper do not meet; it is the audit, too.

It finds jobs exhausted by hand, expired jobs that nobody claims, tokens without a lease, successors without a holder, requeued
dead letters without a job.
The walk goes on where it stopped, and is round once an hour; `reaper` takes what has just died.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from tailrace.db import Jsonb
from tailrace.maintenance.configured import ConfiguredRoutine, RoutineConfig
from tailrace.maintenance.routine import Tick
from tailrace.names.events import Event

__all__ = ["Sweep", "SweepConfig"]

log: Final = logging.getLogger("tailrace.maintenance.sweep")

_BEFORE_ALL: Final = -(2**63)
_LOCKED_PATIENCE_SECONDS: Final = 0.05
_LOCKED_TRIES: Final = 100


@dataclass(frozen=True, kw_only=True)
class SweepConfig(RoutineConfig):
    """Settings of the sweep.

    Raises:
        InvalidOption: A field is out of its range.
    """

    routine = "sweep"

    interval_seconds: float = 60.0
    """Seconds between two runs."""

    slice_rows: int = 20_000
    """Rows looked at in one transaction."""

    move_rows: int = 2000
    """Rows moved in one transaction, and looked at while there is something to move."""

    round_seconds: float = 3600.0
    """Time in which the walk should have seen the whole table; each run does its share."""

    audit_rows: int = 2000
    """Requeued dead letters looked at in one transaction, at the end of each round."""

    budget_seconds: float = 5.0
    """Time for one run, while it finds something or its share is not done."""


class Sweep(ConfiguredRoutine[SweepConfig]):
    """Walks the job table, slice by slice."""

    config_type = SweepConfig

    def __init__(self, config: SweepConfig | None = None) -> None:
        super().__init__(config)
        self._places: dict[str | None, Any] = {}  # by queue: where an audit goes on whose time was up

    def run(self, tick: Tick) -> None:
        """Walk this run's share, or the whole table when the run is full.

        Args:
            tick: The run.

        Raises:
            TailraceError: The database refused a slice.
        """
        if tick.queue in self._places and not self._audit(tick):
            return
        seen = locked = 0
        after = _BEFORE_ALL if tick.full else None
        most = self.config.move_rows
        look = self.config.slice_rows
        for _ in tick.batches(self.config.budget_seconds):
            report = tick.call("walk", after=after, slice=look, most=most)
            if report is None:
                locked += 1
                if not tick.full or locked > _LOCKED_TRIES:
                    return
                tick.stop.wait(_LOCKED_PATIENCE_SECONDS)
                continue
            self._count(tick, report)
            seen += report["seen"]
            look = min(most, self.config.slice_rows) if report["rows"] else self.config.slice_rows
            if report["next"] is None:
                self._audit(tick)
                return
            if tick.full:
                after = report["next"]
            elif seen >= self._share(report["estimate"]) and not report["rows"]:
                return

    def preview(self, tick: Tick) -> None:
        """Count what a full walk would find.

        Args:
            tick: The run.
        """
        tick.count(**(tick.call("walk_preview") or {}))

    def _share(self, estimate: int) -> float:
        """Rows that this run should see so that a round takes no longer than it may."""
        return estimate * min(1.0, self.config.interval_seconds / self.config.round_seconds)

    def _count(self, tick: Tick, report: dict[str, Any]) -> None:
        tick.count(seen=report["seen"], skipped=report["skipped"], orphaned=report["orphaned"], followed=report["followed"])
        tick.count_rows(report["rows"], routine=self.name, evidence="audit")
        if report["orphaned"]:
            tick.counters.orphaned(report["orphaned"])
            log.error(
                "found %d jobs with a token but no lease, and gave them back",
                report["orphaned"],
                extra={"event": Event.ORPHANS_FOUND, "jobs": report["orphaned"]},
            )

    def _audit(self, tick: Tick) -> bool:
        """Look at the requeued dead letters; returns whether all were seen. The next run goes on where the time was up."""
        place = self._places.get(tick.queue)
        for _ in tick.batches(self.config.budget_seconds):
            report = tick.call("audit", batch=self.config.audit_rows, after=place and Jsonb(place))
            if report is None:  # another runner is in the same place
                tick.locked = False
                return False
            tick.count(restored=report["restored"], skipped=report["skipped"])
            if report["restored"]:
                log.error(
                    "found %d requeued dead letters without a job; they are dead again",
                    report["restored"],
                    extra={"event": Event.ORPHANS_FOUND, "dead_letters": report["restored"]},
                )
            place = report["next"]
            if place is None:
                self._places.pop(tick.queue, None)
                return True
            self._places[tick.queue] = place
        return False
