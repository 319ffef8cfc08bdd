"""What one exchange with the database is asked to do, and what came back.

plan.py makes the first, claim.py sends it and fills the second, intake.py and results.py read that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailrace_worker.finish import Flush
from tailrace_worker.rows import EXTRA, Row

if TYPE_CHECKING:
    from tailrace_worker.classes import Limited
    from tailrace_worker.turns import Turn


@dataclass
class Ask:
    """What one exchange should do.

    Attributes:
        flush: Outcomes to write.
        jobs: How many jobs to claim, of `ids` where there are any, else above the floors.
        ids: Jobs to choose from: found below the floors, and perhaps taken or locked by others meanwhile.
        suspect: Claim one job that was lost before.
        look: Look past the floors too: unknown priorities, bounded slices, what falls due next.
        turn: What to do about groups.
        limited: What it may take of each class of tasks, in a queue with limits.
    """

    flush: Flush
    jobs: int = 0
    ids: Sequence[int] = ()
    suspect: bool = False
    look: bool = False
    turn: Turn | None = None
    limited: Limited | None = None

    @property
    def claims(self) -> bool:
        """Whether it takes anything that has no group."""
        return bool(self.jobs or self.suspect)

    @property
    def by_class(self) -> Limited | None:
        """What a limited claim may take of each class; None where the claim is any other's."""
        return None if self.limited is None or self.limited.plain else self.limited

    @property
    def most(self) -> int:
        """How many jobs without a group a limited claim takes at most: one that was lost before comes alone."""
        return 1 if self.suspect else self.jobs

    @property
    def scans(self) -> bool:
        """Whether it claims above the floors, so that nothing found there means that nothing is due."""
        return bool(self.jobs and not self.ids)


@dataclass
class Got:
    """What came back.

    Attributes:
        rows: Jobs from above the floors.
        by_id: Jobs that were asked for by id.
        suspects: The job that was lost before, if one was free.
        finished: (task, n) of each group of removed jobs.
        settled: (id, result) of settle_v1 and finish_keyed_v1.
        looked: Rows of `look`.
        gaps: Rows of `gaps`.
        members: Members of groups.
        turned: What the turn says of itself.
        told: What a limited claim says of itself.
    """

    rows: list[Row] = field(default_factory=list)
    by_id: list[Row] = field(default_factory=list)
    suspects: list[Row] = field(default_factory=list)
    finished: list[tuple[str, int]] = field(default_factory=list)
    settled: list[tuple[int, str]] = field(default_factory=list)
    looked: list[Row] = field(default_factory=list)
    gaps: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    turned: dict[str, Any] | None = None
    told: dict[str, Any] | None = None

    @property
    def jobs(self) -> int:
        """Jobs taken that have no group."""
        return len(self.rows) + len(self.by_id) + len(self.suspects)

    def claimed_by(self, ask: Ask) -> list[Row]:
        """Where the rows of a limited claim belong: it is one statement for all kinds."""
        return self.suspects if ask.suspect else self.by_id if ask.ids else self.rows

    def understand(self, ask: Ask) -> None:
        """Take the last rows out that say something of a turn, or of a limited claim."""
        if self.members:
            self.turned = self.members.pop()[EXTRA]
        if ask.by_class is not None and ask.claims:
            self.told = self.claimed_by(ask).pop()[EXTRA]
