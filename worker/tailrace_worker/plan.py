"""What one queue sends next, and how long it may sleep when that is nothing.

The reasons to talk to the database come from everywhere: lanes run low, outcomes wait, a poll or a retry is due. Here they
become one exchange. consumer.py sends it; agenda.py and pace.py know the times and the sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace_worker import intake
from tailrace_worker.claim import Ask
from tailrace_worker.finish import Flush

if TYPE_CHECKING:
    from tailrace_worker.consumer import Consumer

FLUSH_SECONDS = 0.005
BUSY_FLUSH_SECONDS = 0.03
"""While jobs are buffered a claim comes soon, and the outcomes go with it."""
FLUSH_JOBS = 3000


class Plan:
    """Decides for one queue.

    Args:
        consumer: The queue.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._flush_at = 0.0

    def next(self, now: float) -> Ask | None:
        """What to send now; None for nothing."""
        consumer = self._consumer
        jobs = self._jobs(now)
        flush = self._flush_due(now, claims=jobs > 0)
        if not jobs and not flush:
            return None
        agenda, stragglers = consumer.agenda, consumer.stragglers
        look = jobs > 0 and agenda.look_now(now)
        suspect = jobs > 0 and agenda.suspect_at is not None and now >= agenda.suspect_at and self._alone()
        jobs -= suspect
        ids = list(stragglers) if jobs > 0 else []  # all at once: those that others lock are passed over
        if ids:
            stragglers.clear()
        self._flush_at = 0.0
        taken = consumer.take_outcomes(now) if flush else Flush({}, [], {}, [])
        return Ask(taken, jobs=jobs, ids=ids, suspect=suspect, look=look)

    def pause(self, now: float) -> float:
        """How many seconds to sleep when there was nothing to send."""
        consumer = self._consumer
        until = [now + 1.0]
        if consumer.outbox.count:
            until.append(self._flush_at or now + FLUSH_SECONDS)
        again = consumer.outbox.next_try()
        if again is not None:
            until.append(again)
        if consumer.claiming and consumer.agenda.dry:
            until.append(consumer.agenda.next_claim(alone=self._alone()))
        return max(0.0005, min(until) - now)

    def _jobs(self, now: float) -> int:
        consumer, lanes = self._consumer, self._consumer.lanes
        if not consumer.claiming or now > consumer.gate.until:
            return 0
        jobs = consumer.pace.size(running=lanes.running, waiting=len(lanes.buffer), now=now)
        lanes.low = consumer.pace.ahead
        if intake.too_many(lanes, consumer.pace):
            consumer.handed_back += intake.give_back(lanes, consumer.pace)
            consumer.agenda.rest(now, 1.0)
            return 0
        if jobs <= 0 or len(lanes.buffer) > lanes.low:
            return 0
        return jobs if consumer.agenda.may_claim(now, stragglers=bool(consumer.stragglers), alone=self._alone()) else 0

    def _alone(self) -> bool:
        return self._consumer.share.alone.free(self._consumer)

    def _flush_due(self, now: float, *, claims: bool) -> bool:
        outbox, lanes = self._consumer.outbox, self._consumer.lanes
        again = outbox.next_try()
        if not (outbox.count or (again is not None and again <= now)):
            return False
        if claims or outbox.urgent or outbox.count >= FLUSH_JOBS or (not lanes.busy and not lanes.buffer):
            return True
        if not self._flush_at:
            self._flush_at = now + (BUSY_FLUSH_SECONDS if lanes.buffer else FLUSH_SECONDS)
        return now >= self._flush_at or (again is not None and again <= now)
