"""The serial groups in hand: one member of each runs, and the next enters the buffer when it has ended.

A claim brings several members of a group, its chain; they run one after the other. When the last has ended the group is
asked for again or left, in the exchange that writes this outcome. turns.py decides when; run.py and intake.py tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tailrace_worker import endings
from tailrace_worker.finish import Outbox
from tailrace_worker.rows import GROUP, GROUPED, ID, MARK, PRIORITY, RUN_AT, TENANT, TOKEN, Row

if TYPE_CHECKING:
    from tailrace_worker.run import Lanes

MOST_MEMBERS: Final = 10
"""Members of one group that a claim takes at most."""

Key = tuple[str, str]
"""(name, tenant) of a group."""


class Chain:
    """The members of one group that wait behind the one that runs or stands in the buffer."""

    __slots__ = ("rest", "token")

    def __init__(self, token: int, rest: Iterable[Row]) -> None:
        self.token = token
        self.rest = deque(rest)


class Groups:
    """The groups that this worker holds of one queue.

    Args:
        outbox: Takes outcomes of members that must not run.

    Attributes:
        ended: Groups whose last member has an outcome in the outbox, with the token that holds them.
        waiting: Members that wait behind others.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._chains: dict[Key, Chain] = {}
        self.ended: dict[Key, int] = {}
        self.waiting = 0

    def take(self, rows: Iterable[Row]) -> list[Row]:
        """Keep claimed members.

        Returns:
            The first of each group that may run.
        """
        by_group: dict[Key, list[Row]] = {}
        for row in rows:
            by_group.setdefault((row[GROUP], row[TENANT]), []).append(row)
        heads = []
        for key, members in by_group.items():
            members.sort(key=lambda row: (-row[PRIORITY], row[RUN_AT], row[ID]))
            self._chains[key] = Chain(members[0][TOKEN], members)
            self.waiting += len(members)
            head = self._next(key)
            if head is not None:
                heads.append(head)
        return heads

    def after(self, row: Row) -> Row | None:
        """The member that follows one that has an outcome now; None when the group has ended here, or is not ours any more."""
        key = (row[GROUP], row[TENANT])
        chain = self._chains.get(key)
        return self._next(key) if chain is not None and chain.token == row[TOKEN] else None

    def _next(self, key: Key) -> Row | None:
        chain = self._chains[key]
        while chain.rest:
            row = chain.rest.popleft()
            self.waiting -= 1
            over = endings.unrun(row)
            if over is None:
                return row
            self._outbox.add(over, urgent=True)
        del self._chains[key]
        self.ended[key] = chain.token
        return None

    def give_back(self, row: Row) -> None:
        """A member that was first went back unstarted: those behind it do, too."""
        chain = self._chains.get((row[GROUP], row[TENANT]))
        if chain is not None and chain.token == row[TOKEN]:
            self._shed(chain)
            self.after(row)

    def give_back_waiting(self) -> int:
        """Hand back all members that wait behind others: the worker drains.

        Returns:
            How many.
        """
        return sum(self._shed(chain) for chain in self._chains.values())

    def _shed(self, chain: Chain) -> int:
        count = len(chain.rest)
        for row in chain.rest:
            self._outbox.add(endings.handback(row), urgent=True)
        chain.rest.clear()
        self.waiting -= count
        return count

    def lose(self, tokens: set[int]) -> None:
        """Forget the groups of leases that were taken over."""
        for key in [k for k, chain in self._chains.items() if chain.token in tokens]:
            self.waiting -= len(self._chains.pop(key).rest)
        self.ended = {key: token for key, token in self.ended.items() if token not in tokens}

    def remove(self, jobs: set[int]) -> list[Row]:
        """Take members out that wait behind others, by their ids."""
        found = []
        for chain in self._chains.values():
            out = [row for row in chain.rest if row[ID] in jobs]
            for row in out:
                chain.rest.remove(row)
            found += out
        self.waiting -= len(found)
        return found

    def rest(self) -> Iterator[Row]:
        """All members that wait behind others."""
        for chain in list(self._chains.values()):
            yield from list(chain.rest)


def hand_back(lanes: Lanes, row: Row) -> None:
    """Put a claimed job that has not started back, with the members of its group that wait behind it."""
    lanes.outbox.add(endings.handback(row), urgent=True)
    if row[MARK] & GROUPED:
        lanes.groups.give_back(row)


def follow(lanes: Lanes, row: Row) -> None:
    """A member of a group has its outcome: the next one takes its place."""
    member = lanes.groups.after(row)
    if member is None:
        lanes.want.set()
    else:
        lanes.buffer.appendleft(member)
        lanes.wake(1)
