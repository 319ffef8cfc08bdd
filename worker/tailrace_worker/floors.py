"""How far a queue has been examined, per priority.

A claim starts where this worker was 256 own rows or 250 ms ago, whichever is nearer: rows of transactions that commit
a little late are found by the very next claim, and what lies in between stays cheap to walk. What lies further below
is found by rescan.py. Pure bookkeeping, no input or output; claim.py fills it and reads it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

Key = tuple[float, int]
"""(run_at in seconds since 1970, id). A double holds microseconds exactly until the year 2255."""

LOWEST: Key = (-math.inf, 0)
ROWS_BEHIND = 256
SECONDS_BEHIND = 0.25
STEP = 128
"""After how many rows of a claim a floor is noted."""

RUN_AT, PRIORITY, ID = 8, 6, 0
"""Columns of a claimed row that matter here."""


class Trail:
    """The recent floors of one priority, oldest first: (key, rows that it passed, when).

    The first floor was not examined by this worker; it is left as soon as there is another, or several claims would walk again
    over everything between the two.
    """

    __slots__ = ("behind", "given", "marks")

    def __init__(self, start: Key, now: float) -> None:
        self.marks: deque[tuple[Key, int, float]] = deque([(start, 0, now)])
        self.behind = 0
        self.given = True

    @property
    def start(self) -> Key:
        """Where the next claim begins."""
        return self.marks[0][0]

    @property
    def newest(self) -> Key:
        """How far has been examined."""
        return self.marks[-1][0]

    def advance(self, key: Key, rows: int, at: float) -> None:
        """Note that everything up to `key` was examined; a key that is no progress is ignored."""
        if key > self.newest:
            self.marks.append((key, rows, at))
            self.behind += rows

    def back(self, key: Key, now: float) -> None:
        """Replace the floor by an earlier one: a whole region lies free below it."""
        self.marks = deque([(key, 0, now)])
        self.behind = 0

    def trim(self, now: float) -> None:
        """Forget floors that are further behind than the limits."""
        marks = self.marks
        while len(marks) > 1 and (self.behind - marks[1][1] >= ROWS_BEHIND or marks[1][2] < now - SECONDS_BEHIND or self.given):
            marks.popleft()
            self.given = False
            self.behind -= marks[0][1]


class Floors:
    """The trails of every known priority of one queue."""

    def __init__(self) -> None:
        self.trails: dict[int, Trail] = {}
        self.known: list[int] = []  # high first, the order of claims

    def add(self, priority: int, start: Key = LOWEST, *, now: float = 0.0) -> bool:
        """Learn of a priority.

        Returns:
            Whether it was new.
        """
        if priority in self.trails:
            return False
        self.trails[priority] = Trail(start, now)
        self.known = sorted(self.trails, reverse=True)
        return True

    def starts(self, now: float) -> dict[str, Any]:
        """The parameters `priorities`, `run_ats`, `ids` of a claim, trimmed to the limits."""
        for trail in self.trails.values():
            trail.trim(now)
        keys = [self.trails[p].start for p in self.known]
        return {"priorities": self.known, "run_ats": [k[0] for k in keys], "ids": [k[1] for k in keys]}

    def gaps(self) -> dict[str, Any]:
        """The parameters `lows`, `highs` of the statement that looks for unknown priorities."""
        bounds = sorted(self.trails)
        return {"lows": [-1001, *bounds], "highs": [*bounds, 1001]}

    def claimed(self, rows: Sequence[tuple[Any, ...]], now: float) -> None:
        """Move the floors along the rows of one claim.

        Args:
            rows: In the order of the claim: by priority, then run_at, then id.
            now: This process's clock in seconds.
        """
        passed, last = 0, len(rows) - 1
        for number, row in enumerate(rows):
            passed += 1
            if passed == STEP or number == last or rows[number + 1][PRIORITY] != row[PRIORITY]:
                self.trails[row[PRIORITY]].advance((row[RUN_AT], row[ID]), passed, now)
                passed = 0

    def examined(self, clock: float, now: float) -> None:
        """Move every floor to a moment: a claim came back short, so all that was visible up to now was examined.

        Args:
            clock: The server's time a quarter of a second ago.
            now: This process's clock in seconds.
        """
        for trail in self.trails.values():
            trail.advance((clock, 0), 0, now - SECONDS_BEHIND)
