"""Which databases there are, for a replica that does not lead: it lists JobQueues and reads the Secrets they name.

A leader knows them from its reconciles. Either way maintenance and gauges get the same: each JobQueue with the database
that its Secret leads to. What cannot be read leaves what is known.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tailrace.db.allowed import Target, parse_target
from tailrace.errors import InvalidDSN
from tailrace_controller.cache import kept
from tailrace_controller.kube import Kube, KubeError
from tailrace_controller.kube.kinds import JOBQUEUE, SECRET
from tailrace_controller.settings import ControllerSettings
from tailrace_controller.work_queue import Key

__all__ = ["Roster", "Served", "served"]

log: Final = logging.getLogger("tailrace.controller")

_AT_A_TIME: Final = 4


@dataclass(frozen=True, kw_only=True)
class Served:
    """One JobQueue and where its queue is.

    Attributes:
        key: Namespace and name of the JobQueue.
        queue: The queue's name in the database.
        secret: The Secret's name.
        latency_target: Seconds that jobs should not wait longer than.
        target: The database.
    """

    key: Key
    queue: str
    secret: str
    latency_target: float
    target: Target

    @property
    def label(self) -> str:
        """The value of the label `database`."""
        return f"{self.key[0]}/{self.secret}"


def served(resource: Mapping[str, Any], target: Target) -> Served:
    """Return a JobQueue with its database.

    Args:
        resource: As the API server has it.
        target: The database that its Secret leads to.
    """
    metadata, spec = resource["metadata"], resource["spec"]
    return Served(
        key=(metadata["namespace"], metadata["name"]),
        queue=str(spec.get("queueName") or metadata["name"]),
        secret=str(spec["database"]["secretRef"]["name"]),
        latency_target=float(spec.get("latencyTargetSeconds") or 0),
        target=target,
    )


class Roster:
    """Looks for databases by itself."""

    def __init__(self, kube: Kube, settings: ControllerSettings) -> None:
        """Know none yet.

        Args:
            kube: The API server.
            settings: Which JobQueues are ours, and which hosts are allowed.
        """
        self._kube, self._settings = kube, settings
        self._targets: dict[tuple[str, ...], Target] = {}

    async def look(self, resources: Iterable[Mapping[str, Any]] | None = None) -> list[Served]:
        """Return the JobQueues whose database is known.

        Args:
            resources: The JobQueues; None lists them.

        Raises:
            KubeError: They cannot be listed.
        """
        found = list(resources) if resources is not None else await self._list()
        wanted = {mark for one in found if (mark := _reference(one)) is not None}
        contents: dict[tuple[str, str], Mapping[str, bytes] | None] = {}
        limit = asyncio.Semaphore(_AT_A_TIME)

        async def read(place: tuple[str, str]) -> None:
            async with limit:
                contents[place] = await self._secret(*place)

        await asyncio.gather(*(read(place) for place in {(mark[0], mark[1]) for mark in wanted}))
        known = {mark: self._target(mark, contents[mark[0], mark[1]]) for mark in wanted}
        self._targets = {mark: target for mark, target in known.items() if target is not None}
        return [served(one, target) for one in found if (target := self._targets.get(_reference(one) or ())) is not None]

    async def _list(self) -> list[Mapping[str, Any]]:
        places, keep = self._settings.watch_namespaces or (None,), partial(kept, JOBQUEUE)
        pages = [await self._kube.list(JOBQUEUE, namespace=place, keep=keep) for place in places]
        name = self._settings.controller_name
        return [one for page in pages for one in page if (one.get("spec") or {}).get("controllerName", name) == name]

    async def _secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """The content; None when it cannot be read now. One that is gone is empty: nobody can use its database any more."""
        try:
            found = await self._kube.get(SECRET, namespace=namespace, name=name)
        except KubeError as error:
            log.debug("a Secret cannot be read: %s", error)
            return None
        return _decoded((found or {}).get("data") or {})

    def _target(self, mark: tuple[str, str, str, str], content: Mapping[str, bytes] | None) -> Target | None:
        if content is None:
            return self._targets.get(mark)
        _, _, key, schema = mark
        try:
            return parse_target(
                content.get(key, b""), schema=schema, allowed_hosts=self._settings.allowed_database_hosts, keys=content
            )
        except InvalidDSN:
            return None  # the leader tells it in the status


def _reference(resource: Mapping[str, Any]) -> tuple[str, str, str, str] | None:
    """Which key of which Secret, and the schema; None when an old object does not say."""
    database = (resource.get("spec") or {}).get("database") or {}
    reference = database.get("secretRef") or {}
    name, key = reference.get("name"), reference.get("key")
    if not name or not key:
        return None
    return resource["metadata"]["namespace"], name, key, database.get("schemaName") or "tailrace"


def _decoded(data: Mapping[str, str]) -> Mapping[str, bytes]:
    found: dict[str, bytes] = {}
    for name, value in data.items():
        try:
            found[name] = base64.b64decode(value)
        except binascii.Error:
            continue
    return found
