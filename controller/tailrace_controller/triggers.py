"""What makes the controller look at a JobQueue: news from the API server, and complete lists now and then.

kopf watches, in a thread that is begun anew when it ends, falls silent, or kinds come and go. A list is taken before each
start and at each resync, since a watch that was cut never tells what was deleted meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tailrace.clock import boot
from tailrace.names.events import Event
from tailrace.names.labels import watched
from tailrace_controller.cache import Cache, kept
from tailrace_controller.kopf_thread import KopfThread, Watched
from tailrace_controller.kube import Kind, Kube, KubeError, KubeMissing
from tailrace_controller.kube.kinds import DEPLOYMENT, JOBQUEUE, PDB, POD
from tailrace_controller.settings import ControllerSettings

__all__ = ["OnPod", "Triggers"]

log: Final = logging.getLogger("tailrace.controller")

OnPod = Callable[[str | None, dict[str, Any]], None]
"""Told of each pod that is ours, with the type of the event; None for one that was there before."""

_LOOK_SECONDS: Final = 1.0
_MISSING_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 30.0
_LONG_ENOUGH_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 8.0
_PROBE_SECONDS: Final = 15.0
_POD_DELAY_SECONDS: Final = 0.3
"""Pods change several times in a row; one look takes it all."""


class Triggers:
    """Watches while this process leads.

    Attributes:
        cache: What is known.
        synced: Set once a complete list has been taken.
        restarts: How often the watches were begun anew, by why.
    """

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        settings: ControllerSettings,
        *,
        on_change: Callable[..., None],
        on_pod: OnPod,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Prepare.

        Args:
            kube: For lists and probes.
            cache: Filled from here.
            settings: Namespaces and times.
            on_change: Called with a key that is worth a look, and `after` seconds.
            on_pod: Told of pods.
            jitter: Gives a number from 0 up to 1.
        """
        self._kube, self.cache, self._settings, self._jitter = kube, cache, settings, jitter
        self._on_change, self._on_pod = on_change, on_pod
        self.synced = asyncio.Event()
        self.restarts: dict[str, int] = {}
        self.beat = boot()
        self._thread: KopfThread | None = None
        labels = watched(settings.controller_name)
        self._kinds = (Watched(kind=JOBQUEUE), *(Watched(kind=kind, labels=labels) for kind in (DEPLOYMENT, PDB, POD)))

    @property
    def heard(self) -> dict[str, float]:
        """When each kind was heard last, by its plural."""
        return {} if self._thread is None else self._thread.heard.by_resource()

    @property
    def lag(self) -> float:
        """Seconds since the watches' own loop ran last; 0 while there are none."""
        return 0.0 if self._thread is None else boot() - self._thread.beat

    async def run(self) -> None:
        """Watch until cancelled; the thread has ended when this returns, or is about to."""
        pause = _FIRST_PAUSE_SECONDS
        try:
            while True:
                began = boot()
                why = await self._once()
                self.restarts[why] = self.restarts.get(why, 0) + 1
                pause = _FIRST_PAUSE_SECONDS if boot() - began > _LONG_ENOUGH_SECONDS else pause
                wait = _MISSING_SECONDS if why == "missing" else pause * (0.75 + 0.5 * self._jitter())
                self.beat = boot()
                await asyncio.sleep(wait)
                pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)
        finally:
            await self._end_thread(0.5)
            self.synced.clear()

    # ---- one run of the watches --------------------------------------------------------------------------------------
    async def _once(self) -> str:
        """List, watch until something is wrong, and end the thread; returns why it was."""
        try:
            known = await self.list_all()
        except KubeError as error:
            log.warning("the lists cannot be read: %s", error, extra={"event": Event.WATCH_FAILED, "error": str(error)})
            return "list"
        if not known:
            return "missing"
        self.synced.set()
        thread = KopfThread(
            place=self._kube.place, watched=self._kinds, namespaces=self._settings.watch_namespaces, news=self._news
        )
        self._thread = thread
        thread.start()
        log.info("watching", extra={"event": Event.WATCH_STARTED, "resources": len(self.cache.resources)})
        why, told = await self._look_after(thread)
        log.warning("the watches are begun anew: %s", why, extra={"event": Event.WATCH_FAILED, "error": told})
        await self._end_thread(_STOP_SECONDS)
        return why

    async def list_all(self) -> bool:
        """Take complete lists of all kinds; returns whether the API server knows JobQueues.

        Raises:
            KubeError: They cannot be read.
        """
        known = True
        places = self._settings.watch_namespaces or (None,)
        for one in self._kinds:
            try:
                keep = partial(kept, one.kind)
                found = [await self._kube.list(one.kind, namespace=place, labels=one.labels, keep=keep) for place in places]
            except KubeMissing:
                if one.kind != JOBQUEUE:
                    raise
                known, found = False, []
                log.warning(
                    "the API server does not know JobQueue: run `kubectl apply --server-side -f crds/`",
                    extra={"event": Event.KIND_MISSING},
                )
            bodies = [body for page in found for body in page]
            for key in self.cache.take_list(one.kind, bodies, namespaces=self._settings.watch_namespaces):
                self._on_change(key)
        return known

    async def _look_after(self, thread: KopfThread) -> tuple[str, str]:
        now = boot()
        discovery, resync, probe = now + self._settings.discovery_seconds, now + self._resync_pause(), now + _PROBE_SECONDS
        while True:
            await asyncio.wait({thread.ended}, timeout=_LOOK_SECONDS)
            self.beat = now = boot()
            if thread.ended.done():
                return "ended", str(thread.ended.exception() or "")
            if now >= discovery:
                discovery = now + self._settings.discovery_seconds
                if await self._kind_is_gone():
                    return "gone", JOBQUEUE.plural
            if now >= probe:
                probe = now + min(_PROBE_SECONDS, self._settings.silence_seconds / 3)
                if thread.heard.silence() > self._settings.silence_seconds and await self._answers():
                    return "silent", f"nothing heard for {thread.heard.silence():.0f} s"
            if now >= resync:
                resync = now + self._resync_pause()
                await self._resync()

    def _resync_pause(self) -> float:
        return self._settings.resync_seconds * (0.5 + 0.5 * self._jitter())

    async def _resync(self) -> None:
        try:
            await self.list_all()
        except KubeError as error:
            log.warning("the lists cannot be read: %s", error, extra={"event": Event.WATCH_FAILED, "error": str(error)})

    async def _kind_is_gone(self) -> bool:
        """Whether the API server answers and does not know JobQueues any more; the watch of a deleted kind tells nothing."""
        try:
            found = await self._kube.read(JOBQUEUE.group_path)
        except KubeError:
            return False
        return found is None or not any(one.get("name") == JOBQUEUE.plural for one in found.get("resources") or ())

    async def _answers(self) -> bool:
        try:
            return await self._kube.read("/version") is not None
        except KubeError:
            return False

    async def _end_thread(self, seconds: float) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and not await thread.stop(seconds=seconds):
            log.warning("the watches did not end in time", extra={"event": Event.WATCH_FAILED})

    # ---- news --------------------------------------------------------------------------------------------------------
    def _news(self, kind: Kind, event: str | None, body: dict[str, Any]) -> None:
        """Take one piece of news; runs in the main loop. What a thread tells after its end is of no interest."""
        if self._thread is None:
            return
        key = self.cache.take(kind, event, body)
        if kind == POD:
            self._on_pod(event, body)
        if key is not None and (kind == JOBQUEUE or key in self.cache.resources):
            self._on_change(key, after=_POD_DELAY_SECONDS if kind == POD else 0.0)
