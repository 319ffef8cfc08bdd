"""Autoscalers that point at a Deployment of ours instead of its JobQueue: found, told, and overwritten.

One list serves all JobQueues, made anew each minute, and for one namespace when its replicas were written by somebody.
Without the right to list them only what they write is put back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from tailrace.clock import boot
from tailrace_controller.desired import child_name
from tailrace_controller.kube import Kube, KubeError, KubeRefused
from tailrace_controller.kube.kinds import DEPLOYMENT, HPA
from tailrace_controller.work_queue import Key

__all__ = ["Autoscalers"]

log: Final = logging.getLogger("tailrace.controller")

_TICK_SECONDS: Final = 1.0


class Autoscalers:
    """The HorizontalPodAutoscalers that point at Deployments."""

    def __init__(
        self,
        kube: Kube,
        *,
        namespaces: Sequence[str] = (),
        keys: Callable[[], Iterable[Key]],
        wake: Callable[[Key], None],
        seconds: float = 60.0,
        clock: Callable[[], float] = boot,
    ) -> None:
        """Know none yet.

        Args:
            kube: The API server.
            namespaces: Where to look; none means everywhere.
            keys: The JobQueues that are known.
            wake: Told of whose Deployment an autoscaler came or went.
            seconds: Between two lists.
            clock: Seconds that only go forward.
        """
        self._kube, self._namespaces, self._keys, self._wake = kube, tuple(namespaces), keys, wake
        self._seconds, self._clock = seconds, clock
        self._found: dict[tuple[str, str], str] = {}
        self._listed = float("-inf")

    async def on(self, key: Key, *, fresh: bool) -> str | None:
        """Return a sentence about an autoscaler on a JobQueue's Deployment; None when there is none.

        Args:
            key: The JobQueue.
            fresh: Whether to list those of its namespace anew.

        Raises:
            KubeUnavailable: The API server did not answer.
        """
        name = child_name(key[1])
        if fresh:
            others = {place: autoscaler for place, autoscaler in self._found.items() if place[0] != key[0]}
            self._found = {**others, **await self._list(key[0])}
        found = self._found.get((key[0], name))
        if found is None:
            return None
        return (
            f"the {HPA.kind} {found} points at the Deployment {name}, whose replicas the controller writes back: "
            f"point its scaleTargetRef at the JobQueue {key[1]} (apiVersion tailrace.dev/v1alpha1), or delete it"
        )

    async def run(self) -> None:
        """List them again and again, until cancelled."""
        while True:
            if self._clock() - self._listed >= self._seconds:
                await self.look()
            await asyncio.sleep(min(_TICK_SECONDS, self._seconds / 4))

    async def look(self) -> None:
        """List them, and wake those for whom something has changed."""
        self._listed, before = self._clock(), self._found
        try:
            lists = [await self._list(namespace) for namespace in self._namespaces or (None,)]
        except KubeError as error:
            log.debug("autoscalers cannot be listed: %s", error)
            return
        self._found = {place: name for found in lists for place, name in found.items()}
        if self._found != before:
            for key in list(self._keys()):
                place = (key[0], child_name(key[1]))
                if before.get(place) != self._found.get(place):
                    self._wake(key)

    async def _list(self, namespace: str | None) -> Mapping[tuple[str, str], str]:
        """Their names by the namespace and name of the Deployment that they point at."""
        try:
            listed = await self._kube.list(HPA, namespace=namespace)
        except KubeRefused:
            return {}
        return {place: str(one["metadata"]["name"]) for one in listed if (place := _target(one)) is not None}


def _target(autoscaler: Mapping[str, Any]) -> tuple[str, str] | None:
    reference = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    if reference.get("kind") != DEPLOYMENT.kind:
        return None
    return str(autoscaler["metadata"]["namespace"]), str(reference.get("name"))
