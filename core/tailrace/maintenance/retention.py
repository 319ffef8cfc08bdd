"""Retention: deletes dead letters that are older than their queue keeps them, and drops old parts of the history.

It is the only routine that deletes what somebody may still want, and only by the queue's settings: 90 days for the dead, 7
for the resolved unless the JobQueue says otherwise. `auto_requeue` walks the same table in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.maintenance.configured import ConfiguredRoutine, RoutineConfig
from tailrace.maintenance.routine import Tick

__all__ = ["Retention", "RetentionConfig"]


@dataclass(frozen=True, kw_only=True)
class RetentionConfig(RoutineConfig):
    """Settings of the retention.

    Raises:
        InvalidOption: A field is out of its range.
    """

    routine = "retention"

    interval_seconds: float = 60.0
    """Seconds between two runs."""

    batch_rows: int = 500
    """Rows deleted in one transaction."""

    budget_seconds: float = 5.0
    """Time for one run; what is left is deleted in the next."""


class Retention(ConfiguredRoutine[RetentionConfig]):
    """Deletes what is too old, batch by batch."""

    config_type = RetentionConfig

    def run(self, tick: Tick) -> None:
        """Delete until nothing is left that is too old, and look after the history.

        Args:
            tick: The run.

        Raises:
            TailraceError: The database refused a batch.
        """
        self._letters(tick)
        if tick.queue is None and not tick.stop.is_set():  # the parts of the history are of all queues
            tick.count(**(tick.call("history") or {}))

    def _letters(self, tick: Tick) -> None:
        for _ in tick.batches(self.config.budget_seconds, gently=True):
            report = tick.call("retain", batch=self.config.batch_rows)
            if report is None:
                return
            tick.count_letters(report["rows"], routine=self.name)
            if not report["more"]:
                return

    def preview(self, tick: Tick) -> None:
        """Count what would be deleted, by state, and the parts of the history that would be dropped.

        Args:
            tick: The run.
        """
        tick.count(**(tick.call("retain_preview") or {}))
