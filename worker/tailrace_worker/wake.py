"""Going idle without losing a wake-up.

Enqueue notifies only when a worker of the queue has a waiter row. A worker that goes idle registers, claims once
more, and watches the transactions that were open at that moment: only they can have missed the row, so it claims
again whenever one of them has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tailrace.clock import boot
from tailrace.db import OperationalError, errors
from tailrace.errors import TailraceError
from tailrace_worker.ear import Ear
from tailrace_worker.work import Work

RENEW_SECONDS = 20.0
LONGEST_LOOK_SECONDS = 0.25
"""A transaction that is watched is looked at after each eighth of its age, so that its end is seen soon."""
FULL_CLAIMS = 3
"""The row is removed after so many full claims in a row, so that an almost idle queue does no handshakes."""


def in_progress(snapshot: str) -> set[int]:
    """The transactions in progress of a pg_snapshot text, xmin:xmax:xip,xip."""
    listed = snapshot.split(":")[2]
    return {int(x) for x in listed.split(",")} if listed else set()


class Waiter:
    """The waiter row of one queue and its watch.

    Args:
        work: The work connection; its lock is taken for each statement.
        ear: Where snapshots are read while watching.
        queue: The queue.
        worker: This worker's id.
        nudge: Called when a claim should be tried again.
        enabled: Off when wake-ups are polled only.
    """

    def __init__(self, *, work: Work, ear: Ear, queue: str, worker: str, nudge: Callable[[], None], enabled: bool) -> None:
        self._work, self._ear, self._nudge, self.enabled = work, ear, nudge, enabled
        self._params = {"queue": queue, "worker": worker}
        self._blocks = work.database.blocks
        self.registered_until = 0.0
        self.full = 0
        self._watch: asyncio.Task[None] | None = None

    @property
    def registered(self) -> bool:
        """Whether enqueues will notify."""
        return boot() < self.registered_until

    async def register(self) -> bool:
        """Say that this worker is idle.

        Returns:
            Whether the row is new, so that one more claim must follow.
        """
        if not self.enabled or self._ear.deaf or self.registered:
            return False
        async with self._work.lock:
            async with self._work.settled() as conn:
                await conn.execute(self._blocks["wake.register_waiter"], self._params, prepare=True)
            self.registered_until = boot() + RENEW_SECONDS  # committed: only now the snapshot tells who can have missed it
            row = await (await conn.execute(self._blocks["wake.snapshot"], prepare=True)).fetchone()
        open_now = in_progress(row[0]) if row else set()
        if open_now:
            if self._watch is not None:
                self._watch.cancel()
            self._watch = asyncio.create_task(self._watching(open_now), name="watch")
        return True

    async def _watching(self, old: set[int]) -> None:
        began = boot()
        while old and self.registered_until:
            await asyncio.sleep(min(LONGEST_LOOK_SECONDS, max(0.002, (boot() - began) / 8)))
            try:
                rows = await self._ear.ask("wake.snapshot", {})
            except (OperationalError, TailraceError, errors.InterfaceError):
                self._nudge()  # polling goes on all the same
                continue
            now = in_progress(rows[0][0])
            if not old <= now:
                self._nudge()
            old &= now

    async def claimed(self, *, full: bool, some: bool) -> None:
        """Note a claim; after several full ones in a row this worker is busy and enqueues need not notify it."""
        if not some:
            return
        self.full = self.full + 1 if full else 0
        if self.full >= FULL_CLAIMS and self.registered_until:
            await self.forget()

    async def forget(self) -> None:
        """Remove the row."""
        self.registered_until = 0.0
        async with self._work.lock, self._work.settled() as conn:
            await conn.execute(self._blocks["wake.drop_waiter"], self._params, prepare=True)

    def stop(self) -> None:
        """End the watch."""
        self.registered_until = 0.0
        if self._watch is not None:
            self._watch.cancel()
