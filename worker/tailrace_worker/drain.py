"""Ending without losing or doubling work.

Stop claiming, give back what has not started, let what runs finish for the drain timeout, then cancel it and give it
back uncharged. What ignores even that is written as interrupted in the last act of the process. The lease is renewed
all the while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from tailrace.names.events import Event
from tailrace_worker import intake
from tailrace_worker.clock import boot
from tailrace_worker.consumer import Consumer
from tailrace_worker.slots import STUCK_SECONDS, Slot

log = logging.getLogger("tailrace.worker")

STEP_SECONDS = 0.02


def stop_claiming(consumers: Iterable[Consumer]) -> int:
    """Take nothing more and hand back what has not started.

    Returns:
        How many jobs still run.
    """
    running = 0
    for consumer in consumers:
        consumer.claiming = False
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

    def idle() -> bool:
        return not any(c.lanes.busy for c in consumers)

    if not await wait_for(idle, seconds, hurry):
        late = [s for c in consumers for s in c.lanes.slots if s.row is not None]
        log.warning("drain timeout: interrupting what runs", extra={"event": Event.WORKER_DRAINING, "running": len(late)})
        for slot in late:
            slot.interrupt("shutdown")
        await wait_for(idle, STUCK_SECONDS, asyncio.Event())
    return [s for c in consumers for s in c.lanes.slots if s.row is not None]


async def flush(consumers: list[Consumer], seconds: float) -> int:
    """Wait until every outcome is written.

    Returns:
        How many could not be.
    """

    def written() -> bool:
        for consumer in consumers:
            if consumer.outbox.count:
                consumer.outbox.urgent = True
                consumer.want.set()
        return all(not c.outbox.held and c.outbox.empty for c in consumers)

    await wait_for(written, seconds, asyncio.Event())
    return sum(c.outbox.count for c in consumers)
