"""Ending without losing or doubling work.

Stop claiming, give back what has not started, let what runs finish for the drain timeout, then cancel it and give it
back uncharged. What ignores even that is written as interrupted in the last act of the process. The lease is renewed
all the while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from tailrace.clock import boot
from tailrace.names.events import Event
from tailrace_worker import intake
from tailrace_worker.consumer import Consumer
from tailrace_worker.slots import STUCK_SECONDS, Slot

log = logging.getLogger("tailrace.worker")

STEP_SECONDS = 0.02
CLAIM_SECONDS = 2.0
"""How long to wait for the answer to a claim that was sent before the worker was told to stop."""


def stop_claiming(consumers: Iterable[Consumer]) -> int:
    """Take nothing more and hand back what has not started.

    Returns:
        How many jobs still run.
    """
    running = 0
    for consumer in consumers:
        consumer.claiming, consumer.draining = False, True
        consumer.handed_back += intake.give_back_all(consumer.lanes)
        for slot in consumer.lanes.slots:
            slot.tell("shutdown")
        running += consumer.lanes.busy
        consumer.want.set()
    return running


async def wait_for(condition: Callable[[], bool], seconds: float, hurry: asyncio.Event) -> bool:
    """Wait until a condition holds, the time is over, or somebody is in a hurry.

    Returns:
        Whether it holds.
    """
    until = boot() + seconds
    while not condition():
        if boot() >= until or hurry.is_set():
            return condition()
        await asyncio.sleep(STEP_SECONDS)
    return True


async def drain(consumers: list[Consumer], *, seconds: float, hurry: asyncio.Event) -> list[Slot]:
    """Let everything end.

    Args:
        consumers: The queues; they no longer claim.
        seconds: How long what runs may go on.
        hurry: Set by a second signal: cancel at once.

    Returns:
        Slots whose handler could not be stopped.
    """
    slots = [s for c in consumers for s in c.lanes.slots]

    def over() -> bool:
        now = boot()
        return all(s.row is None or s.stuck(now) for s in slots)

    if not await wait_for(over, seconds, hurry):
        late = [s for s in slots if s.row is not None]
        log.warning("drain timeout: interrupting what runs", extra={"event": Event.WORKER_DRAINING, "running": len(late)})
        for slot in late:
            if slot.reason is None:  # what was told for another reason ends for that one
                slot.interrupt("shutdown")
        await wait_for(over, STUCK_SECONDS + 1, asyncio.Event())
    return [s for s in slots if s.row is not None]


async def flush(consumers: list[Consumer], *, seconds: float, hurry: asyncio.Event) -> int:
    """Wait until every outcome is written, and every claim that was on its way is given back.

    Args:
        consumers: The queues; nothing runs any more but what is stuck.
        seconds: How long to wait for a database that is away.
        hurry: Set by a second signal: wait only briefly.

    Returns:
        How many outcomes could not be written.
    """

    def written() -> bool:
        for consumer in consumers:
            if consumer.outbox.count:
                consumer.outbox.urgent = True
                consumer.want.set()
        return all(c.outbox.empty for c in consumers)

    def answered() -> bool:
        return written() and all(not c.outbox.expected and c.limits.units.settled for c in consumers)

    await wait_for(answered, CLAIM_SECONDS, asyncio.Event())
    await wait_for(written, seconds - CLAIM_SECONDS, hurry)
    return sum(c.outbox.unwritten for c in consumers)
