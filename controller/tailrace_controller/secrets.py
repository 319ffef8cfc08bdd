"""Secrets and ConfigMaps by name: read at each reconcile, and again each minute to notice a change.

They are never listed or watched: that would need the right to see all of a namespace. Only versions are remembered, no
content. `settle` takes the connection string, `environment` what the pods' environment is filled from.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tailrace.clock import boot
from tailrace.names.events import Event
from tailrace_controller.kube import Kind, Kube, KubeError, KubeRefused, NotLeading
from tailrace_controller.work_queue import Key

__all__ = ["CHECK_SECONDS", "Found", "Secrets"]

log: Final = logging.getLogger("tailrace.controller")

CHECK_SECONDS: Final = 60.0
"""Seconds between two looks at an object that is in use, give or take a fifth."""

_LOOK_SECONDS: Final = 0.5
_AT_A_TIME: Final = 4
_MISSING: Final = "missing"
_FORBIDDEN: Final = "forbidden"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was found under a name.

    Attributes:
        data: The content by key; None when there is no such object, or it may not be read.
        forbidden: The API server's sentence when it may not be read.
        since: When its content was seen to change; None when it has not since we know it.
    """

    data: Mapping[str, bytes] | None
    forbidden: str | None
    since: datetime | None


@dataclass(frozen=True)
class _Place:
    kind: Kind
    namespace: str
    name: str


@dataclass
class _Known:
    """An object in use: its version as it was seen last, and who uses it."""

    version: str
    since: datetime | None
    due: float
    users: set[Key]


class Secrets:
    """Reads objects for reconciles, and looks again at those that are in use."""

    def __init__(
        self,
        kube: Kube,
        *,
        changed: Callable[[Key], None],
        jitter: Callable[[], float],
        seconds: float = CHECK_SECONDS,
        clock: Callable[[], float] = boot,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Know nothing yet.

        Args:
            kube: The API server.
            changed: Told which JobQueues use an object that has changed.
            jitter: A random number in [0, 1).
            seconds: Between two looks at one object.
            clock: Seconds that only go forward.
            now: The time of day.
        """
        self._kube, self._changed, self._jitter = kube, changed, jitter
        self._seconds, self._clock, self._now = seconds, clock, now
        self._known: dict[_Place, _Known] = {}
        self._of: dict[Key, set[_Place]] = {}
        self._before: dict[Key, set[_Place]] = {}

    def begin(self, key: Key) -> None:
        """Begin a reconcile: what it does not read is no longer in use by this JobQueue.

        Args:
            key: The JobQueue.
        """
        self._before.setdefault(key, set()).update(self._of.pop(key, ()))

    def end(self, key: Key) -> None:
        """End a reconcile: drop what is no longer in use. Right after `begin` it forgets a JobQueue that is gone.

        Args:
            key: The JobQueue.
        """
        for place in self._before.pop(key, set()) - self._of.get(key, set()):
            known = self._known[place]
            known.users.discard(key)
            if not known.users:
                del self._known[place]

    async def read(self, key: Key, kind: Kind, name: str) -> Found:
        """Return an object of the JobQueue's namespace as it is now.

        Args:
            key: The JobQueue that uses it.
            kind: Secret or ConfigMap.
            name: Its name.

        Raises:
            KubeError: The API server did not answer.
        """
        place = _Place(kind, key[0], name)
        version, data, forbidden = await self._get(place)
        known = self._note(place, version)
        known.users.add(key)
        self._of.setdefault(key, set()).add(place)
        return Found(data=data, forbidden=forbidden, since=known.since)

    async def run(self) -> None:
        """Look again and again at what is in use, until cancelled."""
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, self._seconds / 4))
            await self.look()

    async def look(self) -> None:
        """Look at what is due, and tell the users of what has changed."""
        due = [place for place, known in self._known.items() if known.due <= self._clock()]
        gate = asyncio.Semaphore(_AT_A_TIME)

        async def one(place: _Place) -> None:
            async with gate:
                await self._again(place)

        await asyncio.gather(*(one(place) for place in due))

    async def _again(self, place: _Place) -> None:
        known = self._known.get(place)
        if known is None:
            return
        before = known.version
        try:
            version, _, _ = await self._get(place)
        except KubeError as error:
            known.due = self._next()
            if not isinstance(error, NotLeading):
                log.debug("%s %s could not be looked at: %s", place.kind.kind, place.name, error)
            return
        if version == before:
            known.due = self._next()
            return
        users = list(self._note(place, version).users)
        fields = {"event": Event.SECRET_CHANGED, "namespace": place.namespace, "object": place.name}
        log.info("%s %s has changed", place.kind.kind, place.name, extra=fields)
        for key in users:
            self._changed(key)

    async def _get(self, place: _Place) -> tuple[str, Mapping[str, bytes] | None, str | None]:
        try:
            found = await self._kube.get(place.kind, namespace=place.namespace, name=place.name)
        except KubeRefused as error:
            return _FORBIDDEN, None, error.sentence
        if found is None:
            return _MISSING, None, None
        metadata = found["metadata"]
        return f"{metadata['uid']}/{metadata['resourceVersion']}", _content(found), None

    def _note(self, place: _Place, version: str) -> _Known:
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = _Known(version=version, since=None, due=0.0, users=set())
        elif known.version != version:
            known.version, known.since = version, self._now()
        known.due = self._next()
        return known

    def _next(self) -> float:
        return self._clock() + self._seconds * (0.8 + 0.4 * self._jitter())


def _content(found: Mapping[str, Any]) -> Mapping[str, bytes]:
    """A Secret's data and a ConfigMap's binaryData are in base64, a ConfigMap's data is text."""
    secret = found.get("kind") == "Secret"
    data: dict[str, bytes] = {}
    for name, text in (found.get("data") or {}).items():
        data[name] = _decoded(text) if secret else str(text).encode()
    for name, text in (found.get("binaryData") or {}).items():
        data[name] = _decoded(text)
    return data


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text or "")
    except (binascii.Error, ValueError):  # an API server stores no such thing
        return b""
