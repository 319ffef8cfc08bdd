"""kopf in a thread with an event loop of its own: it watches, and hands what it hears to the main loop.

On the main thread it would take over SIGTERM. Its handlers only pass news on; it writes nothing: no finalizer, no
annotation, no status, no event. `triggers` starts it anew whenever it ends, falls silent, or kinds come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import kopf

from tailrace.clock import boot
from tailrace_controller.kube import Kind, Place
from tailrace_controller.kube.watch import Heard, Sockets, watch_session

__all__ = ["KopfThread", "Watched"]

_TICK_SECONDS: Final = 0.5
_STREAM_SECONDS: Final = (270, 310)
"""How long one stream may last; the API server ends it then, and not those of all kinds at once."""
_BACKOFFS: Final = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """One kind that is watched.

    Attributes:
        kind: Which.
        labels: Only objects that match this selector; None = all.
    """

    kind: Kind
    labels: str | None = None


@dataclass(kw_only=True)
class KopfThread:
    """One run of kopf.

    Attributes:
        place: Where the API server is.
        watched: The kinds.
        namespaces: Where; none means everywhere.
        news: Called in the main loop with the kind, the event's type and the object.
        heard: When each stream was heard last.
        ended: Done when the thread has ended; its exception is what ended it.
        beat: When the thread's loop ran last.
    """

    place: Place
    watched: Sequence[Watched]
    namespaces: Sequence[str]
    news: Callable[[Kind, str | None, dict[str, Any]], None]
    heard: Heard = field(default_factory=Heard)
    beat: float = field(default_factory=boot)

    def __post_init__(self) -> None:
        """Take the running loop for the main one."""
        self._main = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._main.create_future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._run, name="tailrace-kopf", daemon=True).start()

    async def stop(self, *, seconds: float) -> bool:
        """Ask it to end and wait; returns whether it has.

        Args:
            seconds: How long to wait.
        """
        if self._loop is not None and self._stop is not None and not self.ended.done():
            with contextlib.suppress(RuntimeError):  # it is just ending by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        done, _ = await asyncio.wait({self.ended}, timeout=seconds)
        if self.ended.done() and not self.ended.cancelled():
            self.ended.exception()  # seen
        return bool(done)

    # ---- inside the thread -------------------------------------------------------------------------------------------
    def _run(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._watch())
        except BaseException as problem:  # noqa: BLE001 - handed to whoever looks after the thread
            error = problem
        with contextlib.suppress(RuntimeError):  # the main loop is gone
            self._main.call_soon_threadsafe(self._tell_end, error)

    def _tell_end(self, error: BaseException | None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            self.ended.exception()  # whoever wants it asks; a loop that closes need not warn

    async def _watch(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        ticking, sockets = asyncio.create_task(self._ticking()), Sockets()
        try:
            await kopf.operator(
                registry=self._registry(sockets),
                settings=self._settings(),
                standalone=True,
                clusterwide=not self.namespaces,
                namespaces=list(self.namespaces),
                stop_flag=self._stop,
            )
        finally:
            ticking.cancel()
            await sockets.end()

    async def _ticking(self) -> None:
        while True:
            self.beat = boot()
            await asyncio.sleep(_TICK_SECONDS)

    def _registry(self, sockets: Sockets) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            session = watch_session(self.place, self.heard, sockets)
            return kopf.AiohttpSession(server=self.place.server, aiohttp_session=session)

        for one in self.watched:
            kind = one.kind
            kopf.on.event(group=kind.group, version=kind.version, plural=kind.plural, registry=registry)(self._handler(kind))
        return registry

    def _handler(self, kind: Kind) -> Any:
        async def heard(event: Any, **_: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the main loop is gone
                self._main.call_soon_threadsafe(self.news, kind, event["type"], event["object"])

        heard.__name__ = f"heard_{kind.plural}"
        return heard

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.process.ultimate_exiting_timeout = None
        settings.posting.enabled = False
        settings.scanning.disabled = True  # kinds that come and go are noticed by `triggers`, without a right on CRDs
        settings.watching.initial_streaming = True
        settings.watching.inactivity_timeout = 70.0
        settings.watching.server_timeout = random.randint(*_STREAM_SECONDS)
        settings.networking.request_timeout = 30.0
        settings.networking.error_backoffs = _BACKOFFS
        settings.queueing.idle_timeout = 0.1  # a worker keeps the whole object for so long
        settings.queueing.exit_timeout = 0.2
        for one in self.watched:
            if one.labels is not None:
                settings.watching.label_selectors[one.kind.group, one.kind.version, one.kind.plural] = one.labels
        return settings


def quiet_logs(level: str) -> None:
    """Let kopf log what went wrong only: it tells each step of its own, and the rest is told by `triggers`.

    Args:
        level: The level of the process.
    """
    logging.getLogger("kopf").setLevel(logging.DEBUG if level == "debug" else logging.CRITICAL)
