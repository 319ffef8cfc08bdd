"""Reads the custom resource JobQueue and makes its reference page: every field, rule and column.

`generate` writes the page. Tests walk the same nodes, so a field that the page has is one that was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from docs.sources import ROOT

__all__ = ["CRD", "SAMPLES", "Node", "crd", "nodes", "page", "rules", "schema", "version"]

CRD: Final = ROOT / "crds" / "jobqueues.tailrace.dev.yaml"
"""The custom resource."""

SAMPLES: Final = ROOT / "crds" / "samples"
"""Resources that are stored as they are; those in `invalid` below are refused."""

Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]

_HEAD = (
    "`kubectl explain jobqueue.spec` says the same on a cluster. A field without a default may be left out, unless it is "
    "required, and its absence means something. Samples: those in `crds/samples/` are stored as they are, each of "
    "`crds/samples/invalid/` is refused with the message in its first line.\n\n"
    "Only `database`, `worker` without `worker.lease`, and `template` change pods and so roll the workers. All else reaches the "
    "queue's row in the database or the controller, and takes effect without a restart.\n"
)
_RULES_HEAD = (
    "Beside types and bounds the API server checks these, and refuses a resource with the message. Crontab lines, time zones and "
    "the size of a payload are checked by the controller, which tells them in the condition `Stalled`.\n\n"
)
_COLUMNS_HEAD = "Of `kubectl get jq`; those marked wide need `-o wide`.\n\n"


@dataclass(frozen=True)
class Node:
    """One node of the schema.

    Attributes:
        path: Such as spec.tasks[].name; a map's values are path.*
        schema: What the CRD says about it.
        required: Whether its parent requires it.
    """

    path: str
    schema: dict[str, Any]
    required: bool = False

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rsplit(".", 1)[-1]

    @property
    def type(self) -> str:
        """Its type in one word, such as integer or list of object."""
        if self.schema.get("x-kubernetes-int-or-string"):
            return "integer or string"
        kind = str(self.schema["type"])
        if kind == "array":
            return f"list of {Node('', self.schema['items']).type}"
        return "map of string" if "additionalProperties" in self.schema else kind


def crd() -> dict[str, Any]:
    """Return the custom resource's definition."""
    return dict(yaml.safe_load(CRD.read_text(encoding="utf-8")))


def version() -> dict[str, Any]:
    """Return its one version."""
    (found,) = crd()["spec"]["versions"]
    return dict(found)


def schema() -> dict[str, Any]:
    """Return the schema of that version."""
    return dict(version()["schema"]["openAPIV3Schema"])


def nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, parents first.

    Args:
        node: Where to begin.
    """
    yield node
    required = node.schema.get("required", ())
    for name, below in node.schema.get("properties", {}).items():
        yield from nodes(Node(f"{node.path}.{name}".lstrip("."), below, name in required))
    if "items" in node.schema:
        yield from nodes(Node(f"{node.path}[]", node.schema["items"], required=True))
    if "additionalProperties" in node.schema:
        yield from nodes(Node(f"{node.path}.*", node.schema["additionalProperties"]))


def rules(root: Node) -> Iterator[tuple[str, str]]:
    """Yield each rule below a node as path and message.

    Args:
        root: Where to begin.
    """
    for node in nodes(root):
        for rule in node.schema.get("x-kubernetes-validations", ()):
            yield node.path, rule["message"]


def page(*, note: str, table: Table) -> str:
    """Return the page.

    Args:
        note: The remark that the page is made, not written.
        table: What makes a table of a head and rows.
    """
    root = Node("", schema())
    spec, status = (Node(name, root.schema["properties"][name]) for name in ("spec", "status"))
    parts = [f"# JobQueue\n\n{note}{_one_line(root)} `apiVersion: tailrace.dev/v1alpha1`, short name `jq`.\n\n{_HEAD}"]
    parts += _sections(spec, table)
    parts += ["\n## Rules\n\n", _RULES_HEAD]
    parts.append(table(("where", "message"), [(f"`{path or 'JobQueue'}`", message) for path, message in rules(root)]))
    parts += ["\n## Columns\n\n", _COLUMNS_HEAD]
    columns = [
        (column["name"].upper(), "wide" if column.get("priority") else "always", f"`{column['jsonPath']}`", column["description"])
        for column in version()["additionalPrinterColumns"]
    ]
    parts.append(table(("column", "shown", "from", "meaning"), columns))
    parts += _sections(status, table)
    return "".join(parts)


def _sections(root: Node, table: Table) -> Iterator[str]:
    """A section with a table for each node that has fields."""
    for node in nodes(root):
        fields = node.schema.get("properties")
        if not fields:
            continue
        required = node.schema.get("required", ())
        below = [Node(f"{node.path}.{name}", one, name in required) for name, one in fields.items()]
        yield f"\n{'##' if node is root else '###'} {node.path}\n\n{_one_line(node)}\n\n"
        yield table(("field", "type", "default", "bounds", "meaning"), [_row(field) for field in below])


def _row(node: Node) -> tuple[str, str, str, str, str]:
    default = "required" if node.required else _default(node)
    return f"`{node.name}`", node.type, default, _bounds(node), _one_line(node)


def _default(node: Node) -> str:
    value = node.schema.get("default")
    if value is None:
        return ""
    if value == {}:
        return "of its fields" if node.schema.get("properties") else "`{}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _bounds(node: Node) -> str:
    found = node.schema
    if "enum" in found:
        return ", ".join(f"`{value}`" for value in found["enum"])
    if "minimum" in found:
        numbers = f"{found['minimum']} to {found['maximum']}"
        return f"{numbers}, or 0% to 100%" if found.get("x-kubernetes-int-or-string") else numbers
    if found.get("format") == "date-time":
        return "RFC 3339"
    for word, unit in (("Length", "characters"), ("Items", "entries"), ("Properties", "entries")):
        if f"max{word}" in found:
            return f"{found.get(f'min{word}', 0)} to {found[f'max{word}']} {unit}"
    return ""


def _one_line(node: Node) -> str:
    return " ".join(str(node.schema["description"]).split())
