"""Handlers that do not end: looked for by the heartbeat thread, so that a blocked event loop is caught as well.

A stuck thread makes the worker drain. When the event loop itself is blocked nothing can drain: the outcomes are
written from here, in the last act of the process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.names.events import Event
from tailrace_worker.claim import ID, TASK
from tailrace_worker.clock import boot

if TYPE_CHECKING:
    from tailrace_worker.parts import Parts

log = logging.getLogger("tailrace.worker")

BLOCKED_SECONDS = 5.0


class Watch:
    """Called about twice a second in the heartbeat thread.

    Args:
        parts: The worker's parts.
        give_up: Makes the worker drain; called on the event loop.
        loop_seen: When the event loop ran last, by the boot clock.
    """

    def __init__(self, parts: Parts, *, give_up: Callable[[], None], loop_seen: Callable[[], float]) -> None:
        self._parts, self._give_up, self._loop_seen = parts, give_up, loop_seen
        self._told: set[int] = set()

    def __call__(self) -> None:
        """Look once."""
        now = boot()
        for consumer in self._parts.consumers:
            for slot in consumer.lanes.slots:
                row = slot.row
                if row is None or not slot.stuck(now):
                    continue
                if row[ID] not in self._told:
                    self._told.add(row[ID])
                    fields = {"event": Event.JOB_STUCK, "job_id": row[ID], "queue": consumer.queue, "task": row[TASK]}
                    log.error("a handler runs on long after it was told to stop", extra=fields)
                    self._parts.call_soon(self._give_up)
                if now - self._loop_seen() > BLOCKED_SECONDS:
                    self._last_act()

    def _last_act(self) -> None:
        written = self._parts.last_words()
        log.error("the event loop is blocked: exiting", extra={"event": Event.JOB_STUCK, "written": written})
        logging.shutdown()
        os._exit(1)
