"""One run of `tailrace dev`: reads what the queues need, steers their fleets, and ends in order.

Each second, and whenever a worker ends: files → readings → recommendation → fleets → board. The arithmetic is
`tailrace.demand`, the processes are `fleet`, the maintenance is the loop of `tailrace maintain`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tailrace.db import Database
from tailrace.demand import Bounds, LimitedBy, Recommendation, Terms, recommend
from tailrace.errors import InvalidOption
from tailrace.maintenance import routines, run_forever
from tailrace.readings import Reading
from tailrace_cli.dev.board import OURS, Board
from tailrace_cli.dev.desk import FAULTS, Desk
from tailrace_cli.dev.fleet import Fleet
from tailrace_cli.dev.place import Place
from tailrace_cli.dev.plan import Plan, Sources
from tailrace_cli.dev.process import Worker
from tailrace_cli.dev.status import status_of

__all__ = ["Session"]

TICK_SECONDS = 1.0
STATISTICS_SECONDS = 2.0
"""A reading costs little here, and nobody wants to wait 15 s for the first worker."""

LINGER_SECONDS = 10.0
"""How long a fleet stays after the demand has fallen, so that it does not flutter between two jobs."""

HURRY_SECONDS = 15.0
"""How long workers may take to end after a second Ctrl-C."""

_OWN = (
    "TAILRACE_CONTAINER",
    "TAILRACE_DATABASE_URL",
    "TAILRACE_DATABASE_URL_FILE",
    "TAILRACE_DIRECT_DATABASE_URL",
    "TAILRACE_POD_NAME",
    "TAILRACE_POD_UID",
    "TAILRACE_SETTINGS_FILE",
)
"""Variables of ours that are not for workers: these have their own place, names and settings."""


class _Queue:
    """One queue: its fleet, and what was recommended lately."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.applied = False  # as the file is now
        self.known = False  # as the file was once: before that nothing may claim
        self.leaving = False
        self.advice = Recommendation(workers=0, limited_by=LimitedBy.STALE_READING)
        self._recent: deque[tuple[float, int]] = deque()

    def want(self, reading: Reading | None, now: float) -> None:
        """Decide how many workers there should be: at once when more, after a while when fewer."""
        spec, fleet = self.fleet.plan.resource.spec, self.fleet
        if not self.known:
            return
        bounds = Bounds.of(spec)
        load = None if reading is None else reading.load()
        self.advice = recommend(load, terms=Terms.of(spec), bounds=bounds, current=fleet.wanted)
        if self.leaving or bounds.stop_policy == "HoldAndDrain":
            self._recent.clear()
            fleet.wanted = 0
            return
        self._recent.append((now, self.advice.workers))
        while self._recent[0][0] < now - LINGER_SECONDS:
            self._recent.popleft()
        fleet.wanted = min(bounds.maximum, max(number for _, number in self._recent))


