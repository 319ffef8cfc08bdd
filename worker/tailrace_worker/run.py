"""Lanes: each takes a job from the buffer, runs its handler and leaves the outcome in the outbox.

A lane is one long asyncio task, since a task per job costs 3 us. Handlers must not see each other's context variables
all the same: a lane whose handler has left some behind ends and is replaced. consumer.py fills the buffer; calls.py calls
what is more than a plain coroutine; endings.py reads how it ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from tailrace import logs
from tailrace.clock import boot
from tailrace.db import Blocks
from tailrace_worker import endings
from tailrace_worker.bound import BoundTask
from tailrace_worker.calls import Calls
from tailrace_worker.finish import Outbox
from tailrace_worker.groups import Groups, follow
from tailrace_worker.pace import Pace
from tailrace_worker.rows import ATTEMPT, GROUPED, ID, KEYED, MARK, PAYLOAD, REQUEUED, TASK, TIMEOUT, TOKEN, Row
from tailrace_worker.slots import Gate, Slot

log = logging.getLogger("tailrace.worker")

NOT_PLAIN = REQUEUED | KEYED | GROUPED
"""Bits of MARK of jobs whose success changes more than their own row."""

TICK_SECONDS = 0.1
"""How often timeouts are looked at: one timer walks the slots, not the jobs."""


class Lanes:
    """The slots of one queue, the buffer they take from, and what they measure.

    Args:
        queue: The queue's name.
        tasks: What this worker can run, by name.
        slots: How many jobs run at once.
        outbox: Where outcomes go.
        pace: Learns run times.
        gate: Open while the lease is certain.
        want: Set when the buffer runs low or an outcome waits.
        worker: This worker's id, for error records.
        blocks: The SQL of the schema, for handlers that complete their jobs themselves.
    """

    def __init__(
        self,
        *,
        queue: str,
        tasks: dict[str, BoundTask],
        slots: int,
        outbox: Outbox,
        pace: Pace,
        gate: Gate,
        want: asyncio.Event,
        worker: str,
        blocks: Blocks,
    ) -> None:
        self.queue, self.tasks, self.outbox, self.pace, self.gate, self.want, self.worker = (
            queue,
            tasks,
            outbox,
            pace,
            gate,
            want,
            worker,
        )
        self.buffer: deque[Row] = deque()
        self.groups = Groups(outbox)
        self.slots = [Slot(queue, n) for n in range(slots)]
        self.calls = Calls(queue=queue, slots=slots, outbox=outbox, worker=worker, blocks=blocks)
        self.running = 0
        self.low = 0
        self.suspect: int | None = None
        self.fenced = 0
        self.capped: frozenset[str] = frozenset()  # tasks under a limit of how many run
        self.narrow: frozenset[str] = frozenset()  # tasks with a limit or rate of their own
        self.interrupted: dict[str, int] = {}
        self.on_ended: Callable[[Slot], None] | None = None
        self.on_dead: Callable[[int, str], None] | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._ticker: asyncio.TimerHandle | None = None
        self._clean = contextvars.Context()

    def start(self, resources: Any) -> None:
        """Start the lanes; handlers share `resources`."""
        self.calls.resources = resources
        self._clean = contextvars.copy_context()
        for slot in self.slots:
            self._launch(slot)
        self._tick()

    @property
    def busy(self) -> int:
        """Handlers that run now."""
        return sum(slot.row is not None for slot in self.slots)

    @property
    def free(self) -> int:
        """Slots that nothing runs in or waits for."""
        return max(0, len(self.slots) - self.running - len(self.buffer))

    def _launch(self, slot: Slot) -> None:
        self.running += 1
        fresh = self._clean.copy()  # not the caller's: that may be the context a handler has written to
        fresh.run(logs.running.set, slot)
        slot.task = asyncio.create_task(self._lane(slot), name=f"lane {self.queue} {slot.number}", context=fresh)

    async def close(self) -> None:
        """End the idle lanes. What runs must have ended before."""
        self.calls.closing = True
        if self._ticker is not None:
            self._ticker.cancel()
        tasks = [s.task for s in self.slots if s.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.calls.close()

    def wake(self, jobs: int) -> None:
        """Wake as many idle lanes as there are new jobs."""
        idle = self._idle
        for _ in range(min(jobs, len(idle))):
            future = idle.pop()
            if not future.done():
                future.set_result(None)

    # ---- one lane ----------------------------------------------------------------------------------------------------
    async def _park(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        self.running -= 1
        self.want.set()
        try:
            await future
        finally:
            self.running += 1
            if future in self._idle:
                self._idle.remove(future)

    async def _lane(self, slot: Slot) -> None:  # noqa: C901 - the hot path stays in one piece
        buffer, gate, tasks = self.buffer, self.gate, self.tasks
        clean = contextvars.copy_context()
        since_pause = 0
        while True:
            while not buffer:
                since_pause = 0
                await self._park()
            now = boot()
            if now > gate.until:
                await gate.wait()
                continue
            slot.row = row = buffer.popleft()
            if len(buffer) == self.low:
                self.want.set()
            task, timeout, slot.since = tasks[row[TASK]], row[TIMEOUT], now
            slot.deadline = now + (task.limit if timeout is None else timeout or math.inf)
            try:
                arguments = task.parse(row[PAYLOAD])
                slot.calling = True
                if task.direct:
                    await task.call(**arguments)
                else:
                    await self.calls.call(slot, task, row, arguments)
            except BaseException as error:  # noqa: BLE001 - SystemExit too: a handler must not end the worker
                self._raised(slot, task, error)
            else:
                self._succeeded(slot, task, row, now)
            slot.row, slot.calling = None, False
            if slot.stop is not None or slot.reason is not None:
                slot.clear()
            if contextvars.copy_context() != clean:  # the handler left a context variable behind
                self.running -= 1
                self._launch(slot)
                return
            since_pause += 1
            if not since_pause & 63:
                await asyncio.sleep(0)

    def _raised(self, slot: Slot, task: BoundTask, error: BaseException) -> None:
        if self.calls.closing and slot.reason is None and isinstance(error, asyncio.CancelledError):
            raise error
        if slot.task is not None:
            while slot.task.cancelling():  # a handler that cancelled itself must not leave that to its successors
                slot.task.uncancel()
        try:
            endings.failed(self, slot, task, error)
        except Exception:  # an exception or a row that cannot be read must not cost a slot and leave the job running for ever
            log.exception("the outcome of a run could not be worked out")
            endings.unclear(self, slot)
        if slot.row is not None and slot.row[MARK] & GROUPED:
            follow(self, slot.row)

    def _succeeded(self, slot: Slot, task: BoundTask, row: Row, started: float) -> None:
        if slot.reason is not None or row[MARK] & NOT_PLAIN or slot.completed or task.keeps is not None:
            endings.succeeded(self, slot, task)
            if row[MARK] & GROUPED:
                follow(self, row)
            return
        outbox, pace, token = self.outbox, self.pace, row[TOKEN]
        done = outbox.done.get(token)
        if done is None:
            outbox.done[token] = [row[ID]]
        else:
            done.append(row[ID])
        outbox.count += 1
        took = boot() - started
        pace.run_seconds += took
        pace.runs += 1
        task.succeeded.observe(took)
        if row[ATTEMPT] > 1:
            task.runs["success"].observe(row[ATTEMPT])
        else:
            task.at_first += 1

    # ---- the timer ---------------------------------------------------------------------------------------------------
    def _tick(self) -> None:
        now = boot()
        ages = []
        for slot in self.slots:
            if slot.row is None:
                continue
            ages.append(now - slot.since)
            if now > slot.deadline:
                slot.tell("timeout")
            exclusive = slot.row[MARK] & GROUPED or slot.row[TASK] in self.capped
            if exclusive and now > self.gate.certain:  # another worker may start the next member, or use its slot
                slot.tell("lease_lost")
        if self.buffer and ages and self.pace.mean is not None:
            age = sum(ages) / len(ages)
            if age > self.pace.mean:  # what runs is slower than we thought: the consumer gives the excess back
                self.pace.slower(age)
                self.low = self.pace.ahead
                self.want.set()
        self._ticker = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
