"""Automatic requeue: brings dead letters of passing errors back as jobs, in queues whose JobQueue asks for it.

Off unless `deadLetters.autoRequeue` says after how long, how often for one job and for which kinds of error. `retention`
walks the same table in the same way; requeues by people are in `tailrace.dead_letters`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from tailrace.maintenance.configured import ConfiguredRoutine, RoutineConfig
from tailrace.maintenance.routine import Tick
from tailrace.names.events import Event

__all__ = ["AutoRequeue", "AutoRequeueConfig"]

log: Final = logging.getLogger("tailrace.maintenance.auto_requeue")


@dataclass(frozen=True, kw_only=True)
class AutoRequeueConfig(RoutineConfig):
    """Settings of the automatic requeue.

    Raises:
        InvalidOption: A field is out of its range.
    """

    routine = "auto_requeue"

    interval_seconds: float = 60.0
    """Seconds between two runs."""

    batch_rows: int = 500
    """Rows requeued in one transaction; ten times as many are looked at."""

    budget_seconds: float = 5.0
    """Time for one run; what is left comes back in the next."""


class AutoRequeue(ConfiguredRoutine[AutoRequeueConfig]):
    """Requeues by the queues' rules, batch by batch."""

    config_type = AutoRequeueConfig

    def run(self, tick: Tick) -> None:
        """Requeue what has waited long enough.

        Args:
            tick: The run.

        Raises:
            TailraceError: The database refused a batch.
        """
        for _ in tick.batches(self.config.budget_seconds, gently=True):
            report = tick.call("auto_requeue", batch=self.config.batch_rows)
            if report is None:
                return
            tick.count(seen=report["seen"])
            tick.count_letters(report["rows"], routine=self.name)
            for row in report["rows"]:
                if row["result"] == "requeued":
                    fields = {"event": Event.DEAD_LETTERS_BACK, "queue": row["queue"], "task": row["task"], "jobs": row["n"]}
                    log.info("requeued %d dead letters by the queue's rule", row["n"], extra=fields)
            if not report["more"]:
                return

    def preview(self, tick: Tick) -> None:
        """Count what would come back.

        Args:
            tick: The run.
        """
        tick.count(**(tick.call("auto_requeue_preview") or {}))
