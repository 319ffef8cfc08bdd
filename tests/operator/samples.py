"""The samples beside the custom resource: what is in them, and with which message each invalid one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from docs.jobqueue import SAMPLES

__all__ = ["INVALID", "SMALLEST", "VALID", "documents", "expected", "paths", "resource"]

VALID = sorted(SAMPLES.glob("*.yaml"))
INVALID = sorted((SAMPLES / "invalid").glob("*.yaml"))
SMALLEST = SAMPLES / "smallest.yaml"

_EXPECTED = "# expected: "


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the resources of a sample."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def expected(path: Path) -> str:
    """Return the message with which an invalid sample is refused."""
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith(_EXPECTED), f"{path}: the first line must be `{_EXPECTED}<message>`"
    return first.removeprefix(_EXPECTED)


def paths(value: Any, path: str) -> Iterator[str]:
    """Yield the path of a value and of all in it, as `docs.jobqueue.Node` has them."""
    yield path
    if isinstance(value, dict):
        for name, below in value.items():
            yield from paths(below, f"{path}.{name}")
    elif isinstance(value, list):
        for below in value:
            yield from paths(below, f"{path}[]")


def resource(name: str, **spec: Any) -> dict[str, Any]:
    """Return the smallest resource with more in its spec."""
    (document,) = documents(SMALLEST)
    document["metadata"] = {"name": name}
    document["spec"] |= spec
    return document
