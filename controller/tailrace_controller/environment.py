"""The fingerprint of what the pods' environment refers to, and the key that makes it useless to others.

A new value rolls the workers. The key lives in a Secret beside the Lease: it must outlive the controller, else each start
of it would roll every fleet. Without the right to keep one, a changed value waits for the next roll-out.
"""

from __future__ import annotations

import base64
import logging
import secrets as random_bytes
from collections.abc import Mapping
from typing import Any, Final

from tailrace.clock import boot
from tailrace.names.annotations import Annotation
from tailrace.names.events import Event
from tailrace.queue_spec import JobQueue
from tailrace_controller.desired import Reference, fingerprint, references
from tailrace_controller.kube import Kube, KubeConflict, KubeRefused
from tailrace_controller.kube.kinds import CONFIGMAP, SECRET
from tailrace_controller.secrets import Secrets
from tailrace_controller.work_queue import Key

__all__ = ["Environment"]

log: Final = logging.getLogger("tailrace.controller")

_FIELD: Final = "key"
_BYTES: Final = 32
_AGAIN_SECONDS: Final = 300.0
_KINDS: Final = {"Secret": SECRET, "ConfigMap": CONFIGMAP}


class Environment:
    """Fingerprints of all fleets, with one key."""

    def __init__(self, kube: Kube, secrets: Secrets, *, namespace: str, name: str) -> None:
        """Read nothing yet.

        Args:
            kube: The API server.
            secrets: Reads what is referred to.
            namespace: Where the controller's own objects are.
            name: The Secret with the key.
        """
        self._kube, self._secrets, self._namespace, self._name = kube, secrets, namespace, name
        self._key: bytes | None = None
        self._refused_at: float | None = None

    async def of(self, key: Key, resource: JobQueue, *, live: Mapping[str, Any] | None) -> str | None:
        """Return the fingerprint for a JobQueue's pods; None when they refer to nothing.

        What cannot be read leaves it as it is: that a right was taken away is no reason to roll a fleet.

        Args:
            key: The JobQueue.
            resource: Its spec.
            live: Its Deployment, if there is one.

        Raises:
            KubeError: The API server did not answer.
        """
        template = resource.spec.template
        found = references({"spec": template.spec}) if template is not None else ()
        if not found:
            return None
        mark = await self._mark()
        values: dict[Reference, Mapping[str, bytes] | bytes | None] = {}
        for reference in found:
            there = await self._secrets.read(key, _KINDS[reference.kind], reference.name)
            if there.forbidden is not None:
                return _as_it_is(live)
            data = there.data
            values[reference] = data.get(reference.key) if data is not None and reference.key else data
        return _as_it_is(live) if mark is None else fingerprint(values, key=mark)

    async def _mark(self) -> bytes | None:
        """The key, read once, made if there is none."""
        if self._key is None and (self._refused_at is None or boot() - self._refused_at > _AGAIN_SECONDS):
            try:
                self._key = await self._read() or await self._make()
                self._refused_at = None
            except KubeRefused as error:
                self._refused_at = boot()
                fields = {"event": Event.ENVIRONMENT_KEY_REFUSED, "object": self._name, "namespace": self._namespace}
                log.warning("changed values of an environment roll no workers: %s", error.sentence, extra=fields)
        return self._key

    async def _read(self) -> bytes | None:
        found = await self._kube.get(SECRET, namespace=self._namespace, name=self._name)
        text = ((found or {}).get("data") or {}).get(_FIELD)
        return base64.b64decode(text) if text else None

    async def _make(self) -> bytes | None:
        made = random_bytes.token_bytes(_BYTES)
        body = {
            "metadata": {"namespace": self._namespace, "name": self._name},
            "type": "Opaque",
            "immutable": True,
            "data": {_FIELD: base64.b64encode(made).decode()},
        }
        try:
            await self._kube.create(SECRET, body)
        except KubeConflict:  # somebody was faster, or it has no key in it
            return await self._read()
        return made


def _as_it_is(live: Mapping[str, Any] | None) -> str | None:
    if live is None:
        return None
    annotations = live["spec"]["template"].get("metadata", {}).get("annotations") or {}
    found = annotations.get(Annotation.ENVIRONMENT)
    return None if found is None else str(found)
