"""What a queue does when an exchange with the database failed: nothing is lost, nobody else has to wait.

A lost connection is made again, whatever was on its way; a statement that was refused is cut into pieces, so that one bad
or locked row keeps no other outcome from being written.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from tailrace.clock import boot
from tailrace.db import errors
from tailrace.errors import TailraceError
from tailrace.names.events import Event
from tailrace_worker import results
from tailrace_worker.ask import Ask
from tailrace_worker.finish import Flush
from tailrace_worker.work import lost

if TYPE_CHECKING:
    from tailrace_worker.consumer import Consumer

log = logging.getLogger("tailrace.worker")

FAULTS = (errors.Error, TailraceError, OSError)
"""What a statement can raise that a worker outlives."""

LONGEST_PAUSE_SECONDS = 5.0


async def failed(consumer: Consumer, ask: Ask, error: BaseException) -> None:
    """Take back what was sent, and make things work again.

    Args:
        consumer: Whose exchange it was.
        ask: What it had sent.
        error: What it raised.
    """
    consumer.polls["error"] += 1
    away = lost(error, consumer.work.conn if consumer.work.connected else None)
    consumer.outbox.restore(ask.flush, doubtful=away)
    if ask.turn is not None:
        consumer.lanes.groups.ended = {**ask.turn.ended, **consumer.lanes.groups.ended}
    if ask.limited is not None:
        consumer.limits.give_up_ids(ask.limited.ids)
        consumer.limits.units.in_hand = False  # they are lost: whether they were used is not known
    else:
        consumer.stragglers.extend(ask.ids)
    consumer.failures += 1
    fields = {"event": Event.CLAIM_FAILED, "error": type(error).__name__, "queue": consumer.queue}
    log.warning("claim or finish failed: %s", results.brief(error), extra=fields)
    if away:
        # Nobody else has used the connection since: the turn was ours until just now.
        consumer.work.connected = False
        await consumer.share.recover()
        consumer.look_below()
        if consumer.failures > 1:  # it connects and fails again
            await _pause(consumer)
    elif ask.flush.size:
        await _split(consumer)
    else:
        await _pause(consumer)


async def _pause(consumer: Consumer) -> None:
    await asyncio.sleep(min(LONGEST_PAUSE_SECONDS, 0.05 * 2 ** min(consumer.failures, 10)) * random.uniform(0.8, 1.2))


async def _split(consumer: Consumer) -> None:
    """Write the outcomes with settle_v1, which passes over locked rows, and one by one if even that fails."""
    flush = consumer.take_outcomes(boot())
    try:
        tasks = await _tasks_of(consumer, flush)
    except FAULTS:
        consumer.outbox.restore(flush, doubtful=False)
        await _pause(consumer)  # the next exchange finds out what is wrong
        return
    flush = results.as_outcomes(flush, tasks)
    waiting = [flush]
    while waiting:
        part = waiting.pop()
        try:
            async with consumer.work.lock:
                got = await consumer.exchange.run(Ask(part), boot())
        except FAULTS as error:
            if lost(error, consumer.work.conn if consumer.work.connected else None):
                for each in (part, *waiting):
                    consumer.outbox.restore(each, doubtful=True)
                return  # the next exchange finds it lost, too
            if part is flush and part.size > 1:
                waiting.extend(_pieces(flush))
            else:
                consumer.outbox.restore(part, doubtful=False)
            continue
        results.take(consumer.lanes, consumer.outbox, part, got)
    consumer.outbox.urgent = False
    await asyncio.sleep(random.uniform(0.05, 0.2))


async def _tasks_of(consumer: Consumer, flush: Flush) -> dict[int, str]:
    """The tasks of the jobs that have plainly succeeded: the hot path does not carry them."""
    ids = [ident for batch in flush.done.values() for ident in batch]
    if not ids:
        return {}
    async with consumer.work.lock:
        return await consumer.exchange.tasks_of(ids)


def _pieces(flush: Flush) -> list[Flush]:
    return list(results.parts(flush))
