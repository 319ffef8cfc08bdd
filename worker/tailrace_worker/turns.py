"""When a queue's groups have their turn, and how the free slots are shared with jobs without a group.

A walk over the groups that found nothing is repeated after fifty times its own duration at the earliest (ten times when
something has come since), so a queue without free groups pays nothing; one that found some is followed by the next at once.
Pure but for the random numbers: consumer.py asks and tells, groups.py keeps what was taken.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace_worker.groups import MOST_MEMBERS, Groups, Key
from tailrace_worker.pace import AHEAD_SECONDS, Pace

WALK: Final = 400
"""Groups that one turn passes at most."""
FIRST: Final[Key] = ("", "")
SHARE: Final = 50.0
HURRY: Final = 10.0
"""The same for a walk that a notification asks for."""
ABSENT_SECONDS: Final = 1.0
"""How often to look whether a queue has groups at all."""
PAUSE_SECONDS: Final = (0.05, 0.25)
"""Shortest and longest wait after a walk that found nothing, while there are groups."""
HURRY_SECONDS: Final = 0.005
"""Shortest wait after such a walk when something has come since."""
PROBE: Final = 10
"""A walk that will probably find nothing gets one of so many free slots."""


@dataclass
class Turn:
    """What one exchange does about groups.

    Attributes:
        ended: Groups that ended here, by the token that holds them.
        n: How many groups to have afterwards beside those that still run.
        k: Members to take of each at most.
        walk: How many groups to pass at most.
        after: Where to begin.
        suspect: Take one whose next member was lost before.
        unsettled: Jobs whose outcome may not be written by this exchange.
    """

    ended: Mapping[Key, int] = field(default_factory=dict)
    n: int = 0
    k: int = 1
    walk: int = 0
    after: Key = FIRST
    suspect: bool = False
    unsettled: Sequence[int] = ()

    def params(self) -> dict[str, Any]:
        """The parameters of turn_groups."""
        return {
            "ended_names": [name for name, _ in self.ended],
            "ended_tenants": [tenant for _, tenant in self.ended],
            "ended_tokens": list(self.ended.values()),
            "unsettled": list(self.unsettled),
            "n": self.n,
            "k": self.k,
            "walk": self.walk,
            "after_name": self.after[0],
            "after_tenant": self.after[1],
            "suspect": self.suspect,
        }


class Turns:
    """The timing of one queue's groups.

    Args:
        groups: Those in hand.
        pace: Tells the mean run time.
        jitter: Gives 0 to 1.

    Attributes:
        workers: Live workers of the queue, who share the budget of walks.
        suspect_at: When a member that was lost before is due; None for none.
    """

    def __init__(self, groups: Groups, pace: Pace, jitter: Callable[[], float] = random.random) -> None:
        self._groups, self._pace, self._jitter = groups, pace, jitter
        self.workers = 1
        self.suspect_at: float | None = None
        self.present = False
        self._likely = self._turned = False
        self._walk_at = self._soonest = 0.0
        self._pause = PAUSE_SECONDS[0]
        self._after = FIRST

    def look_soon(self, *, always: bool = False) -> None:
        """Something may have come: walk as soon as the budget allows, in a queue that is known to have groups or `always`."""
        if self.present or always:
            self._walk_at, self._pause = min(self._walk_at, self._soonest), PAUSE_SECONDS[0]

    def falls_due(self, at: float) -> None:
        """A job comes back at a moment on the boot clock; it may have a group."""
        if self.present:
            self._walk_at = min(self._walk_at, at)

    def next_at(self, *, alone: bool) -> float:
        """When the next turn is due without anything else happening; `alone` as for the agenda."""
        return min(self._walk_at, self.suspect_at if self.suspect_at is not None and alone else math.inf)

    def plan(self, now: float, *, room: int, jobs: int, free: int, flush: bool, alone: bool) -> tuple[Turn | None, int]:
        """Share what may be claimed.

        Args:
            now: The boot clock.
            room: How many jobs this worker may take.
            jobs: How many of them it would claim without groups.
            free: How many of them would start at once, not below 0.
            flush: The outcomes in the outbox go with this exchange.
            alone: No job that was lost before is in hand.

        Returns:
            The turn, None for none, and how many jobs without a group to claim.
        """
        ended = self._groups.ended if flush else {}
        if room > 0 and not ended and alone and self.suspect_at is not None and now >= self.suspect_at:
            return Turn(n=1, walk=WALK, suspect=True), jobs - 1 if jobs else 0
        walk = room > 0 and now >= self._walk_at
        if not walk and not ended:
            return None, jobs
        mean = self._pace.mean
        k = 1 if mean is None or not self._pace.ahead else max(1, min(MOST_MEMBERS, int(AHEAD_SECONDS / max(mean, 1e-6))))
        share = self._share(room, jobs, len(ended), walk=walk)
        n = max(min(share, free), share // k)
        if share:
            n = max(n, min(len(ended), room, share * MOST_MEMBERS))
        if not ended and not n:
            return None, jobs
        turn = Turn(ended=ended, n=n, k=k, walk=WALK if walk and n else 0, after=self._after)
        if ended:
            self._groups.ended = {}
        return turn, max(0, min(jobs, room - share))

    def _share(self, room: int, jobs: int, ended: int, *, walk: bool) -> int:
        """How many of the jobs that may be taken are for groups."""
        if not jobs:
            return room
        if room == 1:  # turn by turn
            self._turned = not self._turned
            return int(self._turned)
        if self._likely:
            return (room + 1) // 2
        probe = max(1, room // PROBE) if walk else 0
        return min((room + 1) // 2, ended + probe)

    def turned(self, turn: Turn, told: Mapping[str, Any], now: float, *, members: int) -> None:
        """Note what a turn brought.

        Args:
            turn: What was asked.
            told: The `extra` of its last row.
            now: The boot clock.
            members: How many jobs it brought.
        """
        for name, tenant in told["kept"]:
            self._groups.ended.setdefault((name, tenant), turn.ended[name, tenant])
        if turn.suspect:
            if not members:
                self.suspect_at = None
            return
        if not turn.walk:
            return
        self._after = (told["after"][0], told["after"][1])
        self.present = told["walked"] > 0
        self._likely = told["found"] >= turn.n
        if told["found"]:
            self._walk_at, self._soonest, self._pause = now, now, PAUSE_SECONDS[0]
            return
        pause = self._pause if self.present else ABSENT_SECONDS
        self._pause = min(PAUSE_SECONDS[1], 1.5 * self._pause)
        took = float(told["seconds"])
        self._walk_at = now + max(pause, SHARE * took) * self.workers * (0.8 + 0.4 * self._jitter())
        self._soonest = now + max(HURRY_SECONDS if self.present else PAUSE_SECONDS[0], HURRY * took)
