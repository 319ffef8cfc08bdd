"""Kubernetes events about resources: one object for each resource and reason, counted, written at most each ten seconds.

Their API lets only the count of an event change, so another note takes the place of the object. While the API server is
away an event is tried again; one that it refuses is lost: status tells the same, and lasts. The Lease guards these writes
like all others.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tailrace.clock import boot
from tailrace_controller.kube.client import Kube
from tailrace_controller.kube.errors import KubeConflict, KubeError, KubeMissing, KubeUnavailable
from tailrace_controller.kube.kinds import EVENT

__all__ = ["Recorder"]

log: Final = logging.getLogger("tailrace.controller")

_PAUSE_SECONDS: Final = 10.0
_TRIES: Final = 12
"""How often an event is tried while the API server is away, as the recorder of Kubernetes' own Go client does."""
_FORGET_SECONDS: Final = 3600.0
"""An API server keeps events for an hour; a series that was silent for so long begins anew."""
_AT_A_TIME: Final = 2
"""Writes of events at the same time: they leave the connections to what they tell of."""
_LONGEST_NOTE: Final = 1000
"""Bytes of a note that the API takes: 1 kB."""


@dataclass
class _Series:
    """What was said about one resource for one reason; the count is that of the present note."""

    regarding: Mapping[str, str]
    kind: str
    reason: str
    note: str = ""
    count: int = 0
    seen: float = 0.0
    written_note: str | None = None
    written: float = float("-inf")
    failures: int = 0
    writer: asyncio.Task[None] | None = None


class Recorder:
    """Writes events."""

    def __init__(self, kube: Kube, *, controller: str, instance: str, clock: Callable[[], float] = boot) -> None:
        """Take the API.

        Args:
            kube: The API server.
            controller: The name of the controller.
            instance: Which of its processes this is.
            clock: Seconds that only go forward.
        """
        self._kube, self._controller, self._instance, self._clock = kube, controller, instance[-128:], clock
        self._series: dict[tuple[str, str], _Series] = {}
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def event(
        self,
        about: Mapping[str, Any],
        *,
        type: Literal["Normal", "Warning"],  # noqa: A002 - the API's word
        reason: str,
        note: str,
    ) -> None:
        """Say that something happened to a resource. Written soon, behind the work that it tells of; never fails.

        Args:
            about: The resource, with apiVersion, kind and metadata.
            type: Whether somebody should look.
            reason: A member of `EventReason`.
            note: A sentence for people, without secrets.
        """
        now, key, said = self._clock(), (str(about["metadata"].get("uid", "")), str(reason)), _short(note)
        series = self._series.get(key)
        if series is None or now - series.seen > _FORGET_SECONDS:
            self._forget(now)
            series = self._series[key] = _Series(regarding={}, kind=type, reason=str(reason))
        series.count = series.count + 1 if said == series.note else 1
        series.regarding, series.kind, series.note, series.seen = _regarding(about), type, said, now
        if series.writer is None or series.writer.done():  # else it will take this along
            wait = max(0.0, series.written + _PAUSE_SECONDS - now)
            series.writer = asyncio.create_task(self._later(series, wait), name="event")

    async def close(self) -> None:
        """Give up what still waits to be written."""
        waiting = [s.writer for s in self._series.values() if s.writer is not None and not s.writer.done()]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _forget(self, now: float) -> None:
        for key in [key for key, series in self._series.items() if now - series.seen > _FORGET_SECONDS]:
            del self._series[key]

    async def _later(self, series: _Series, wait: float) -> None:
        await asyncio.sleep(wait)
        async with self._turns:
            told = series.note, series.count
            try:
                await self._write(series)
                series.failures = 0
            except KubeError as error:
                log.debug("an event could not be written: %s", error, extra={"reason": series.reason})
                series.failures = series.failures + 1 if isinstance(error, KubeUnavailable) else 0
        if 0 < series.failures < _TRIES:
            pause = min(2.0 ** (series.failures - 1), _PAUSE_SECONDS)
        elif told != (series.note, series.count):  # more was said meanwhile
            pause = _PAUSE_SECONDS
        else:
            return
        series.writer = asyncio.create_task(self._later(series, pause), name="event")

    async def _write(self, series: _Series) -> None:
        series.written, note = self._clock(), series.note
        if note == series.written_note:
            await self._count(series)
        else:
            await self._create(series, anew=series.written_note is not None)
        series.written_note = note

    async def _count(self, series: _Series) -> None:
        body = {"series": {"count": max(2, series.count), "lastObservedTime": _now()}}
        try:
            await self._kube.patch(EVENT, namespace=series.regarding["namespace"], name=self._name(series), body=body)
        except KubeMissing:  # it was too old
            await self._create(series, anew=False)

    async def _create(self, series: _Series, *, anew: bool) -> None:
        namespace, name, body = series.regarding["namespace"], self._name(series), self._body(series)
        if anew:
            await self._kube.delete(EVENT, namespace=namespace, name=name)
        try:
            await self._kube.create(EVENT, body)
        except KubeConflict:  # from before we were started
            await self._kube.delete(EVENT, namespace=namespace, name=name)
            await self._kube.create(EVENT, body)

    def _body(self, series: _Series) -> dict[str, Any]:
        body: dict[str, Any] = {
            "metadata": {"namespace": series.regarding["namespace"], "name": self._name(series)},
            "eventTime": _now(),
            "type": series.kind,
            "reason": series.reason,
            "note": series.note,
            "action": "Reconcile",
            "regarding": dict(series.regarding),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
        }
        if series.count > 1:
            body["series"] = {"count": series.count, "lastObservedTime": _now()}
        return body

    def _name(self, series: _Series) -> str:
        said = f"{series.regarding.get('uid')}/{series.reason}/{self._controller}"
        return f"{series.regarding['name']}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"


def _regarding(about: Mapping[str, Any]) -> Mapping[str, str]:
    metadata = about["metadata"]
    found = {"apiVersion": about.get("apiVersion"), "kind": about.get("kind")}
    found |= {name: metadata.get(name) for name in ("namespace", "name", "uid", "resourceVersion")}
    return {name: str(value) for name, value in found.items() if value}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _short(note: str) -> str:
    raw = note.encode("utf-8", "replace")
    return note if len(raw) <= _LONGEST_NOTE else raw[: _LONGEST_NOTE - 3].decode("utf-8", "ignore") + "…"
