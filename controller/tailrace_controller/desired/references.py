"""What the environment of the pods refers to, and the fingerprint by which a change of it rolls the workers.

The kubelet puts Secrets and ConfigMaps into an environment once, at a container's start; so without this a rotated value
would wait for some later restart. The hash is keyed: a plain one on a pod would let its readers try values.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal

__all__ = ["Reference", "fingerprint", "references"]

_LISTS: Final = ("initContainers", "containers")
_KINDS: Final[Mapping[str, Literal["Secret", "ConfigMap"]]] = {
    "secretKeyRef": "Secret",
    "secretRef": "Secret",
    "configMapKeyRef": "ConfigMap",
    "configMapRef": "ConfigMap",
}
_LENGTH: Final = 32


@dataclass(frozen=True, order=True)
class Reference:
    """A place that an environment is filled from.

    Attributes:
        kind: Secret or ConfigMap.
        name: The object's name, in the JobQueue's namespace.
        key: The key; empty for all of them.
    """

    kind: Literal["Secret", "ConfigMap"]
    name: str
    key: str = ""


def references(template: Mapping[str, Any]) -> tuple[Reference, ...]:
    """Return what the environments of a template's containers refer to, each once, in order.

    Args:
        template: A pod template as `pod_template` makes it.
    """
    found: set[Reference] = set()
    for container in _containers(template):
        for variable in _objects(container.get("env")):
            found.update(_of(variable.get("valueFrom")))
        for source in _objects(container.get("envFrom")):
            found.update(_of(source))
    return tuple(sorted(found))


def fingerprint(values: Mapping[Reference, Mapping[str, bytes] | bytes | None], *, key: bytes) -> str | None:
    """Return the keyed hash of what references lead to; None when there are none.

    Args:
        values: What each leads to: the bytes of a key, all keys of an object, or None where there is nothing.
        key: At least 16 secret bytes that outlive the controller: another key rolls every worker.
    """
    if not values:
        return None
    digest = hmac.new(key, digestmod=sha256)
    for reference in sorted(values):
        value = values[reference]
        _add(digest, reference.kind.encode(), reference.name.encode(), reference.key.encode())
        if value is None:
            _add(digest, b"absent")
        elif isinstance(value, bytes):
            _add(digest, b"value", value)
        else:
            _add(digest, b"all", *(part for name in sorted(value) for part in (name.encode(), value[name])))
    return digest.hexdigest()[:_LENGTH]


def _add(digest: hmac.HMAC, *parts: bytes) -> None:
    """Each part with its length, so that no two lists of parts read alike."""
    digest.update(len(parts).to_bytes(4, "big"))
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)


def _of(source: Any) -> Iterable[Reference]:
    if isinstance(source, Mapping):
        for field, kind in _KINDS.items():
            place = source.get(field)
            if isinstance(place, Mapping) and isinstance(place.get("name"), str):
                yield Reference(kind, place["name"], str(place.get("key") or ""))


def _containers(template: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    spec = template.get("spec") or {}
    for name in _LISTS:
        yield from _objects(spec.get(name))


def _objects(given: Any) -> Iterable[Mapping[str, Any]]:
    return (item for item in given or () if isinstance(item, Mapping)) if isinstance(given, list | None) else ()
