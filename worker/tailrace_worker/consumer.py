"""One queue of a worker: the loop of its exchanges with the database, and what is done with what came back.

The loop asks plan.py for the next exchange, sends it, and sleeps until a lane runs low, a notification comes, an outcome
waits or the poll is due. intake.py sorts what was claimed; claim.py talks to the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tailrace.clock import boot
from tailrace.histogram import Histogram
from tailrace_worker import intake, limited, mend, results
from tailrace_worker.agenda import MEMBER_DUE, OTHER_LIMITS, ROUNDING_SECONDS, Agenda
from tailrace_worker.ask import Ask, Got
from tailrace_worker.bound import BoundTask
from tailrace_worker.claim import Exchange
from tailrace_worker.classes import TaskClass
from tailrace_worker.ear import Ear
from tailrace_worker.finish import Flush, Outbox
from tailrace_worker.floors import Floors
from tailrace_worker.limits import Limits
from tailrace_worker.pace import Pace
from tailrace_worker.plan import Plan
from tailrace_worker.rescan import Rescan
from tailrace_worker.rows import ID, TOKEN
from tailrace_worker.run import Lanes
from tailrace_worker.slots import Gate
from tailrace_worker.turns import Turns
from tailrace_worker.wake import Waiter
from tailrace_worker.work import Work

CLAIM_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
SIZE_BOUNDS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)


@dataclass(frozen=True)
class Share:
    """What the queues of one worker share.

    Attributes:
        work: The work connection.
        ear: The listening connection.
        gate: Open while the lease is certain.
        worker: This worker's id.
        poll_seconds: How often to look without a notification.
        notify: Whether wake-ups are listened for.
        alone: At most one job that was lost before is in hand.
        recover: Called when the work connection broke; returns when it works again.
        beat_soon: Asks for a heartbeat, which tells the queues' settings.
    """

    work: Work
    ear: Ear
    gate: Gate
    worker: str
    poll_seconds: float
    notify: bool
    alone: intake.Alone
    recover: Callable[[], Awaitable[None]]
    beat_soon: Callable[[], None]


class Consumer:
    """One queue.

    Args:
        share: What it shares with the worker's other queues.
        queue: Its name.
        tasks: What this worker can run of it, by name.
        slots: How many of its jobs run at once.
    """

    def __init__(self, share: Share, *, queue: str, tasks: dict[str, BoundTask], slots: int) -> None:
        self.share, self.queue, self.work, self.gate = share, queue, share.work, share.gate
        self.want = asyncio.Event()
        self.floors, self.outbox = Floors(), Outbox()
        self.pace, self.agenda = Pace(slots, boot()), Agenda(share.poll_seconds, boot())
        names = list(tasks)
        self.lanes = Lanes(
            queue=queue,
            tasks=tasks,
            slots=slots,
            outbox=self.outbox,
            pace=self.pace,
            gate=share.gate,
            want=self.want,
            worker=share.worker,
            blocks=share.work.database.blocks,
        )
        self.limits = Limits(tasks=names, lanes=self.lanes, floors=self.floors, look_below=self._look_below)
        self.stragglers = self.limits.classes[0].stragglers
        self.exchange = Exchange(
            share.work,
            queue=queue,
            worker=share.worker,
            tasks=names,
            context_tasks=[t.name for t in tasks.values() if t.wants_context],
            strict_tasks=[t.name for t in tasks.values() if t.task.group_order == "strict"],
            floors=self.floors,
            outbox=self.outbox,
        )
        self.turns, self.plan = Turns(self.lanes.groups, self.pace), Plan(self)
        self.rescan = Rescan(ear=share.ear, queue=queue, tasks=names, floors=self.floors, found=self.found, moved_back=self.nudge)
        self.waiter = Waiter(
            work=share.work, ear=share.ear, queue=queue, worker=share.worker, nudge=self.nudge, enabled=share.notify
        )
        self.claiming, self.draining = True, False
        self.polls = {"jobs": 0, "empty": 0, "error": 0}
        self.durations, self.sizes = Histogram(CLAIM_BOUNDS), Histogram(SIZE_BOUNDS)
        self.server_ahead = 0.0  # seconds from the boot clock to the server's clock
        self.max_interruptions: int | None = None
        self.discard, self.failures, self.handed_back = False, 0, 0

    # ---- nudges from outside -----------------------------------------------------------------------------------------
    def nudge(self) -> None:
        """Claim now: somebody notified, or a transaction ended that may have missed the waiter row."""
        self.agenda.notified = True
        self.turns.look_soon()
        self.want.set()

    def came_back(self) -> None:
        """Rows came free, below the floors or just above: what is above, a claim must find."""
        self.look_below()
        self.limits.freed()
        self.agenda.look_soon()
        self.nudge()

    def found(self, ids: list[int]) -> None:
        """Jobs below the floors, to be claimed by id."""
        if ids:
            known = set(self.stragglers)
            self.stragglers.extend(i for i in ids if i not in known)
            self.want.set()

    def look_below(self) -> None:
        """Look at once for whatever lies below the floors."""
        for rescan in (self.rescan, *self.limits.each_rescan()):
            rescan.far()

    def _look_below(self, known: TaskClass) -> Rescan:
        """Start the rescan of tasks with limits of their own."""

        def found(ids: list[int]) -> None:
            if self.limits.found_of(known, ids):
                self.want.set()

        rescan = Rescan(
            ear=self.share.ear,
            queue=self.queue,
            tasks=known.tasks,
            floors=known.floors,
            found=found,
            moved_back=self.nudge,
            stores=False,
        )
        rescan.start()
        return rescan

    # ---- the loop ----------------------------------------------------------------------------------------------------
    async def load(self) -> None:
        """Begin where the queue's workers are."""
        blocks, now, queue = self.work.database.blocks, boot(), {"queue": self.queue}
        async with self.work.lock, self.work.settled() as conn, conn.pipeline():
            await conn.execute(blocks["lease.know_queue"], queue)
            stored = await conn.execute(blocks["floors.stored_floors"], queue)
            unstored = await conn.execute(blocks["floors.unstored_priorities"], queue)
            clock = await conn.execute(blocks["floors.clock"])
            for priority, run_at, ident in await stored.fetchall():
                self.floors.add(priority, (run_at, ident), now=now)
            for (priority,) in await unstored.fetchall():
                self.floors.add(priority, now=now)
            self.floors.add(0, now=now)
            row = await clock.fetchone()
            self.server_ahead = row[0] - boot() if row else 0.0

    async def run(self) -> None:
        """Claim and finish until cancelled."""
        while True:
            self.want.clear()
            now = boot()
            ask = self.plan.next(now)
            if ask is None and self.limits.units.back:
                await limited.give_back(self)
                continue
            if ask is None:
                await self._sleep(self.plan.pause(now))
                continue
            notified = self.agenda.notified and ask.scans
            self.agenda.notified = self.agenda.notified and not ask.scans
            got = await self._send(ask)
            if got is None:
                continue
            self._received(ask, got, notified=notified)
            if ask.scans or got.jobs:  # stragglers that others took or lock say nothing of what lies above
                await self._idle_or_busy(ask, got, notified=notified)
            if got.jobs or got.members:
                await asyncio.sleep(0)

    def take_outcomes(self, now: float) -> Flush:
        """Everything that can be written now."""
        flush = self.outbox.take(now)
        results.ruled(self, flush.outcomes)
        results.fenced(self.lanes, self.outbox.refused)
        self.outbox.refused = 0
        return flush

    async def _sleep(self, seconds: float) -> None:
        handle = asyncio.get_running_loop().call_later(seconds, self.want.set)
        try:
            await self.want.wait()
        finally:
            handle.cancel()

    # ---- one exchange ------------------------------------------------------------------------------------------------
    async def _send(self, ask: Ask) -> Got | None:
        began = boot()
        try:
            async with self.work.lock:
                if self.limits.on and (ask.claims or ask.turn):
                    await limited.permit(self, ask)
                got = await self.exchange.run(ask, began)
        except mend.FAULTS as error:
            await mend.failed(self, ask, error)
            return None
        self.failures = 0
        if ask.claims or (ask.turn is not None and ask.turn.n):
            jobs = got.jobs + len(got.members)
            self.durations.observe(boot() - began)
            self.sizes.observe(jobs)
            self.polls["jobs" if jobs else "empty"] += 1
        return got

    def _received(self, ask: Ask, got: Got, *, notified: bool) -> None:
        now = boot()
        results.take(self.lanes, self.outbox, ask.flush, got)
        self.pace.ended(ask.flush.size)
        limited.unstarted(self, ask, got)
        delays = [o["delay"] for o in ask.flush.outcomes if "delay" in o]
        if delays:
            self.agenda.falls_due(now + min(delays) + ROUNDING_SECONDS)
            self.turns.falls_due(now + min(delays) + ROUNDING_SECONDS)
        self._turned(ask, got, now)
        intake.order(got.rows)
        if ask.by_class is None:
            self.floors.claimed(got.rows, now)
        if got.jobs or got.members:
            self.handed_back += intake.take(self, got)
            if self.draining:  # it was on its way when the worker was told to stop
                self.handed_back += intake.give_back_all(self.lanes)
        self._left(ask, got)
        if ask.suspect and not got.suspects:
            self.agenda.suspect_at = None
        if ask.look:
            self._looked(ask, got, now)
        if notified and not got.jobs:
            for rescan in (self.rescan, *self.limits.each_rescan()):
                rescan.near()
            self.turns.look_soon(always=True)

    def _left(self, ask: Ask, got: Got) -> None:
        """Keep the jobs that were asked for by id and may be free still."""
        if ask.limited is not None:
            limited.received(self, ask, got)
        if ask.by_class is None and ask.ids and len(got.by_id) >= ask.jobs:
            taken = {row[ID] for row in got.by_id}
            self.stragglers.extendleft(i for i in reversed(ask.ids) if i not in taken)

    def _looked(self, ask: Ask, got: Got, now: float) -> None:
        short = limited.short(self, ask, got)
        self.server_ahead = self.agenda.looked(self.floors, got.looked, got.gaps, now, short=short)
        if got.gaps[0][OTHER_LIMITS]:
            limited.ask_beat(self)
        due = got.gaps[0][MEMBER_DUE]
        self.turns.suspect_at = None if due is None else now + max(0.0, due)

    def _turned(self, ask: Ask, got: Got, now: float) -> None:
        if ask.turn is not None and got.turned is not None:
            self.turns.turned(ask.turn, got.turned, now, members=len(got.members))
            if ask.turn.suspect and got.members:
                self.share.alone.take(self, got.members[0][TOKEN])

    async def _idle_or_busy(self, ask: Ask, got: Got, *, notified: bool) -> None:
        self.agenda.claimed(got.jobs, boot(), notified=notified)
        try:
            await self.waiter.claimed(full=got.jobs >= ask.jobs, some=bool(got.jobs))
            if not got.jobs and await self.waiter.register():
                self.agenda.dry = False  # an enqueue may have missed the row: look once more
                self.turns.look_soon(always=True)
        except mend.FAULTS:  # the next claim sees what it was
            self.waiter.registered_until = 0.0
