"""When a worker runs a routine itself: only while nobody else does.

Pure: it is told when a routine last succeeded and says whether to run it. `loop` asks the database and obeys.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Seen", "StandIn"]


@dataclass(frozen=True)
class Seen:
    """When a routine last succeeded.

    Attributes:
        last_success: The database's time, only compared for equality.
        age: Seconds since then by the database's clock; negative when that clock was set back.
    """

    last_success: str
    age: float


class StandIn:
    """One worker's part in one routine: looks each third of a period, steps in after two, steps back when another shows.

    A gap stays below two and a third periods, so below the three after which the reaper would begin anew.
    """

    def __init__(self, period: float) -> None:
        """Begin as an onlooker.

        Args:
            period: Seconds between two runs of the routine.
        """
        self._period = period
        self._mine: str | None = None

    @property
    def standing_in(self) -> bool:
        """Whether this worker runs the routine now."""
        return self._mine is not None

    @property
    def pause(self) -> float:
        """Seconds until it should look, or run, again."""
        return self._period if self.standing_in else self._period / 3

    def should_run(self, seen: Seen | None) -> bool:
        """Whether to run the routine now.

        Args:
            seen: When it last succeeded, whoever ran it; None if never.
        """
        if self._mine is not None and seen is not None and seen.last_success == self._mine:
            return True
        self._mine = None
        return seen is None or seen.age < 0 or seen.age > 2 * self._period

    def ran(self, seen: Seen | None) -> None:
        """Remember a run of its own.

        Args:
            seen: The routine's state right after it; None if it did not succeed.
        """
        self._mine = None if seen is None else seen.last_success
