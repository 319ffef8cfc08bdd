"""Merges one pod template over another: maps by field, lists of named things by their key, all else replaced.

The keys are those that the API server itself merges by. A null removes what would be there by default; the directives of
strategic merge patches are refused, since here nobody would carry them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tailrace.errors import InvalidOption

__all__ = ["TemplateInvalid", "merged"]


class TemplateInvalid(InvalidOption):
    """The template of a JobQueue cannot be merged; `field` is the path of what is wrong."""


_CONTAINER_LISTS: Final = ("containers", "initContainers")
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "spec.volumes": ("name",),
    "spec.imagePullSecrets": ("name",),
    "spec.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    **{f"spec.{name}": ("name",) for name in _CONTAINER_LISTS},
    **{f"spec.{name}[].env": ("name",) for name in _CONTAINER_LISTS},
    **{f"spec.{name}[].ports": ("containerPort", "protocol") for name in _CONTAINER_LISTS},
    **{f"spec.{name}[].volumeMounts": ("mountPath",) for name in _CONTAINER_LISTS},
}
_DEFAULTS: Final[Mapping[str, Any]] = {"protocol": "TCP"}
_ONE_OF: Final = {"spec.volumes[]": "name", **{f"spec.{name}[].env[]": "name" for name in _CONTAINER_LISTS}}
"""Items of which only the key may be kept when the other side says something else: a volume has one source."""


def merged(base: Mapping[str, Any], over: Mapping[str, Any], *, path: str, shape: str = "") -> dict[str, Any]:
    """Lay a template over another.

    Args:
        base: What is there by default; not changed.
        over: What the author of the resource says.
        path: Where `over` stands in the resource, for errors.
        shape: The same path inside the template without numbers, such as `spec.containers[]`.

    Raises:
        TemplateInvalid: A directive, a null in a list, or a list of named things with a nameless or doubled one.
    """
    result = dict(base)
    for name, value in over.items():
        place, inner = f"{path}.{name}", f"{shape}.{name}" if shape else name
        if name.startswith("$"):
            raise TemplateInvalid(
                "is a directive of patches, which a template does not have", field=place, hint="remove it; null removes a default"
            )
        if value is None:
            result.pop(name, None)
        elif inner in _KEYS and not isinstance(value, list):
            raise TemplateInvalid("must be a list", field=place, hint="correct it")
        elif isinstance(value, Mapping):
            below = result.get(name)
            result[name] = merged(below if isinstance(below, Mapping) else {}, value, path=place, shape=inner)
        elif isinstance(value, list):
            result[name] = _list(result.get(name), value, place, inner)
        else:
            result[name] = value
    return result


def _list(base: Any, over: Sequence[Any], path: str, shape: str) -> list[Any]:
    keys = _KEYS.get(shape)
    if keys is None:
        return [_item({}, value, f"{path}[{number}]", f"{shape}[]") for number, value in enumerate(over)]
    found = {_key(item, keys): item for item in base or ()}
    seen: set[tuple[Any, ...]] = set()
    for number, value in enumerate(over):
        place = f"{path}[{number}]"
        key = _checked_key(value, keys, place)
        if key in seen:
            raise TemplateInvalid(f"has the {_said(keys, key)} twice", field=path, hint="merge the two entries")
        seen.add(key)
        found[key] = _item(_same_kind(found.get(key, {}), value, f"{shape}[]"), value, place, f"{shape}[]")
    return list(found.values())


def _item(base: Mapping[str, Any], value: Any, path: str, shape: str) -> Any:
    if isinstance(value, Mapping):
        return merged(base, value, path=path, shape=shape)
    if isinstance(value, list):
        return _list(None, value, path, shape)
    if value is None:
        raise TemplateInvalid("must not be null", field=path, hint="remove it; null removes a default by its name only")
    return value


def _same_kind(base: Mapping[str, Any], over: Mapping[str, Any], shape: str) -> Mapping[str, Any]:
    """Keep only the key of an item with one source, where the other side names another source."""
    key = _ONE_OF.get(shape)
    if key is None or over.keys() - {key} <= base.keys():
        return base
    return {key: base[key]} if key in base else {}


def _key(item: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(name) or _DEFAULTS.get(name) for name in keys)


def _checked_key(item: Any, keys: tuple[str, ...], path: str) -> tuple[Any, ...]:
    if not isinstance(item, Mapping):
        raise TemplateInvalid("must be an object", field=path, hint=f"give it {' and '.join(keys)}")
    key = _key(item, keys)
    for name, value in zip(keys, key, strict=True):
        if value is None:
            raise TemplateInvalid("is required, since the list is merged by it", field=f"{path}.{name}", hint="add it")
        if isinstance(value, Mapping | list):
            raise TemplateInvalid("must be a plain value", field=f"{path}.{name}", hint="correct it")
    return key


def _said(keys: tuple[str, ...], key: tuple[Any, ...]) -> str:
    return " and ".join(f"{name} {value!r}" for name, value in zip(keys, key, strict=True))
