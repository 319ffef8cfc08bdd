"""The custom resource and the models of `tailrace.queue_spec` say the same: fields, types, defaults, bounds.

The command line reads files by the models and a cluster by the custom resource; whoever moves a file between the two must
not be surprised. Where the custom resource asks for more, this module says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docs import jobqueue
from docs.jobqueue import Node
from tailrace.queue_spec import JobQueueSpec

Facts = dict[str, Any]
BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "pattern", "enum", "minItems", "maxItems")

# What only the custom resource says, and why the models do not.
NEEDED_IN_A_CLUSTER = {"spec.database", "spec.template", "spec.template.spec"}
ONLY_IN_A_CLUSTER = {
    "spec.database.secretRef.name": {"pattern"},  # it becomes part of a URL
    "spec.database.secretRef.key": {"pattern"},
    "spec.schedules[].cron": {"minLength", "maxLength"},  # the models read the line
    "spec.schedules[].timeZone": {"minLength", "maxLength"},  # the models look whether there is such a zone
    "spec.schedules[].key": {"maxLength"},  # the models count bytes, as a rule of the custom resource does too
}
# The inside of the template is the API server's in both; the custom resource only names what it looks at.
TEMPLATE = ("spec.template.metadata", "spec.template.spec")


def crd_facts() -> dict[str, Facts]:
    root = Node("spec", jobqueue.schema()["properties"]["spec"], required=True)
    return {node.path: _facts_of_crd(node) for node in jobqueue.nodes(root) if not node.path.startswith(_inside(TEMPLATE))}


def model_facts() -> dict[str, Facts]:
    schema = JobQueueSpec.model_json_schema(by_alias=True)
    return dict(_model_nodes("spec", schema, schema["$defs"], required=True))


def test_both_have_the_same_fields() -> None:
    """BF-39."""
    assert set(crd_facts()) == set(model_facts())


def test_both_say_the_same_of_each_field() -> None:
    """BF-39: a value that one takes and the other refuses, or another default, would show only after the move."""
    crds, models, differences = crd_facts(), model_facts(), {}
    for path in set(crds) & set(models):
        crd, model = crds[path], models[path]
        if path in NEEDED_IN_A_CLUSTER:
            assert crd.pop("required"), path
            assert not model.pop("required"), f"{path}: the models require it now, so take it out of NEEDED_IN_A_CLUSTER"
            model.pop("default", None)
        for word in ONLY_IN_A_CLUSTER.get(path, ()):
            assert word not in model, f"{path}: both have {word} now, so take it out of ONLY_IN_A_CLUSTER"
            assert crd.pop(word) is not None
        if crd != model:
            differences[path] = {"custom resource": crd, "models": model}
    assert not differences


def test_what_is_said_to_be_stricter_exists() -> None:
    assert set(ONLY_IN_A_CLUSTER) | NEEDED_IN_A_CLUSTER <= set(crd_facts())


def _inside(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{path}{sign}" for path in paths for sign in ".[")


def _facts_of_crd(node: Node) -> Facts:
    kind = node.type.split(" of ")[0] if node.type.startswith("list") else node.type
    found: Facts = {"type": kind, "required": node.required}
    found |= {word: node.schema[word] for word in BOUNDS if word in node.schema}
    if "default" in node.schema:
        found["default"] = node.schema["default"]
    return found


def _model_nodes(path: str, schema: Facts, known: dict[str, Facts], *, required: bool) -> Iterator[tuple[str, Facts]]:
    own = {**known[schema["$ref"].rsplit("/", 1)[-1]], **schema} if "$ref" in schema else schema
    branches = [branch for branch in own.get("anyOf", ()) if branch != {"type": "null"}]
    if len(branches) == 1:
        branch = branches[0]
        yield from _model_nodes(path, {**branch, "default": own["default"]}, known, required=required)
        return
    found: Facts = {"required": required}
    for part in branches or [own]:
        found |= {word: part[word] for word in BOUNDS if word in part}
    found["type"] = "integer or string" if branches else {"array": "list"}.get(own["type"], own["type"])
    default = own.get("default")
    if default is not None and default != []:
        found["default"] = {} if isinstance(default, dict) else default
    elif own.get("additionalProperties") is True and not required:
        found["default"] = {}  # a factory, which the schema does not show
    yield path, found
    if "items" in own:
        yield from _model_nodes(f"{path}[]", own["items"], known, required=True)
    for name, below in own.get("properties", {}).items():
        yield from _model_nodes(f"{path}.{name}", below, known, required=name in own.get("required", ()))
