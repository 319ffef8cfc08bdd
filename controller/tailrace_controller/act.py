"""Writes children: server-side apply of what is wanted, to what is ours, as it was when that was worked out.

Each write names the version of the child that it was computed from, so that a controller that slept rolls nothing back.
What is already there is not written again. `desired` makes the bodies, `fleet` decides when.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from tailrace_controller.desired import child_name
from tailrace_controller.kube import Kind, Kube
from tailrace_controller.kube.kinds import DEPLOYMENT
from tailrace_controller.work_queue import Key

__all__ = ["Children", "Put", "digest", "stranger"]

Object = Mapping[str, Any]


def digest(body: Object) -> str:
    """Return a short mark of a body: equal for equal bodies.

    Args:
        body: Plain JSON.
    """
    return sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def stranger(kind: Kind, live: Object | None, *, uid: str) -> str | None:
    """Return a sentence about an object of a child's name that is not ours; None when there is none, or it is.

    Args:
        kind: Its kind.
        live: The object, if there is one.
        uid: Of the JobQueue.
    """
    if live is None:
        return None
    owner = next((one for one in live["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    if owner is not None and owner.get("uid") == uid:
        return None
    name = live["metadata"]["name"]
    if owner is None:
        whose = "was made by somebody else and belongs to nobody's controller"
    elif owner.get("kind") == "JobQueue" and child_name(str(owner.get("name"))) == name:
        return (
            f"the {kind.kind} {name} belongs to an earlier JobQueue of this name (uid {owner.get('uid')}); "
            f"it is left untouched and goes away with it; else delete it"
        )
    else:
        whose = f"belongs to {owner.get('kind')} {owner.get('name')}"
    return f"the {kind.kind} {name} {whose}; it is left untouched: delete or rename it, or give the JobQueue another name"


@dataclass(frozen=True, kw_only=True)
class Put:
    """What a write did.

    Attributes:
        child: The object as it is now.
        change: none; created; changed = something else is wanted; restored = somebody else had changed it.
    """

    child: Object
    change: Literal["none", "created", "changed", "restored"]


@dataclass(frozen=True, kw_only=True)
class _Last:
    """What was written last, and which version of the child that made."""

    digest: str
    uid: str
    generation: int


class Children:
    """The children of all JobQueues of one installation."""

    def __init__(self, kube: Kube, *, manager: str) -> None:
        """Remember nothing yet: after a start each child is applied once, which changes nothing that is as it should be.

        Args:
            kube: The API server.
            manager: Who owns the fields.
        """
        self._kube, self._manager = kube, manager
        self._last: dict[tuple[str, Key], _Last] = {}

    async def read(self, kind: Kind, key: Key) -> dict[str, Any] | None:
        """Return a child as it is now.

        Args:
            kind: Its kind.
            key: The JobQueue.
        """
        return await self._kube.get(kind, namespace=key[0], name=child_name(key[1]))

    async def try_out(self, kind: Kind, desired: Object) -> None:
        """Ask the API server whether it would take a child.

        Args:
            kind: Its kind.
            desired: The body.

        Raises:
            KubeRefused: It would not; the sentence says why.
        """
        await self._kube.apply(kind, desired, manager=self._manager, force=True, dry_run=True)

    async def put(self, kind: Kind, key: Key, desired: Object, *, live: Object | None) -> Put:
        """Make a child what it should be. `stranger` must have been asked about it.

        Args:
            kind: Its kind.
            key: The JobQueue.
            desired: The body.
            live: The child as it was when the body was worked out; None for none.

        Raises:
            KubeConflict: It has changed since; look again.
            KubeRefused: The API server does not take it.
        """
        mark, last = digest(desired), self._last.get((kind.kind, key))
        known = last is not None and live is not None and last.uid == live["metadata"]["uid"]
        if live is not None and last is not None and known and last.digest == mark and _as_left(live, desired, last):
            return Put(child=live, change="none")
        body = desired if live is None else _of_version(desired, live)
        # Nothing is forced on an object that was not seen: somebody may be making one of this name just now.
        child = await self._kube.apply(kind, body, manager=self._manager, force=live is not None)
        self._remember(kind, key, mark, child)
        if live is None:
            return Put(child=child, change="created" if last is None else "restored")
        if child["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]:
            return Put(child=child, change="none")
        same = known and last is not None and last.digest == mark
        return Put(child=child, change="restored" if same else "changed")

    async def scale(self, key: Key, live: Object, replicas: int) -> Object:
        """Write nothing but the replicas of a Deployment, while its template has to wait or is refused.

        Args:
            key: The JobQueue.
            live: The Deployment.
            replicas: How many there should be.
        """
        metadata = live["metadata"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"replicas": replicas}}
        self._last.pop((DEPLOYMENT.kind, key), None)
        return await self._kube.patch(DEPLOYMENT, namespace=key[0], name=metadata["name"], body=body, manager=self._manager)

    async def delete(self, kind: Kind, key: Key, live: Object) -> None:
        """Delete a child that is no longer wanted, if it still is what was seen.

        Args:
            kind: Its kind.
            key: The JobQueue.
            live: The child.
        """
        metadata = live["metadata"]
        self._last.pop((kind.kind, key), None)
        await self._kube.delete(kind, namespace=key[0], name=metadata["name"], uid=metadata["uid"])

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a JobQueue that is gone.

        Args:
            key: Its namespace and name.
        """
        for known in [known for known in self._last if known[1] == key]:
            del self._last[known]

    def _remember(self, kind: Kind, key: Key, mark: str, child: Object) -> None:
        metadata = child["metadata"]
        generation = int(metadata.get("generation", 0))
        self._last[kind.kind, key] = _Last(digest=mark, uid=metadata["uid"], generation=generation)


def _of_version(desired: Object, live: Object) -> dict[str, Any]:
    known = live["metadata"]
    return {**desired, "metadata": {**desired["metadata"], "uid": known["uid"], "resourceVersion": known["resourceVersion"]}}


def _as_left(live: Object, desired: Object, last: _Last) -> bool:
    """Whether nobody has touched the child: the generation counts changes of its spec, metadata is looked at."""
    if int(live["metadata"].get("generation", 0)) != last.generation:
        return False
    for name in ("labels", "annotations"):
        has: Object = live["metadata"].get(name) or {}
        if any(has.get(field) != value for field, value in (desired["metadata"].get(name) or {}).items()):
            return False
    owners = {one.get("uid") for one in live["metadata"].get("ownerReferences") or ()}
    return owners >= {one["uid"] for one in desired["metadata"]["ownerReferences"]}
