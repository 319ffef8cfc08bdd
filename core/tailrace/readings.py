"""The published readings of queues: counts, ages, estimates and demand, as the statistics wrote them last.

Nobody counts for himself: status, gauges and scaling take what stands here, with its age by the database's clock.
`demand` works with the `Load` of a reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.db import Blocks, Statement
from tailrace.demand import Load

__all__ = ["Reading", "ReadingStatements", "read_reading"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One queue's last reading.

    Attributes:
        queue: Its name.
        age_seconds: How old it is; None when there is none yet.
        held: Whether the queue is on hold now.
        counts: Jobs by state, `claimable`, `dead` and the other whole numbers; empty without a reading.
        arrivals: Jobs that become claimable in a second.
        run_seconds: The mean of a run; None while nothing was measured.
        next_due_seconds: Seconds from the reading until the next scheduled or retrying job is due; None for none.
        oldest_ready_seconds: Age of the oldest ready job now; None for none.
        demand: flow, drain, busy and total in workers; empty before the first.
    """

    queue: str
    age_seconds: float | None
    held: bool
    counts: Mapping[str, int]
    arrivals: float
    run_seconds: float | None
    next_due_seconds: float | None
    oldest_ready_seconds: float | None
    demand: Mapping[str, float]

    def load(self) -> Load | None:
        """What the demand is worked out from; None when jobs were never counted."""
        if self.age_seconds is None or "claimable" not in self.counts:
            return None
        return Load(
            claimable=self.counts["claimable"],
            running=self.counts.get("running", 0),
            arrivals=self.arrivals,
            run_seconds=self.run_seconds,
            next_due_seconds=self.next_due_seconds,
            age_seconds=max(0.0, self.age_seconds),
            held=self.held,
        )


class ReadingStatements:
    """Builds statements for one schema."""

    def __init__(self, blocks: Blocks) -> None:
        """Take the SQL.

        Args:
            blocks: Of the database's schema.
        """
        self._blocks = blocks

    def of(self, queues: Iterable[str]) -> Statement[dict[str, Reading]]:
        """The readings of some queues; a queue without a row is left out.

        Args:
            queues: Their names.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> dict[str, Reading]:
            return {row[0]: read_reading(row) for row in rows}

        return Statement(self._blocks["queues.readings"], {"queues": list(queues)}, read)


def read_reading(row: tuple[Any, ...]) -> Reading:
    """Make a reading of the columns of block queues.readings.

    Args:
        row: Those six columns, in their order.
    """
    queue, reading, age, next_due, oldest, held = row
    found: Mapping[str, Any] = reading or {}
    counts = {name: value for name, value in found.items() if isinstance(value, int) and not isinstance(value, bool)}
    return Reading(
        queue=queue,
        age_seconds=age,
        held=bool(held),
        counts=counts,
        arrivals=float(found.get("arrivals") or 0),
        run_seconds=None if found.get("run_seconds") is None else float(found["run_seconds"]),
        next_due_seconds=next_due,
        oldest_ready_seconds=oldest,
        demand=found.get("demand") or {},
    )
