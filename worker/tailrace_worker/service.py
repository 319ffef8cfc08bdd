"""The worker process: starts and stops its parts in order, and decides nothing else.

connect → heartbeat → resources → queues → ready → (signal, or empty) → drain → resources closed → gone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from tailrace import logs
from tailrace.app import App
from tailrace.clock import boot
from tailrace.errors import InvalidOption, TailraceError
from tailrace.health import Health
from tailrace.names.events import Event
from tailrace.settings import WorkerSettings
from tailrace_worker import drain, identity, takedown
from tailrace_worker.farewell import last_words
from tailrace_worker.metrics import State, registry
from tailrace_worker.parts import Parts
from tailrace_worker.resources import resources_of
from tailrace_worker.upkeep import Upkeep
from tailrace_worker.version import VERSION
from tailrace_worker.watch import Watch

log = logging.getLogger("tailrace.worker")

LIVE_SECONDS = 30.0
EMPTY_POLL_SECONDS = 0.05
FLUSH_SECONDS = 10.0
START_CANCEL_SECONDS = 10.0


def run_worker(app: App, settings: WorkerSettings, *, until_empty: bool = False) -> int:
    """Run a worker until it is told to stop.

    Args:
        app: The application; its `imports` are loaded here.
        settings: What the command line, the environment and the file say.
        until_empty: Run what is there and end.

    Returns:
        The process's exit status: 0 when everything it held was finished or given back.

    Raises:
        TailraceError: It cannot start: no task, a taken port, a schema that is too new.
    """
    logs.configure(form=settings.log_format, level=settings.log_level)
    app.load()
    if not app.tasks:
        raise InvalidOption(
            "the application has no tasks", field="app", hint="Decorate a function with @app.task, or name its module in imports"
        )
    main = Service(app, settings, until_empty=until_empty).main()
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    return uvloop.run(main)


class Service:
    """One worker process.

    Args:
        app: The application.
        settings: Its settings.
        until_empty: End when nothing is due.
    """

    def __init__(self, app: App, settings: WorkerSettings, *, until_empty: bool) -> None:
        self.app, self.settings, self.until_empty = app, settings, until_empty
        self.id = identity.worker_id(settings.worker_id)
        self.state = State(namespace=settings.namespace)
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self.reason = "stop"
        self.status = 0
        self.parts = Parts(app, settings, worker=self.id, state=self.state)
        if until_empty:
            self.parts.heartbeat.row["schedules"] = []  # it is gone in a moment, and so would they be
        self._ready = self._started = False
        self._signals = 0
        self._tick_at = boot()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.watch = Watch(
            self.parts,
            give_up=self._give_up,
            loop_seen=lambda: self._tick_at,
            drain_seconds=settings.drain_timeout_seconds,
        )
        self._tasks: list[asyncio.Task[Any]] = []

    async def main(self) -> int:
        """Everything in order.

        Returns:
            The exit status.
        """
        self._listen_to_signals()
        identity.leave_trace(self.id, self.settings.termination_log)
        try:
            return await self._main()
        except Exception as error:
            identity.leave_words(error, self.settings.termination_log)
            raise

    async def _main(self) -> int:
        fields = {"event": Event.WORKER_STARTING, "worker_id": self.id, "queues": ",".join(self.parts.queues), "version": VERSION}
        log.info("worker starting", extra=fields)
        self._spawn(self._ticking(), "tick")
        health = Health(metrics=registry(self.state), live=self._live, ready=self._is_ready)
        if self.settings.metrics_port is not None:
            health.start(self.settings.metrics_host, self.settings.metrics_port)
        try:
            await self._serve_unless_stopped()
        finally:
            await self._close()
            health.stop()
        log.info("worker stopped", extra={"event": Event.WORKER_STOPPED, "worker_id": self.id, "status": self.status})
        return self.status

    async def _serve_unless_stopped(self) -> None:
        """A worker that is told to stop before it was ready gives up what it waits for: database, schema, resources."""
        serving, told = asyncio.create_task(self._serve(), name="serve"), asyncio.create_task(self.stop.wait())
        await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if serving.done() or self._started:
            await serving
            return
        self.parts.hang_up()
        serving.cancel()
        await asyncio.wait({serving}, timeout=START_CANCEL_SECONDS)

    async def _serve(self) -> None:
        parts = self.parts
        await parts.connect()
        parts.heartbeat.begin()
        self.watch.start()
        async with resources_of(self.app) as resources:
            gc.freeze()  # what is loaded by now stays: a full collection looks at all of it, and for 50 ms no job starts
            await parts.start(resources, on_fatal=self._fatal)
            upkeep = Upkeep(self.settings, parts, self.state)
            upkeep.start()
            self._started = self._ready = True
            log.info("worker ready", extra={"event": Event.WORKER_READY, "worker_id": self.id})
            if self.until_empty:
                self._spawn(self._until_empty(), "until-empty")
            await self.stop.wait()
            self._ready = False
            self.state.draining = True
            upkeep.stop()
            await self._drain()

    async def _drain(self) -> None:
        parts, seconds, began = self.parts, self.settings.drain_timeout_seconds, boot()
        running = drain.stop_claiming(parts.consumers)
        parts.draining()
        fields = {"event": Event.WORKER_DRAINING, "worker_id": self.id, "reason": self.reason, "running": running}
        log.info("draining", extra=fields)
        stuck = await drain.drain(parts.consumers, seconds=seconds, hurry=self.hurry)
        # Outcomes of a database that is away are kept for as long as jobs might have run.
        patience = 0.0 if parts.failed else max(FLUSH_SECONDS, began + seconds - boot())
        left = await drain.flush(parts.consumers, seconds=patience, hurry=self.hurry)
        await asyncio.gather(*(consumer.rescan.leave() for consumer in parts.consumers))
        if (left or stuck) and not await asyncio.to_thread(last_words, parts):
            fields = {"event": Event.WORKER_STOPPED, "worker_id": self.id, "jobs": left + len(stuck)}
            log.error("outcomes could not be written; these jobs run again", extra=fields)
            self.status = 1
        await parts.dead_hooks.close(seconds=began + seconds - boot(), hurry=self.hurry)
        if stuck:
            self._exit_at_once()

    async def _close(self) -> None:
        self.watch.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await takedown.close(self.parts)

    # ---- what can end it ---------------------------------------------------------------------------------------------
    def _listen_to_signals(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Python's own handlers, not the loop's: those are silent while a handler blocks the loop.
            signal.signal(number, self._caught)

    def _caught(self, number: int, _: object) -> None:
        self.watch.signalled_at = min(self.watch.signalled_at, boot())
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled, number)

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            self.hurry.set()  # do not wait for what runs
        self._end(signal.Signals(number).name)

    def _end(self, reason: str) -> None:
        if not self.stop.is_set():
            self.reason = reason
            self.parts.work.hurry = True
            self.stop.set()

    def _fatal(self, error: BaseException) -> None:
        self.status = 1
        identity.leave_words(error, self.settings.termination_log)
        if isinstance(error, TailraceError):
            log.error("%s", error, extra={"event": Event.SCHEMA_UNFIT})
        else:
            log.error("a part of the worker failed", exc_info=error, extra={"event": Event.WORKER_STOPPED})
        self._end("failure")

    def _give_up(self) -> None:
        self.status = 1
        self._end("stuck handler")

    def _exit_at_once(self) -> None:
        log.error("a handler could not be stopped: exiting", extra={"event": Event.JOB_STUCK, "worker_id": self.id})
        logging.shutdown()
        os._exit(self.status or 1)

    async def _until_empty(self) -> None:
        while not await self.parts.empty():  # noqa: ASYNC110 - the condition lies in the database
            await asyncio.sleep(EMPTY_POLL_SECONDS)
        self._end("empty")

    # ---- health ------------------------------------------------------------------------------------------------------
    async def _ticking(self) -> None:
        while True:
            before = boot()
            await asyncio.sleep(0.5)
            self._tick_at = boot()
            self.parts.tick()
            self.state.lag = max(0.0, self._tick_at - before - 0.5)

    def _live(self) -> tuple[bool, str]:
        late = boot() - self._tick_at
        return late < LIVE_SECONDS, f"the event loop has not run for {late:.0f} s"

    def _is_ready(self) -> tuple[bool, str]:
        parts = self.parts
        checks = (
            (self._ready, "starting or draining"),
            (parts.work.connected, "no database"),
            (parts.gate.open, "the lease is not certain"),
            (not parts.cordoned, "cordoned"),
        )
        return next(((False, why) for ok, why in checks if not ok), (True, "ok"))

    def _spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self._tasks.append(asyncio.create_task(coroutine, name=name))
