"""The controller process: starts and stops its parts in order, and decides nothing else.

Always: health, metrics, maintenance, the election. While it leads: `leading`. A lost Lease ends the process within a
second; only while the API server does not answer anybody it goes on, since the databases still need it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any, Final, NoReturn

from tailrace import logs
from tailrace.clock import boot
from tailrace.health import Health
from tailrace.names.events import Event
from tailrace_controller.databases import Databases
from tailrace_controller.health import Vitals
from tailrace_controller.keeping import Keeping
from tailrace_controller.kopf_thread import quiet_logs
from tailrace_controller.kube import Kube, KubeError, KubeRefused, Place
from tailrace_controller.kube.lease import LeaseLock
from tailrace_controller.leader import Leader
from tailrace_controller.leading import Leading
from tailrace_controller.metrics import State, page
from tailrace_controller.settings import ControllerSettings
from tailrace_controller.version import VERSION
from tailrace_controller.work_queue import WorkCounts

__all__ = ["run_controller"]

log: Final = logging.getLogger("tailrace.controller")

_EXIT_SECONDS: Final = 0.3
_PROBE_SECONDS: Final = 0.4
_CLOSE_SECONDS: Final = 5.0
_TICK_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.05


def run_controller(settings: ControllerSettings) -> int:
    """Run a controller until it is told to stop.

    Args:
        settings: What the command line, the environment and the file say.

    Returns:
        The process's exit status: 0 when it was told to stop, 1 when it lost the Lease or a part of it failed.

    Raises:
        TailraceError: It cannot start: no API server is named, a taken port.
    """
    logs.configure(form=settings.log_format, level=settings.log_level)
    quiet_logs(settings.log_level)
    place = Place.find(kubeconfig=settings.kubeconfig, context=settings.kube_context)
    main = Service(settings, place).main()
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    return uvloop.run(main)


class Service:
    """One controller process."""

    def __init__(self, settings: ControllerSettings, place: Place) -> None:
        """Put together what runs in every replica.

        Args:
            settings: The settings.
            place: Where the API server is.
        """
        self.settings, self.identity = settings, settings.identity()
        self.lease_namespace = settings.lease_namespace or place.namespace
        seconds = settings.write_timeout_seconds
        self._lease_kube = Kube(place, threads=1, timeout=seconds, write_timeout=seconds)
        lock = LeaseLock(
            self._lease_kube,
            namespace=self.lease_namespace,
            name=settings.lease,
            identity=self.identity,
            seconds=settings.lease_seconds,
        )
        self.leader = Leader(
            lock, identity=self.identity, deadline=settings.renew_deadline_seconds, retry=settings.lease_retry_seconds
        )
        self.kube = Kube(
            place,
            threads=settings.kube_threads,
            timeout=settings.kube_timeout_seconds,
            write_timeout=seconds,
            may_write=self.leader.leads,
        )
        self.databases = Databases(settings)
        self.keeping = Keeping(self.kube, self.databases, settings)
        self.counts = WorkCounts()
        self.stop = asyncio.Event()
        self.status = 0
        self.vitals = Vitals(leads=self.leader.leads, trouble=lambda: self.leader.trouble)
        self.state = State(
            counts=self.counts,
            leads=self.leader.leads,
            requests=[self.kube.requests, self._lease_kube.requests],
            kept=self.keeping.kept,
            lines=self.keeping.lines,
        )
        self._tasks: list[asyncio.Task[Any]] = []

    async def main(self) -> int:
        """Everything in order.

        Returns:
            The exit status.
        """
        self._listen_to_signals()
        fields = {
            "event": Event.CONTROLLER_STARTING,
            "holder": self.identity,
            "server": self.kube.place.server,
            "version": VERSION,
        }
        log.info("controller starting", extra={**fields, "namespaces": ",".join(self.settings.watch_namespaces) or "all"})
        health = Health(metrics=page(self.state), live=self.vitals.live, ready=self.vitals.ready)
        if self.settings.metrics_port is not None:
            health.start(self.settings.metrics_host, self.settings.metrics_port)
        try:
            self._spawn(self._ticking(), "tick")
            self._spawn(self.keeping.run(), "keeping")
            self._spawn(self._elect(), "election")
            self.vitals.started = True
            await self.stop.wait()
        finally:
            await self._close()
            health.stop()
        log.info("controller stopped", extra={"event": Event.CONTROLLER_STOPPED, "status": self.status})
        return self.status

    # ---- leading -----------------------------------------------------------------------------------------------------
    async def _elect(self) -> None:
        """Lead whenever the Lease is ours. When it is lost, the fence is closed before anybody hears of it."""
        while True:
            await self.leader.win()
            working = asyncio.create_task(self._term(), name="leading")
            keeping = asyncio.create_task(self.leader.keep(), name="lease")
            try:
                await asyncio.wait({keeping, working}, return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    working.result()  # it never ends by itself: raises what broke it
                if await self._answers():
                    _exit(1)  # nothing of ours may last: another may lead already
                log.warning("the API server does not answer: maintenance goes on", extra={"event": Event.LEADER_UNKNOWN})
            finally:
                self.keeping.leading = None
                for task in (keeping, working):
                    task.cancel()
                await asyncio.wait({keeping, working}, timeout=_CLOSE_SECONDS)

    async def _term(self) -> None:
        leading = Leading(
            kube=self.kube,
            databases=self.databases,
            settings=self.settings,
            identity=self.identity,
            lease_namespace=self.lease_namespace,
            counts=self.counts,
        )
        triggers = leading.triggers
        self.vitals.watch_lag, self.vitals.supervised = lambda: triggers.lag, lambda: triggers.beat
        self.vitals.synced = triggers.synced.is_set
        self.state.heard, self.state.restarts = lambda: triggers.heard, lambda: triggers.restarts
        self.state.queue, self.keeping.leading = leading.queue, leading
        announcing = asyncio.create_task(self._announce(leading), name="announce")
        try:
            await leading.run()
        finally:
            announcing.cancel()
            self.state.queue, self.state.heard = None, dict
            self.vitals.watch_lag, self.vitals.supervised = float, boot

    async def _announce(self, leading: Leading) -> None:
        """Tell when every JobQueue that there was at the start has been looked at."""
        await leading.triggers.synced.wait()
        while not leading.queue.idle:  # noqa: ASYNC110 - told by a count, not by an event
            await asyncio.sleep(_POLL_SECONDS)
        fields = {"event": Event.CONTROLLER_READY, "resources": len(leading.cache.resources)}
        log.info("controller ready: %d JobQueues", len(leading.cache.resources), extra=fields)

    async def _answers(self) -> bool:
        """Whether the API server answers, so that another may lead by now."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                return await self._lease_kube.read("/version") is not None
        except KubeRefused:
            return True
        except (KubeError, TimeoutError):
            return False

    # ---- what can end it ---------------------------------------------------------------------------------------------
    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, 0)

    def _end(self, status: int) -> None:
        if self.stop.is_set():
            return
        self.status = status
        self.vitals.stopping = True
        self.stop.set()
        if status:  # a part is broken: the others get a moment, and no more
            timer = threading.Timer(_EXIT_SECONDS, _exit, (status,))
            timer.daemon = True
            timer.start()

    async def _close(self) -> None:
        self.keeping.upkeep.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self.status:
            # A write that was sent must have ended before another may hold the Lease.
            await self.kube.settle(self.settings.write_timeout_seconds)
            await self.leader.release()
        await self.databases.close()
        self.keeping.upkeep.join(_CLOSE_SECONDS if not self.status else 0.1)
        self.kube.close()
        self._lease_kube.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A part that ends by itself takes the process with it: a fresh one knows more than half a one."""
        if task.cancelled() or self.stop.is_set():
            return
        if (error := task.exception()) is not None:
            fields = {"event": Event.CONTROLLER_STOPPED}
            log.error("a part of the controller failed: %s", task.get_name(), exc_info=error, extra=fields)
        self._end(1)

    async def _ticking(self) -> None:
        while True:
            before = boot()
            await asyncio.sleep(_TICK_SECONDS)
            self.vitals.beat = boot()
            self.state.lag = max(0.0, self.vitals.beat - before - _TICK_SECONDS)


def _exit(status: int) -> NoReturn:
    """End at once, whatever is under way: the operating system closes what is open."""
    log.info("controller stopped", extra={"event": Event.CONTROLLER_STOPPED, "status": status})
    logging.shutdown()
    os._exit(status)
