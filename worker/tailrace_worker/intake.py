"""What to do with claimed jobs: which start first, which must not run, which go back at once.

Pure decisions over the buffer; consumer.py calls them between two exchanges.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from tailrace.clock import boot
from tailrace_worker import endings
from tailrace_worker.ask import Got
from tailrace_worker.groups import hand_back
from tailrace_worker.pace import AHEAD_SECONDS, Pace
from tailrace_worker.rows import ATTEMPT, GROUPED, ID, KEYED, LAST, MARK, PAYLOAD, PRIORITY, RUN_AT, TASK, TOKEN, Row
from tailrace_worker.run import Lanes

if TYPE_CHECKING:
    from tailrace_worker.consumer import Consumer

SAMPLE: Final = 16

LATER: Final = KEYED | GROUPED
"""Bits of MARK that matter at the end of a run only."""

_order, _priority, _kind = itemgetter(RUN_AT, ID), itemgetter(PRIORITY), itemgetter(TASK, PRIORITY, ATTEMPT)


class Alone:
    """At most one job that was lost before is in hand: if it kills this process, its neighbours are charged once only."""

    def __init__(self) -> None:
        self._holder: Consumer | None = None
        self._token = 0

    def take(self, consumer: Consumer, token: int) -> None:
        """Such a job was claimed."""
        self._holder, self._token = consumer, token

    def free(self, asker: Consumer) -> bool:
        """Whether another may be claimed."""
        if self._holder is None:
            return True
        lanes = self._holder.lanes
        busy = any(s.holds(self._token) for s in lanes.slots) or any(r[TOKEN] == self._token for r in lanes.buffer)
        if not busy:
            self._holder = None
        return not busy


def take(consumer: Consumer, got: Got) -> int:
    """Put what a claim brought into the buffer and wake lanes.

    Returns:
        How many jobs were handed back at once.
    """
    lanes, outbox = consumer.lanes, consumer.outbox
    rows = got.rows
    if got.by_id:
        rows = got.by_id + rows
        order(rows)
    if got.suspects:
        consumer.share.alone.take(consumer, got.suspects[0][TOKEN])
    for row in rows[::SAMPLE]:
        consumer.pace.payload(len(row[PAYLOAD]))
    _count(lanes, got.suspects + rows if got.suspects else rows, boot() + consumer.server_ahead)
    if got.members:
        rows = _heads(consumer, got.members) + rows
    marked = [r for r in got.suspects + rows if r[MARK]]
    if not any(r[MARK] & ~LATER for r in marked):
        _line_up(consumer, rows)
        lanes.buffer.extendleft(got.suspects)
        lanes.wake(len(rows) + len(got.suspects))
        return 0
    runnable: list[Row] = []
    for row in rows:
        ended = endings.unrun(row)
        if ended is None:
            runnable.append(row)
        else:
            outbox.add(ended, urgent=True)
    suspects = [row for row in got.suspects if not _ended(consumer, row)]
    last = suspects + [r for r in runnable if r[MARK] & LAST]
    others = [r for r in runnable if not r[MARK] & LAST]
    free = max(0, len(lanes.slots) - lanes.running - sum(1 for r in lanes.buffer if r[MARK] & LAST))
    if 2 * (len(last) - free) > len(rows):
        consumer.pace.last_attempts(boot())
    for row in last[free:]:  # none may die unrun with this process
        hand_back(lanes, row)
    starting = last[:free]
    _line_up(consumer, others)
    lanes.buffer.extendleft(reversed(starting))
    lanes.wake(len(starting) + len(others))
    return len(last) - len(starting)


def _line_up(consumer: Consumer, rows: list[Row]) -> None:
    """Put jobs into the buffer: those of tasks with a limit of their own first, since they hold a slot from now on."""
    narrow, buffer = consumer.lanes.narrow, consumer.lanes.buffer
    if not narrow:
        buffer.extend(rows)
        return
    buffer.extend(row for row in rows if row[TASK] not in narrow)
    buffer.extendleft([row for row in reversed(rows) if row[TASK] in narrow])


def _heads(consumer: Consumer, members: list[Row]) -> list[Row]:
    """The first member of each group; the others wait behind them."""
    _count(consumer.lanes, members, boot() + consumer.server_ahead)
    return consumer.lanes.groups.take(members)


def _count(lanes: Lanes, rows: list[Row], server_now: float) -> None:
    """Count claims and waits, whole batches of one kind at once."""
    kinds = set(map(_kind, rows))
    for task, priority, attempt in kinds:
        alike = rows if len(kinds) == 1 else [r for r in rows if _kind(r) == (task, priority, attempt)]
        waits = [max(0.0, server_now - r[RUN_AT]) for r in alike]
        waits.sort()
        lanes.tasks[task].claimed(priority, waits, first=attempt == 1)


def _ended(consumer: Consumer, row: Row) -> bool:
    ended = endings.unrun(row)
    if ended is not None:
        consumer.outbox.add(ended, urgent=True)
    return ended is not None


def order(rows: list[Row]) -> None:
    """High priority first, then the longest due, then by id: the update returns rows by place. Ordered lists sort fast."""
    rows.sort(key=_order)
    if len(set(map(_priority, rows))) > 1:
        rows.sort(key=_priority, reverse=True)


def too_many(lanes: Lanes, pace: Pace) -> bool:
    """Whether this worker holds clearly more than it starts soon."""
    waiting, ahead, slots = len(lanes.buffer), 2 * pace.ahead, len(lanes.slots)
    if waiting <= ahead:
        return False
    slow = pace.mean is not None and waiting * pace.mean > 10 * AHEAD_SECONDS * slots
    return waiting > ahead + 10 * slots or (waiting > ahead + slots and slow) or (slow and pace.ahead == 0)


def give_back(lanes: Lanes, pace: Pace) -> int:
    """Hand back what will not start soon, the newest first.

    Returns:
        How many jobs.
    """
    keep, count = 2 * pace.ahead, 0
    while len(lanes.buffer) > keep:
        hand_back(lanes, lanes.buffer.pop())
        count += 1
    return count


def give_back_all(lanes: Lanes) -> int:
    """Hand back everything that has not started: the worker drains.

    Returns:
        How many jobs.
    """
    count = len(lanes.buffer) + lanes.groups.give_back_waiting()
    while lanes.buffer:
        hand_back(lanes, lanes.buffer.pop())
    return count