class Session:
    """Everything that runs until Ctrl-C.

    Args:
        place: The database, migrated.
        sources: The files.
        plans: What they said at the start.
        board: Where to tell.
        reaper_seconds: The reaper's period.
    """

    def __init__(self, place: Place, sources: Sources, plans: Sequence[Plan], board: Board, *, reaper_seconds: float) -> None:
        self._place, self._sources, self._board = place, sources, board
        self._reaper_seconds = reaper_seconds
        self._desk = Desk(place.database)
        self._queues: dict[str, _Queue] = {plan.queue: self._queue(plan) for plan in plans}
        self._nudge = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurries = 0
        self._away = ""
        self._reports: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Apply the settings, then go on until `stop`.

        Raises:
            TailraceError: A queue refuses its settings at the start, such as one that a controller manages.
        """
        stop = threading.Event()
        args = (self._place.database, stop)
        maintenance = threading.Thread(target=self._maintain, args=args, name="tailrace-dev-maintenance", daemon=True)
        maintenance.start()
        try:
            for queue in self._queues.values():
                await self._apply(queue)
            while not self._stopping.is_set():
                await self._tick()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._nudge.wait(), TICK_SECONDS)
                self._nudge.clear()
            self._say("draining; Ctrl-C again does not wait for what runs")
        finally:
            await self._end()
            stop.set()
            await asyncio.to_thread(maintenance.join, 5.0)
            await self._desk.close()

    def stop(self) -> None:
        """End in order; called again, sooner. To be called on the event loop."""
        if self._stopping.is_set():
            self._hurries += 1
        self._stopping.set()
        self._nudge.set()

    # ---- one second --------------------------------------------------------------------------------------------------
    async def _tick(self) -> None:
        if self._sources.changed():
            await self._reload()
        readings: Mapping[str, Reading] = {}
        problems = await self._apply_changed()
        try:
            readings = await self._look()
        except FAULTS as error:
            problems.append(_one_line(error))
        now = asyncio.get_running_loop().time()
        for queue in list(self._queues.values()):
            queue.want(readings.get(queue.fleet.plan.queue), now)
            try:
                await queue.fleet.steer()
            except InvalidOption as error:
                problems.append(str(error))
            if queue.leaving and not queue.fleet.workers:
                del self._queues[queue.fleet.plan.queue]
        self._known("; ".join(dict.fromkeys(problems)))
        self._show(readings)

    async def _apply_changed(self) -> list[str]:
        """Apply what a file has changed; one queue that is refused hinders no other."""
        problems = []
        for queue in self._queues.values():
            if not queue.applied and not queue.leaving:
                try:
                    await self._apply(queue)
                except FAULTS as error:
                    problems.append(_one_line(error))
        return problems

    async def _look(self) -> dict[str, Reading]:
        jobs = await self._desk.jobs_of_workers()
        for queue in self._queues.values():
            queue.fleet.see(jobs)
        return await self._desk.readings(self._queues)

    def _show(self, readings: Mapping[str, Reading]) -> None:
        stopping = self._stopping.is_set()
        self._board.show(
            [status_of(q.fleet, readings.get(name), q.advice, stopping=stopping) for name, q in sorted(self._queues.items())]
        )

    def _known(self, problem: str) -> None:
        """Tell what is wrong when it begins and when it is over."""
        if problem != self._away:
            self._say(f"cannot go on: {problem}" if problem else "goes on")
            self._away = problem

    # ---- files -------------------------------------------------------------------------------------------------------
    async def _reload(self) -> None:
        try:
            plans = self._sources.plans()
        except InvalidOption as error:
            self._say(f"the change is not taken: {error}")
            return
        for plan in plans:
            queue = self._queues.get(plan.queue)
            if queue is None:
                self._queues[plan.queue] = self._queue(plan)
                self._say(f"{plan.queue}: added")
                continue
            changed = queue.fleet.plan.resource != plan.resource
            queue.leaving, queue.applied = False, queue.applied and not changed
            if queue.fleet.adopt(plan):
                self._say(f"{plan.queue}: the template has changed; its workers are replaced one after the other")
        for name in self._queues.keys() - {plan.queue for plan in plans}:
            if not self._queues[name].leaving:
                self._queues[name].leaving = True
                self._say(f"{name}: no longer in the file; its workers end, its jobs and settings stay")

    async def _apply(self, queue: _Queue) -> None:
        change = await self._desk.apply(queue.fleet.plan.resource)
        queue.applied = queue.known = True
        if change.outcome != "unchanged":
            self._say(f"{change.target}: settings {change.outcome}")

    def _queue(self, plan: Plan) -> _Queue:
        return _Queue(Fleet(plan, self._environment, on_line=self._line, on_end=self._ended))

    def _environment(self, plan: Plan) -> dict[str, str]:
        """All variables of a worker: ours below those of its plan, and the place above all."""
        ours = {name: value for name, value in os.environ.items() if name not in _OWN}
        pages = {"TAILRACE_METRICS_HOST": "127.0.0.1", "TAILRACE_METRICS_PORT": "0", "PYTHONUNBUFFERED": "1"}
        return {**ours, **plan.variables, **self._place.variables, **pages}

    # ---- workers -----------------------------------------------------------------------------------------------------
    def _line(self, worker: Worker, line: str) -> None:
        self._board.log(worker.name, line)

    def _ended(self, worker: Worker) -> None:
        if not (worker.draining and worker.status == 0):
            if not worker.draining:
                self._say(f"{worker.name} {worker.ending}")
            report = asyncio.create_task(self._died(worker), name=f"death of {worker.name}")
            self._reports.add(report)
            report.add_done_callback(self._reports.discard)
        self._nudge.set()

    async def _died(self, worker: Worker) -> None:
        """Tell the database at once: we saw the process end, so nobody need wait for its lease."""
        try:
            jobs = await self._desk.died(worker.id, worker.ending)
        except FAULTS as error:
            self._say(f"the end of {worker.name} could not be told, its jobs wait for their lease: {_one_line(error)}")
            return
        if jobs:
            self._say(f"{jobs} {'job' if jobs == 1 else 'jobs'} of {worker.name} may run elsewhere")

    # ---- maintenance -------------------------------------------------------------------------------------------------
    def _maintain(self, database: Database, stop: threading.Event) -> None:
        run_forever(database, routines(reaper_seconds=self._reaper_seconds, statistics_seconds=STATISTICS_SECONDS), stop)

    # ---- the end -----------------------------------------------------------------------------------------------------
    async def _end(self) -> None:
        """Drain every worker, sooner when asked again, and with force when that does not help."""
        told, deadline = -1, float("inf")
        clock = asyncio.get_running_loop().time
        while any(queue.fleet.workers for queue in self._queues.values()):
            if told < self._hurries:  # one step a round: a second signal right behind the first would be lost
                told += 1
                deadline = min(deadline, clock() + (HURRY_SECONDS if told else self._longest_drain()))
                self._end_fleets(kill=told > 1, hurry=told > 0)
            if clock() > deadline:
                self._say("workers that did not end are killed")
                self._end_fleets(kill=True)
                deadline = clock() + HURRY_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(self._nudge.wait(), TICK_SECONDS)
            self._nudge.clear()
            await self._show_end()
        if self._reports:
            await asyncio.wait(self._reports, timeout=HURRY_SECONDS)

    async def _show_end(self) -> None:
        readings: Mapping[str, Reading] = {}
        with suppress(*FAULTS):
            readings = await self._look()
        self._show(readings)

    def _longest_drain(self) -> float:
        drains = [queue.fleet.plan.resource.spec.worker.drain_timeout_seconds for queue in self._queues.values()]
        return max(drains, default=0) + HURRY_SECONDS

    def _end_fleets(self, *, kill: bool, hurry: bool = False) -> None:
        for queue in self._queues.values():
            if kill:
                queue.fleet.kill()
            else:
                queue.fleet.drain(hurry=hurry)

    def _say(self, text: str) -> None:
        self._board.log(OURS, text)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
