"""What one queue sends next, and how long it may sleep when that is nothing.

The reasons to talk to the database come from everywhere: lanes run low, outcomes wait, a poll or a retry is due. Here they
become one exchange. consumer.py sends it; agenda.py and pace.py know the times and the sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace_worker import intake
from tailrace_worker.ask import Ask
from tailrace_worker.classes import Limited
from tailrace_worker.finish import Flush

if TYPE_CHECKING:
    from tailrace_worker.consumer import Consumer

FLUSH_SECONDS = 0.005
BUSY_FLUSH_SECONDS = 0.03
"""While jobs are buffered a claim comes soon, and the outcomes go with it."""
GROUP_FLUSH_SECONDS = 0.002
"""How long the outcome of a group that ended here waits for others: its next member waits with it."""
FLUSH_JOBS = 3000


class Plan:
    """Decides for one queue.

    Args:
        consumer: The queue.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._flush_at = 0.0
        self._roomy = self._free = False

    def next(self, now: float) -> Ask | None:
        """What to send now; None for nothing."""
        consumer, alone, room = self._consumer, self._alone(), self._room(now)
        agenda, limits, turns = consumer.agenda, consumer.limits, consumer.turns
        self._free = room > 0
        room = limits.room(now, room)
        self._roomy = room > 0
        may_claim = room > 0 and (
            agenda.may_claim(now, stragglers=limits.waits_below(now), alone=alone) or limits.again(now, room)
        )
        jobs = room if may_claim else 0
        flush = self._flush_due(now, claims=jobs > 0 or (room > 0 and now >= turns.next_at(alone=alone)))
        turn, jobs = turns.plan(now, room=room, jobs=jobs, free=consumer.lanes.free, flush=flush, alone=alone)
        if not jobs and not flush and turn is None:
            return None
        look = jobs > 0 and agenda.look_now(now)
        lone = alone and not (turn and turn.suspect)
        suspect = jobs > 0 and agenda.suspect_at is not None and now >= agenda.suspect_at and lone
        jobs -= jobs if suspect and limits.on else suspect
        below = limits.stragglers(now) if jobs > 0 else []  # all at once: those that others lock are passed over
        self._flush_at = 0.0
        taken = consumer.take_outcomes(now) if flush else Flush({}, [], [])
        if turn is not None and turn.ended:
            turn.unsettled = [o["id"] for o in taken.outcomes] + consumer.outbox.unsettled()
        ids = [ident for _, some in below for ident in some]
        limited = Limited(ids=below) if limits.on and (jobs or suspect or turn) else None
        return Ask(taken, jobs=jobs, ids=ids, suspect=suspect, look=look and jobs > 0, turn=turn, limited=limited)

    def pause(self, now: float) -> float:
        """How many seconds to sleep when there was nothing to send."""
        consumer = self._consumer
        until = [now + 1.0]
        if consumer.outbox.count:
            until.append(self._flush_at or now + FLUSH_SECONDS)
        again = consumer.outbox.next_try()
        if again is not None:
            until.append(again)
        if self._free:
            until.append(consumer.limits.next_at(now))
        if self._roomy:
            alone = self._alone()
            until.append(consumer.turns.next_at(alone=alone))
            if consumer.agenda.dry:
                until.append(consumer.agenda.next_claim(alone=alone))
        return max(0.0005, min(until) - now)

    def _room(self, now: float) -> int:
        """How many jobs this worker may take now."""
        consumer, lanes = self._consumer, self._consumer.lanes
        if not consumer.claiming or now > consumer.gate.until:
            return 0
        jobs = consumer.pace.size(running=lanes.running, waiting=len(lanes.buffer) + lanes.groups.waiting, now=now)
        lanes.low = consumer.pace.ahead
        if intake.too_many(lanes, consumer.pace):
            consumer.handed_back += intake.give_back(lanes, consumer.pace)
            consumer.agenda.rest(now, 1.0)
            return 0
        return 0 if len(lanes.buffer) > lanes.low else max(0, jobs)

    def _alone(self) -> bool:
        return self._consumer.share.alone.free(self._consumer)

    def _flush_due(self, now: float, *, claims: bool) -> bool:
        outbox, lanes = self._consumer.outbox, self._consumer.lanes
        again = outbox.next_try()
        if not (outbox.count or (again is not None and again <= now)):
            return False
        if claims or outbox.urgent or outbox.count >= FLUSH_JOBS or (not lanes.busy and not lanes.buffer):
            return True
        pause = GROUP_FLUSH_SECONDS if lanes.groups.ended else BUSY_FLUSH_SECONDS if lanes.buffer else FLUSH_SECONDS
        self._flush_at = min(self._flush_at or now + pause, now + pause)
        return now >= self._flush_at or (again is not None and again <= now)
