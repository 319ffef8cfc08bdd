"""A thread that looks after the others: handlers that do not end, an event loop that is blocked, a beat that hangs.

A stuck thread makes the worker drain. When the event loop itself is blocked nothing can drain, not even a SIGTERM is
seen there: then the outcomes are written from here, in the last act of the process.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.clock import boot
from tailrace.names.events import Event
from tailrace_worker.farewell import last_words
from tailrace_worker.rows import ID, TASK
from tailrace_worker.slots import STUCK_SECONDS

if TYPE_CHECKING:
    from tailrace_worker.parts import Parts

log = logging.getLogger("tailrace.worker")

LOOK_SECONDS = 0.5
BLOCKED_SECONDS = 5.0


class Watch(threading.Thread):
    """Looks about twice a second.

    Args:
        parts: The worker's parts.
        give_up: Makes the worker drain; called on the event loop.
        loop_seen: When the event loop ran last, by the boot clock.
        drain_seconds: How long running jobs may go on after the worker was told to stop.
    """

    def __init__(
        self, parts: Parts, *, give_up: Callable[[], None], loop_seen: Callable[[], float], drain_seconds: float
    ) -> None:
        super().__init__(name="tailrace-watch", daemon=True)
        self.signalled_at = math.inf
        self._parts, self._give_up, self._loop_seen, self._drain_seconds = parts, give_up, loop_seen, drain_seconds
        self._stopped = threading.Event()
        self._told: set[tuple[int, int]] = set()

    def stop(self) -> None:
        """End the thread; does not wait."""
        self._stopped.set()

    def run(self) -> None:
        """Look until stopped."""
        before = boot()
        while not self._stopped.wait(LOOK_SECONDS):
            now = boot()
            paused, before = now - before > BLOCKED_SECONDS, now
            if paused:  # the whole process stood still: let the loop have its turn first
                continue
            self._parts.heartbeat.end_silence()
            self._look(now)

    def _look(self, now: float) -> None:
        blocked = now - self._loop_seen() > BLOCKED_SECONDS
        late = now > self.signalled_at + self._drain_seconds + STUCK_SECONDS
        stuck = False
        for consumer in self._parts.consumers:
            for slot in consumer.lanes.slots:
                row = slot.row
                if row is None or not (slot.stuck(now) or (late and blocked)):
                    continue
                stuck = True
                if (row[ID], id(row)) not in self._told:
                    self._told.add((row[ID], id(row)))
                    fields = {"event": Event.JOB_STUCK, "job_id": row[ID], "queue": consumer.queue, "task": row[TASK]}
                    log.error("a handler runs on long after it was told to stop", extra=fields)
                    self._parts.call_soon(self._give_up)
        if stuck and blocked:
            log.error("the event loop is blocked: exiting", extra={"event": Event.JOB_STUCK})
            last_words(self._parts)
            logging.shutdown()
            os._exit(1)
