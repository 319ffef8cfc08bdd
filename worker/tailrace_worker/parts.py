"""The parts of a worker and how they hang together: connections, heartbeat, queues.

service.py calls these in order; the parts themselves know nothing of each other but what is passed to them here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from tailrace.app import App
from tailrace.clock import boot
from tailrace.db import AsyncConnection, OperationalError, errors
from tailrace.db.migrate import acheck
from tailrace.errors import SchemaTooNew, SchemaTooOld, TailraceError
from tailrace.names.events import Event
from tailrace.settings import WorkerSettings
from tailrace_worker.beats import News
from tailrace_worker.bound import BoundTask
from tailrace_worker.consumer import Consumer, Share
from tailrace_worker.dead_hooks import DeadHooks
from tailrace_worker.ear import Ear
from tailrace_worker.intake import Alone
from tailrace_worker.lease import Beat, Heartbeat
from tailrace_worker.measured import Measured
from tailrace_worker.metrics import State
from tailrace_worker.presence import queues_of, row_of
from tailrace_worker.slots import Gate
from tailrace_worker.work import Work

log = logging.getLogger("tailrace.worker")

SAY_AGAIN_SECONDS = 60.0
FAULTS = (errors.Error, TailraceError, OSError)


class Parts:
    """Everything that one worker holds.

    Args:
        app: The application.
        settings: The worker's settings.
        worker: The worker's id.
        state: What metrics read.
    """

    def __init__(self, app: App, settings: WorkerSettings, *, worker: str, state: State) -> None:
        self.app, self.settings, self.worker, self.state = app, settings, worker, state
        self.queues = queues_of(app, settings)
        self.database = settings.database("tailrace")
        self.gate = Gate()
        self.work = Work(self.database, check=self._check)
        self.ear = Ear(self.database, heard=self._heard, listen=settings.notify)
        share = Share(
            work=self.work,
            ear=self.ear,
            gate=self.gate,
            worker=worker,
            poll_seconds=settings.poll_seconds,
            notify=settings.notify,
            alone=Alone(),
            recover=self._recover,
            beat_soon=lambda: self.heartbeat.beat_soon(),
        )
        self.consumers = [
            Consumer(share, queue=queue, tasks={n: BoundTask(t, app.middlewares) for n, t in app.tasks.items()}, slots=slots)
            for queue, slots in self.queues.items()
        ]
        self.dead_hooks = DeadHooks(app.dead_hooks, blocks=self.database.blocks, ask=self.ear.ask)
        state.consumers, state.dead_hooks = self.consumers, self.dead_hooks.counts
        self.news = News(self.consumers, self.gate, self._lease_asked)
        self.heartbeat = Heartbeat(
            database=self.database,
            worker=worker,
            row=row_of(app, settings, queues=self.queues),
            known=self._known,
            measured=Measured({consumer.queue: consumer.pace for consumer in self.consumers}),
            told=self._told,
            failed=self._beat_failed,
        )
        state.operations = [self.work.operations, self.ear.operations, self.heartbeat.operations]
        self._held_then: set[int] = set()
        self._say_at, self._said, self.failed = 0.0, "", False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.tasks: list[asyncio.Task[Any]] = []
        self._on_fatal: Callable[[BaseException], None] = lambda _: None

    @property
    def cordoned(self) -> bool:
        """Whether the controller ordered to claim nothing more."""
        return self.news.cordoned

    # ---- starting ----------------------------------------------------------------------------------------------------
    async def connect(self) -> None:
        """Open the connections, however long the database or its schema takes.

        Raises:
            TailraceError: Waiting will not help: the schema is too new for this release.
        """
        self._loop = asyncio.get_running_loop()
        self.heartbeat.start()  # it connects meanwhile
        pause = 0.2
        while True:
            opened = await asyncio.gather(self.work.open(), self.ear.open(), return_exceptions=True)
            failed = [r for r in opened if isinstance(r, BaseException)]
            if not failed:
                return
            await self.work.close()
            await self.ear.close()
            for error in failed:
                self._waitable(error)
            self._say(failed[0])
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 1.5)

    def _waitable(self, error: BaseException) -> None:
        """Raise what waiting does not mend."""
        if not isinstance(error, FAULTS) or (isinstance(error, TailraceError) and not error.retryable):
            raise error from None

    def _say(self, error: BaseException) -> None:
        """Why it waits: when the reason changes, and each minute."""
        text = str(error)
        if boot() >= self._say_at or text != self._said:
            event = Event.SCHEMA_UNFIT if isinstance(error, SchemaTooOld) else Event.DATABASE_AWAY
            log.warning("waiting: %s", text, extra={"event": event})
            self._say_at, self._said = boot() + SAY_AGAIN_SECONDS, text

    async def _check(self, conn: AsyncConnection) -> None:
        try:
            await acheck(conn, self.database)
        except SchemaTooNew as error:
            if not self.tasks:
                raise
            self._on_fatal(error)  # drain; what runs may be written: old functions stay for the release before

    async def start(self, resources: Any, *, on_fatal: Callable[[BaseException], None]) -> None:
        """Open the queues; the first heartbeat must have been confirmed before anything is claimed.

        Args:
            resources: What handlers share.
            on_fatal: Told when a part has failed for good.
        """
        self._on_fatal = on_fatal
        for consumer in self.consumers:
            await self._load(consumer)
        while not self.heartbeat.beaten:
            await asyncio.to_thread(self.heartbeat.wait_first, 1.0)
        for consumer in self.consumers:
            consumer.lanes.on_dead = self.dead_hooks.tell
            consumer.lanes.start(resources)
            self._spawn(consumer.run(), f"queue {consumer.queue}")
            self._spawn(consumer.rescan.run(), f"rescan {consumer.queue}")
        self.ear.on_back = self._listen_back
        self._spawn(self.ear.keep(), "ear")
        self._spawn(self.dead_hooks.run(), "dead hooks")

    async def _load(self, consumer: Consumer) -> None:
        """Begin where the queue's workers are, however often the database goes away meanwhile."""
        while True:
            try:
                await consumer.load()
            except FAULTS as error:
                self._waitable(error)
                self._say(error)
                self.work.connected = False
                await self._recover()
            else:
                return

    def _spawn(self, coroutine: Any, name: str) -> None:
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self.tasks.append(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failed = True
            self._on_fatal(task.exception() or RuntimeError(task.get_name()))

    # ---- the heartbeat's side ----------------------------------------------------------------------------------------
    def call_soon(self, call: Callable[[], None]) -> None:
        """Run something on the event loop, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the process ends anyway
                self._loop.call_soon_threadsafe(call)

    def _known(self) -> list[int]:
        held: set[int] = set()
        known: list[int] = []
        for consumer in self.consumers:
            held.update(list(consumer.outbox.held))
            known.extend(consumer.outbox.known())
        self._held_then = held
        return known

    def _lease_asked(self, asked: tuple[float, float] | None) -> None:
        """The JobQueue's lease wins over the worker's own setting."""
        own = self.settings.lease_seconds
        self.heartbeat.use_lease(*(asked or (own, own / 3)))

    def _told(self, beat: Beat) -> None:
        self.call_soon(partial(self.news.apply, beat, self._held_then))

    def _beat_failed(self) -> None:
        self.state.renew_failures += 1

    def _heard(self, payload: str) -> None:
        for consumer in self.consumers:
            if payload == consumer.queue:
                consumer.nudge()
            elif payload == consumer.queue + "!":
                consumer.came_back()
            elif payload == consumer.queue + "?":
                self.heartbeat.beat_soon()

    def _listen_back(self) -> None:
        self.state.reconnects = self.ear.reconnects
        for consumer in self.consumers:
            consumer.nudge()
            consumer.came_back()

    async def _recover(self) -> None:
        """One of the queues found the work connection broken; the first one mends it, the others find it mended."""
        async with self.work.lock:
            if self.work.connected and not self.work.conn.closed and not self.work.conn.broken:
                return
            self.gate.block(blocked=True)
            try:
                await self.work.recover(self._beat_first)
            finally:
                self.gate.block(blocked=False)

    async def _beat_first(self) -> None:
        if not await asyncio.to_thread(self.heartbeat.beat_and_wait, 10.0):
            raise OperationalError("no heartbeat yet")

    # ---- ending ------------------------------------------------------------------------------------------------------
    def draining(self) -> None:
        """Tell the database that this worker drains: what is killed from now on counts as interrupted."""
        self.news.draining = True
        self.heartbeat.beat_soon(state="draining")

    async def empty(self) -> bool:
        """Whether nothing runs or waits here, and nothing is due that this worker may claim."""
        for consumer in self.consumers:
            lanes, outbox = consumer.lanes, consumer.outbox
            if lanes.busy or lanes.buffer or not outbox.empty or outbox.held:
                return False
        if self.cordoned:
            return True  # what is due is for others: nothing is claimed here any more
        if any(consumer.stragglers or not consumer.agenda.dry for consumer in self.consumers):
            return False
        for consumer in self.consumers:
            params = {"queue": consumer.queue, "tasks": list(consumer.lanes.tasks)}
            try:
                rows = await self.ear.ask("floors.due", params)
            except FAULTS:
                return False
            if rows[0][0]:
                consumer.nudge()
                consumer.came_back()
                return False
        return True

    def hang_up(self) -> None:
        """Break the connections of the event loop under whoever waits for them: the worker ends."""
        self.work.stopped.set()
        self.work.hang_up()
        self.ear.hang_up()

    def tick(self) -> None:
        """Hang up on servers that say nothing. To be called twice a second."""
        self.work.tick()
        self.ear.tick()
