"""Proof of death: which worker processes are dead for certain, told to their database at once.

A lost lease costs a minute, a wrong proof runs a job twice: so only the kubelet's word about a container counts, with the id
that the worker itself left there. `triggers` brings the pods; the database takes the leases over.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tailrace.clock import boot
from tailrace.errors import TailraceError
from tailrace.names.events import Event
from tailrace.names.labels import Label
from tailrace_controller.databases import QueueDatabase
from tailrace_controller.status.columns import parsed
from tailrace_controller.work_queue import Key

__all__ = ["Death", "Pods", "deaths"]

log: Final = logging.getLogger("tailrace.controller")

UNKNOWN: Final = "ContainerStatusUnknown"
"""The kubelet lost sight of the container: it may have ended or not."""
_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 900.0
_REMEMBERED: Final = 10_000
_END: Final = re.compile(r".{1,200}/[0-9a-f]{8}$")
_OOM: Final = "OOMKilled"
_LISTS: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


@dataclass(frozen=True, kw_only=True)
class Death:
    """A worker process that is dead for certain.

    Attributes:
        worker: Its id, as it wrote it itself.
        reason: What the kubelet said of its end, for people.
        interrupted: Whether the platform ended it, so that its jobs get their attempt back; a crash counts.
    """

    worker: str
    reason: str
    interrupted: bool = False


def deaths(pod: Mapping[str, Any]) -> list[Death]:
    """Return the worker processes of a pod that the kubelet reports as ended.

    Nothing else is evidence: not the phase, not a deletion, not a node, not that the pod is gone. It does not matter from
    which event the object comes, nor how old it is: a process that has ended once never runs again.

    Args:
        pod: The pod as the API server sent it.
    """
    uid = str(pod["metadata"].get("uid") or "")
    if not uid:
        return []
    found: dict[str, Death] = {}
    for ended, present in _terminated(pod.get("status") or {}):
        worker = _worker_of(ended, uid)
        if worker is not None and ended.get("reason") != UNKNOWN:
            found[worker] = _death(worker, pod, ended, present=present)
    return list(found.values())


def _terminated(status: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """What the kubelet says of ends: that of the last process but one, and the present state."""
    for name in _LISTS:
        for container in status.get(name) or ():
            for state in ("lastState", "state"):
                ended = (container.get(state) or {}).get("terminated")
                if ended:
                    yield ended, state == "state"


def _worker_of(ended: Mapping[str, Any], uid: str) -> str | None:
    """The id at the head of the message; one without this pod's UID may have been copied from anywhere.

    Where a worker could write nothing, the kubelet puts the end of its log there.
    """
    message = str(ended.get("message") or "")
    ident = message.split("\n", 1)[0].strip()
    return ident if ident.startswith(f"{uid}/") and _END.search(ident) else None


def _death(worker: str, pod: Mapping[str, Any], ended: Mapping[str, Any], *, present: bool) -> Death:
    said, code = str(ended.get("reason") or "Error"), ended.get("exitCode")
    text = f"{said}, exit code {code}" if code is not None else said
    platform = _platform(pod, ended) if present and said != _OOM else None
    if platform is None:
        return Death(worker=worker, reason=text)
    return Death(worker=worker, reason=f"{platform}: {text}", interrupted=True)


def _platform(pod: Mapping[str, Any], ended: Mapping[str, Any]) -> str | None:
    """Why the platform ended the pod: only the reason for an end that is proved otherwise, never a proof."""
    status = pod.get("status") or {}
    if status.get("reason") in ("Evicted", "Preempted"):
        return str(status["reason"])
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return "Preempted" if condition.get("reason") == "PreemptionByScheduler" else "Evicted"
    return "Deleted" if _after_deletion(pod["metadata"], ended) else None


def _after_deletion(metadata: Mapping[str, Any], ended: Mapping[str, Any]) -> bool:
    """A process that crashed before anybody deleted its pod has crashed. The mark of deletion is its latest moment."""
    latest, finished = parsed(metadata.get("deletionTimestamp")), parsed(ended.get("finishedAt"))
    if latest is None:
        return False
    asked = latest - timedelta(seconds=int(metadata.get("deletionGracePeriodSeconds") or 0))
    return finished is None or finished >= asked


class Pods:
    """Proofs of death, told to the databases at once.

    To be called on one event loop. What it is told may be old or come twice: both do no harm.
    """

    def __init__(
        self, *, database_of: Callable[[Key], QueueDatabase | None], told: Callable[[Key, Death, int], Awaitable[None]]
    ) -> None:
        """Know of no death yet.

        Args:
            database_of: The database of a JobQueue; None while it is not known.
            told: Awaited when a database has taken a dead worker's jobs over, with their number.
        """
        self._database_of, self._told = database_of, told
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def on_pod(self, event_type: str | None, pod: Mapping[str, Any]) -> None:
        """Take what the watch brought; all kinds of news are evidence alike.

        Args:
            event_type: ADDED, MODIFIED, DELETED, or None for the first list.
            pod: The object.
        """
        metadata = pod["metadata"]
        queue = (metadata.get("labels") or {}).get(Label.QUEUE)
        if queue:
            for death in deaths(pod):
                self._bury((str(metadata["namespace"]), str(queue)), death)

    async def close(self) -> None:
        """Give up what could not be told; whoever leads next sees the same evidence."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _bury(self, key: Key, death: Death) -> None:
        if death.worker in self._seen:
            return
        self._seen[death.worker] = None
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        task = asyncio.get_running_loop().create_task(self._tell(key, death), name=f"death of {death.worker}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, key: Key, death: Death) -> None:
        """Tell the database; it may be away, or its address not be known yet. After a while the lease is over anyway."""
        pause, deadline = _FIRST_PAUSE_SECONDS, boot() + _PATIENCE_SECONDS
        fields = {
            "event": Event.WORKER_DEATH_PROVED,
            "resource_namespace": key[0],
            "resource": key[1],
            "worker_id": death.worker,
            "reason": death.reason,
        }
        while boot() < deadline:
            database = self._database_of(key)
            if database is not None:
                try:
                    jobs = await database.worker_died(death.worker, reason=death.reason, interrupted=death.interrupted)
                except TailraceError as error:
                    log.warning("a dead worker's leases wait: %s", error, extra=fields)
                else:
                    log.info("a worker is dead: %s; %d jobs taken over", death.reason, jobs, extra={**fields, "jobs": jobs})
                    return await self._told(key, death, jobs)
            await asyncio.sleep(pause)
            pause = min(pause * 1.7, _LONGEST_PAUSE_SECONDS)
        self._seen.pop(death.worker, None)
        return None
