"""Taking a worker apart: its queues stop, its own row goes, its connections close.

Within seconds, whatever the database does: whoever waits for a silent server is cut off. drain.py has let the jobs end before.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tailrace_worker import mend
from tailrace_worker.silence import Turns, bounded

if TYPE_CHECKING:
    from tailrace_worker.ear import Ear
    from tailrace_worker.parts import Parts
    from tailrace_worker.work import Work

SECONDS = 2.0
TURN_SECONDS = 1.0


async def close(parts: Parts) -> None:
    """Stop everything.

    Args:
        parts: The worker's parts, in whatever state they are.
    """
    parts.work.stopped.set()
    parts.heartbeat.stop()  # who waits for a beat waits no longer
    answers = await _end_tasks(parts)
    for consumer in parts.consumers:
        await consumer.lanes.close()
    if parts.heartbeat.is_alive():
        parts.heartbeat.end_silence(after=0.5)
        await asyncio.to_thread(parts.heartbeat.join, SECONDS if answers else 0.1)
    if answers and parts.work.connected:
        with suppress(*mend.FAULTS):
            await bounded(parts.work.conn, _leave(parts), SECONDS)
    await parts.ear.close()
    await parts.work.close()


async def _end_tasks(parts: Parts) -> bool:
    """Cancel the queues between two statements: in the middle of one the driver's cancellation waits for the server.

    Returns:
        Whether the server answers.
    """
    turns = (_turn(parts.work.lock, parts.work), _turn(parts.ear.lock, parts.ear))
    answers = all(await asyncio.gather(*turns))
    for consumer in parts.consumers:
        consumer.waiter.stop()
        consumer.limits.stop()
    for task in parts.tasks:
        task.cancel()
    if parts.tasks:
        await asyncio.wait(parts.tasks, timeout=SECONDS)
    return answers


async def _turn(lock: Turns, part: Work | Ear) -> bool:
    """Keep everybody else from using a connection; hang up on a server that keeps it busy for too long."""
    try:
        await asyncio.wait_for(lock.acquire(), TURN_SECONDS)
    except TimeoutError:
        part.hang_up()
        return False
    return True


async def _leave(parts: Parts) -> None:
    blocks = parts.database.blocks
    async with parts.work.settled() as conn:
        for consumer in parts.consumers:
            await conn.execute(blocks["wake.drop_waiter"], {"queue": consumer.queue, "worker": parts.worker})
        await conn.execute(blocks["lease.leave"], {"worker": parts.worker})
