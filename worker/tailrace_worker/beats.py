"""What the event loop does with a heartbeat's news: settings, lost and forgotten leases, cancels, orders.

Runs on the event loop; lease.py calls it from the heartbeat thread through the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from tailrace.names.events import Event
from tailrace_worker import limited
from tailrace_worker.consumer import Consumer
from tailrace_worker.failures import outcome
from tailrace_worker.groups import follow
from tailrace_worker.lease import Beat
from tailrace_worker.results import fenced
from tailrace_worker.rows import GROUPED, ID, MARK, TASK, TOKEN
from tailrace_worker.slots import Gate

log = logging.getLogger("tailrace.worker")


class News:
    """Applies beats to the queues of one worker.

    Args:
        consumers: The queues.
        gate: Opened until the lease stops being certain.
        on_lease: Told the shortest lease that the queues' settings ask for, and its renewal, in seconds; None for none.
    """

    def __init__(self, consumers: list[Consumer], gate: Gate, on_lease: Callable[[tuple[float, float] | None], None]) -> None:
        self.consumers, self.gate, self._on_lease = consumers, gate, on_lease
        self.cordoned = False
        self.draining = False
        self._strangers: set[int] = set()
        self._settings: dict[str, Any] = {}

    def apply(self, beat: Beat, held_then: set[int]) -> None:
        """Take one confirmed beat.

        Args:
            beat: What it told.
            held_then: Tokens that were held, not only expected, when it was sent.
        """
        self.gate.confirm(beat.certain_until)
        for consumer in self.consumers:
            self._queue(consumer, beat.queues.get(consumer.queue) or {})
        self._on_lease(shortest_lease(self._settings.values()))
        self._lost({t for t in beat.missing if t in held_then})
        self._unknown(beat.unknown)
        self._cancel(set(beat.cancel))
        if not self.draining and self.cordoned != (beat.state == "cordoned"):
            self.cordoned = beat.state == "cordoned"
            for consumer in self.consumers:
                consumer.claiming = not self.cordoned
        for consumer in self.consumers:
            consumer.want.set()

    def _queue(self, consumer: Consumer, told: dict[str, Any]) -> None:
        consumer.rescan.workers = consumer.turns.workers = max(1, int(told.get("workers") or 1))
        settings = told.get("settings") or {}
        if (version := int(told.get("limits") or 0)) != consumer.limits.version:
            limited.learn(consumer, settings, version)
        if self._settings.get(consumer.queue) == settings and consumer.queue in self._settings:
            return
        self._settings[consumer.queue] = settings
        defaults = settings.get("jobDefaults") or {}
        consumer.pace.prefetch = defaults.get("maxAttempts") != 1 and consumer.limits.ahead
        for task in consumer.lanes.tasks.values():
            task.apply(settings)
        consumer.max_interruptions = defaults.get("maxInterruptions")
        consumer.outbox.history = bool(settings.get("history"))
        consumer.discard = settings.get("exhaustedPolicy") == "Discard"

    def _lost(self, missing: set[int]) -> None:
        """Leases that were taken over: their jobs are not ours any more."""
        for consumer in self.consumers:
            outbox, lanes = consumer.outbox, consumer.lanes
            in_hand = {row[TOKEN] for row in lanes.buffer} | {s.row[TOKEN] for s in lanes.slots if s.row is not None}
            # Where only outcomes are left that may have been written, their commit has ended the lease.
            gone = {t for t in missing & set(outbox.held) if t in in_hand or t not in outbox.unsure}
            if not gone:
                continue
            log.warning("leases lost", extra={"event": Event.LEASE_LOST, "leases": len(gone), "queue": consumer.queue})
            outbox.lost |= gone
            kept = [row for row in lanes.buffer if row[TOKEN] not in gone]
            lanes.buffer.clear()
            lanes.buffer.extend(kept)
            lanes.groups.lose(gone)
            for token in gone:
                refused = len(outbox.done.pop(token, ()))
                outbox.count -= refused
                fenced(lanes, refused)
                outbox.held.pop(token, None)
            for slot in lanes.slots:
                if slot.row is not None and slot.row[TOKEN] in gone:
                    slot.tell("lease_lost")

    def _unknown(self, leases: Iterable[dict[str, Any]]) -> None:
        """Leases that the database has and we do not: a claim whose answer was lost. Given back when seen twice."""
        seen: set[int] = set()
        for lease in leases:
            token = int(lease["token"])
            seen.add(token)
            consumer = next((c for c in self.consumers if c.queue == lease["queue"]), None)
            if (
                consumer is None
                or token not in self._strangers
                or token in consumer.outbox.held
                or token in consumer.outbox.expected
            ):
                continue
            ids = [int(i) for i in lease["ids"]]
            consumer.outbox.held[token] = len(ids)
            for ident in ids:
                consumer.outbox.add(outcome(ident, token, "handback"), urgent=True)
            seen.discard(token)
            log.warning("gave back a claim whose answer was lost", extra={"event": Event.LEASE_RETURNED, "jobs": len(ids)})
        self._strangers = seen

    def _cancel(self, jobs: set[int]) -> None:
        if not jobs:
            return
        for consumer in self.consumers:
            lanes = consumer.lanes
            for slot in lanes.slots:
                if slot.row is not None and slot.row[ID] in jobs:
                    slot.tell("cancel")
            for row in lanes.groups.remove(jobs):
                consumer.outbox.add(outcome(row[ID], row[TOKEN], "cancelled", task=row[TASK]), urgent=True)
            for row in [r for r in lanes.buffer if r[ID] in jobs]:
                lanes.buffer.remove(row)
                consumer.outbox.add(outcome(row[ID], row[TOKEN], "cancelled", task=row[TASK]), urgent=True)
                if row[MARK] & GROUPED:
                    follow(lanes, row)


def shortest_lease(settings: Iterable[dict[str, Any]]) -> tuple[float, float] | None:
    """The shortest lease that any of these queues asks for, and its renewal, in seconds.

    Args:
        settings: The queues' settings; `worker.lease` has durationSeconds and renewPeriodSeconds.
    """
    leases = [(s.get("worker") or {}).get("lease") or {} for s in settings]
    asked = [
        (float(d), float(lease.get("renewPeriodSeconds") or d / 3)) for lease in leases if (d := lease.get("durationSeconds"))
    ]
    return min(asked, default=None)
