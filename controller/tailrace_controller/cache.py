"""What the watches told last: the JobQueues that are ours, and the children and pods of each.

It says which JobQueue a piece of news is about, and whether it is worth a look: our own status writes come back as news
too. `triggers` fills it, the reconciler reads it. Only the event loop touches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tailrace.names.labels import Label
from tailrace_controller.kube.kinds import DEPLOYMENT, JOBQUEUE, PDB, POD, Kind
from tailrace_controller.work_queue import Key

__all__ = ["Cache", "kept"]

Object = dict[str, Any]
_OURS: Final = "tailrace.dev/"
_SPEC: Final[Mapping[Kind, tuple[str, ...]]] = {
    JOBQUEUE: ("controllerName", "queueName", "latencyTargetSeconds", "database", "autoscaling"),
    DEPLOYMENT: ("replicas",),
    PDB: (),
    POD: ("nodeName", "terminationGracePeriodSeconds"),
}
"""What is kept of a spec. Whoever writes reads the object anew, and a thousand whole ones take a hundred megabytes."""


class Cache:
    """Objects by kind and JobQueue.

    Attributes:
        resources: The JobQueues that are ours.
    """

    def __init__(self, *, controller_name: str) -> None:
        """Begin empty.

        Args:
            controller_name: Only JobQueues with this spec.controllerName are ours.
        """
        self._controller_name = controller_name
        self.resources: dict[Key, Object] = {}
        self._children: dict[Kind, dict[Key, dict[str, Object]]] = {}

    def children(self, kind: Kind, key: Key) -> list[Object]:
        """Return the children of a JobQueue of one kind, or its pods.

        Args:
            kind: Such as DEPLOYMENT or POD.
            key: The JobQueue.
        """
        return list(self._children.get(kind, {}).get(key, {}).values())

    def keys(self, kind: Kind) -> Iterable[Key]:
        """Return the JobQueues that have children of a kind.

        Args:
            kind: Such as POD.
        """
        return self._children.get(kind, {}).keys()

    def take(self, kind: Kind, event: str | None, body: Object) -> Key | None:
        """Take one piece of news; returns the JobQueue to look at, or None when it changes nothing.

        Args:
            kind: Of the object.
            event: ADDED, MODIFIED, DELETED, or None for what was there when the watch began.
            body: The object.
        """
        key, name = key_of(kind, body), body["metadata"]["name"]
        if key is None:
            return None
        place = self.resources if kind == JOBQUEUE else self._children.setdefault(kind, {}).setdefault(key, {})
        slot: Any = key if kind == JOBQUEUE else name
        known = place.get(slot)
        if known is not None and _version(body) < _version(known):
            return None  # late news of what was listed meanwhile
        gone = event == "DELETED" or (kind == JOBQUEUE and not self._is_ours(body))
        if gone:
            place.pop(slot, None)
            self._tidy(kind, key)
            return key if known is not None else None
        now = kept(kind, body)
        place[slot] = now
        return key if known is None or _worth_a_look(kind, known, now) else None

    def take_list(self, kind: Kind, bodies: Iterable[Object], *, namespaces: Iterable[str] = ()) -> set[Key]:
        """Take a complete list: what is not in it is gone. Returns the JobQueues to look at.

        Args:
            kind: Of the objects.
            bodies: All there are.
            namespaces: Where they were listed; none means everywhere.
        """
        changed, seen = set(), set()
        for body in bodies:
            if (key := self.take(kind, None, body)) is not None:
                changed.add(key)
            seen.add((body["metadata"].get("namespace"), body["metadata"]["name"]))
        places = set(namespaces)
        for key, name, known in self._all(kind):
            if (key[0], name) not in seen and (not places or key[0] in places):
                self.take(kind, "DELETED", known)
                changed.add(key)
        return changed

    def clear(self) -> None:
        """Forget everything."""
        self.resources.clear()
        self._children.clear()

    def _is_ours(self, body: Mapping[str, Any]) -> bool:
        return bool((body.get("spec") or {}).get("controllerName", self._controller_name) == self._controller_name)

    def _all(self, kind: Kind) -> list[tuple[Key, str, Object]]:
        if kind == JOBQUEUE:
            return [(key, key[1], body) for key, body in self.resources.items()]
        of_kind = self._children.get(kind, {})
        return [(key, name, body) for key, named in of_kind.items() for name, body in named.items()]

    def _tidy(self, kind: Kind, key: Key) -> None:
        of_kind = self._children.get(kind)
        if of_kind is not None and not of_kind.get(key, True):
            del of_kind[key]


def key_of(kind: Kind, body: Mapping[str, Any]) -> Key | None:
    """Return the JobQueue that an object is about; None when it says none.

    Args:
        kind: Of the object.
        body: The object.
    """
    metadata = body["metadata"]
    name = metadata["name"] if kind == JOBQUEUE else (metadata.get("labels") or {}).get(Label.QUEUE)
    return (str(metadata["namespace"]), str(name)) if name else None


def _version(body: Mapping[str, Any]) -> int:
    version = str(body["metadata"].get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0


def kept(kind: Kind, body: Object) -> Object:
    """Return an object without what takes memory and tells us nothing: a change of the spec shows in the generation.

    Args:
        kind: Of the object.
        body: The object, whole or kept before.
    """
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    spec, status = body.get("spec") or {}, body.get("status") or {}
    if kind == JOBQUEUE:
        conditions = status.get("conditions") or ()
        status = {"conditions": [{"type": one.get("type"), "status": one.get("status")} for one in conditions]}
    return {**body, "metadata": metadata, "spec": {name: spec[name] for name in _SPEC[kind] if name in spec}, "status": status}


def _worth_a_look(kind: Kind, before: Object, after: Object) -> bool:
    """Whether anything changed that a reconcile looks at. A JobQueue's status is our own; of children it counts."""
    if kind == JOBQUEUE:
        return _asked(before) != _asked(after)
    return _seen(before) != _seen(after)


def _asked(body: Object) -> tuple[Any, ...]:
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    ours = {name: value for name, value in annotations.items() if name.startswith(_OURS)}
    labels, gone = metadata.get("labels") or {}, metadata.get("deletionTimestamp")
    return metadata.get("uid"), metadata.get("generation"), gone, ours, labels


def _seen(body: Object) -> tuple[Any, ...]:
    metadata = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
    return metadata, body.get("spec"), body.get("status")
