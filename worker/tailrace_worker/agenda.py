"""When one queue claims next. Pure: moments on the boot clock, no input or output.

A claim that brought nothing is not repeated before something speaks for it: a notification, jobs found below the
floors, a job that falls due, or the poll. consumer.py asks and tells.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tailrace_worker.floors import SECONDS_BEHIND, Floors

LOOK_SECONDS = 0.05
"""At most so often a claim also looks for unknown priorities and what falls due next."""
IDLE_MINUTE = 60.0
SLOW_POLL_SECONDS = 5.0
ROUNDING_SECONDS = 0.001

NEXT_DUE = 1
"""Column of a row of `look`."""
NEW_PRIORITY, CLOCK, SUSPECT_DUE, HELD, MEMBER_DUE, OTHER_LIMITS = 1, 2, 3, 4, 5, 6
"""Columns of a row of `gaps`."""


class Agenda:
    """The timing of one queue.

    Args:
        poll_seconds: How often to look without a reason.
        now: The boot clock.
        jitter: Gives 0 to 1.

    Attributes:
        dry: The last claim brought nothing.
        more: A look found a new priority: go on at once.
        notified: Somebody said that there is a job.
        suspect_at: When a job that was lost before is due; None for none.
    """

    def __init__(self, poll_seconds: float, now: float, jitter: Callable[[], float] = random.random) -> None:
        self._poll_seconds, self._jitter = poll_seconds, jitter
        self.dry = self.more = self.notified = False
        self.suspect_at: float | None = None
        self._next_due: float | None = None
        self._poll_at = self._look_at = 0.0
        self._busy_since = now

    def next_claim(self, *, alone: bool) -> float:
        """When a dry queue claims again; `alone` tells whether a job that was lost before may be taken."""
        times = [self._poll_at]
        if self._next_due is not None:
            times.append(self._next_due)
        if self.suspect_at is not None and alone:
            times.append(self.suspect_at)
        return min(times)

    def may_claim(self, now: float, *, stragglers: bool, alone: bool) -> bool:
        """Whether there is a reason to claim."""
        return not self.dry or self.notified or stragglers or self.more or now >= self.next_claim(alone=alone)

    def look_now(self, now: float) -> bool:
        """Whether this claim also looks; a notified one does not, it is a hurry."""
        if self.more or (self._next_due is not None and now >= self._next_due):
            return True
        return not self.notified and now >= self._look_at

    def look_soon(self) -> None:
        """Rows came free below: the next claim looks."""
        self._look_at = 0.0

    def rest(self, now: float, seconds: float) -> None:
        """Take nothing for a while: jobs were just given back."""
        self.dry, self._poll_at = True, now + seconds

    def falls_due(self, at: float) -> None:
        """Note that a job comes back at a moment, which the next look would tell too late."""
        self._next_due = at if self._next_due is None else min(self._next_due, at)

    def claimed(self, jobs: int, now: float, *, notified: bool = False) -> None:
        """Note what a claim brought; a notified one that brought nothing is followed by a look (a priority may be new)."""
        self.dry = not jobs
        if jobs:
            self._busy_since = now
        every = self._poll_seconds if now - self._busy_since < IDLE_MINUTE else max(SLOW_POLL_SECONDS, self._poll_seconds)
        self._poll_at = now + every * (0.8 + 0.4 * self._jitter())
        if notified and not jobs:
            self._look_at, self._poll_at = now, min(self._poll_at, now + LOOK_SECONDS * self._jitter())

    def looked(self, floors: Floors, looked: Sequence[Any], gaps: Sequence[Any], now: float, *, short: bool) -> float:
        """Note what a look saw, and move the floors.

        Args:
            floors: The queue's floors.
            looked: Rows of `look`.
            gaps: Rows of `gaps`.
            now: The boot clock.
            short: The claim beside it did not get all it asked for.

        Returns:
            Seconds from the boot clock to the server's clock.
        """
        self._look_at = now + LOOK_SECONDS
        if short and not gaps[0][HELD]:  # a held queue was not examined
            floors.examined(gaps[0][CLOCK], now)
        found = [floors.add(row[NEW_PRIORITY], now=now) for row in gaps if row[NEW_PRIORITY] is not None]
        self.more = any(found)
        due = [row[NEXT_DUE] for row in looked if row[NEXT_DUE] is not None]
        self._next_due = now + min(due) + ROUNDING_SECONDS if due else None
        suspects = [row[SUSPECT_DUE] for row in gaps if row[SUSPECT_DUE] is not None]
        self.suspect_at = now + max(0.0, min(suspects)) if suspects else None
        return float(gaps[0][CLOCK]) + SECONDS_BEHIND - now
