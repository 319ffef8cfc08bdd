"""Every field of the custom resource has an effect, and only those that a pod must know change the pods' template.

Each field of `crds/samples/everything.yaml` is changed in turn; what changes of the queue's row and of the children must be
what is said below. A field that changes neither is read by the controller, or this release says that it lacks it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from docs import jobqueue
from docs.jobqueue import SAMPLES, Node
from docs.sources import ROOT
from tailrace.queue_spec import JobQueue, unsupported
from tailrace_controller.desired import Context, deployment, disruption_budget
from tests.operator.samples import documents

ROW, POD, CHILDREN, CONTROLLER, LACKING = "row", "pod", "children", "controller", "lacking"

# The longest path that begins a field's path counts.
REACHES: Mapping[str, set[str]] = {
    "spec.controllerName": {POD, CHILDREN},  # a label; it cannot be changed
    "spec.queueName": {ROW, POD},  # it cannot be changed either
    "spec.replicas": {CONTROLLER},
    "spec.latencyTargetSeconds": {ROW},
    "spec.database": {POD},
    "spec.database.migrationPolicy": {CONTROLLER},
    "spec.stopPolicy": {ROW},
    "spec.exhaustedPolicy": {ROW},
    "spec.worker": {POD},
    "spec.worker.slots": {ROW, POD},  # the demand is worked out from it, by whoever reads the row
    "spec.worker.lease": {ROW},
    "spec.jobDefaults": {ROW},
    "spec.tasks": {ROW},
    "spec.limits": {ROW},
    "spec.deadLetters": {ROW},
    "spec.history": {ROW},
    "spec.schedules": {ROW},
    "spec.autoscaling": {CONTROLLER},
    "spec.autoscaling.targetUtilizationPercent": {ROW},
    "spec.autoscaling.behavior": {LACKING},
    "spec.autoscaling.hpa": {LACKING},
    "spec.autoscaling.keda": {LACKING},
    "spec.rollout": {CHILDREN},
    "spec.rollout.policy": {CONTROLLER},
    "spec.disruptionBudget": {CHILDREN},
    "spec.template": {POD},
}
# What the controller reads, as its code has it.
READ_BY_CONTROLLER = {
    "spec.replicas": r"spec\.replicas\b",
    "spec.database.migrationPolicy": r"\.migration_policy\b",
    "spec.autoscaling.mode": r"\bmode\b",
    "spec.autoscaling.minReplicas": r"\.min_replicas\b",
    "spec.autoscaling.maxReplicas": r"\.max_replicas\b",
    "spec.rollout.policy": r"rollout\.policy\b",
}
# Values that a rule of the models asks for; others are made from the bounds.
OTHERS: Mapping[str, Any] = {
    "spec.schedules[].cron": "31 2 * * *",
    "spec.schedules[].timeZone": "Asia/Tokyo",
    "spec.schedules[].payload": {"other": 1},
    "spec.autoscaling.mode": "HPA",
    "spec.autoscaling.minReplicas": 1,
    "spec.template.spec.containers[].name": None,  # it is what tells containers apart
}


def leaves() -> list[Node]:
    """The fields that hold a value of their own."""
    found = []
    for node in jobqueue.nodes(Node("spec", jobqueue.schema()["properties"]["spec"])):
        inside = {"properties", "items", "additionalProperties"} & set(node.schema)
        if not inside and OTHERS.get(node.path, "") is not None:
            found.append(node)
    return found


@pytest.mark.parametrize("leaf", leaves(), ids=lambda node: node.path)
def test_a_field_has_an_effect_and_rolls_the_workers_only_if_it_must(leaf: Node) -> None:
    """BF-39, and operator-notes 3.2 #14: a new limit or schedule is no roll-out."""
    before, after = changed(leaf)
    wanted = REACHES[max((path for path in REACHES if within(leaf.path, path)), key=len)]
    assert reached(before, after) == wanted & {ROW, POD, CHILDREN}
    if CONTROLLER in wanted:
        assert re.search(READ_BY_CONTROLLER[leaf.path], controller_code()), "the controller reads it nowhere"
    if LACKING in wanted:
        assert any(within(path, "spec.autoscaling") for path in unsupported(JobQueue.model_validate(after).spec))


def test_every_part_of_the_table_is_used() -> None:
    used = {max((path for path in REACHES if within(leaf.path, path)), key=len) for leaf in leaves()}
    assert set(REACHES) == used


def changed(leaf: Node) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a sample that has the field, and the same with another value in it."""
    for document in documents(SAMPLES / "everything.yaml"):
        before = distinct(document)
        after = copy.deepcopy(before)
        for holder, name in places(after, leaf.path):
            holder[name] = another(leaf, holder[name])
            return before, after
    raise AssertionError(f"no sample has {leaf.path}")


def distinct(document: dict[str, Any]) -> dict[str, Any]:
    """Return a sample with a namespace, and without fields that hide the effect of others."""
    found = copy.deepcopy(document)
    found["metadata"]["namespace"] = "team-a"
    if "disruptionBudget" in found["spec"]:
        found["spec"]["database"] |= {"maxConnectionsPerWorker": 3, "notifications": "Listen"}
        found["spec"]["disruptionBudget"]["policy"] = "Managed"
    return found


def places(document: Any, path: str) -> Iterator[tuple[Any, Any]]:
    """Yield the objects or lists that hold the field, with its name or number there."""
    first, _, rest = path.partition(".")
    name, *brackets = first.replace("[]", " []").split()
    names = list(document) if name == "*" else [name] if name in document else []
    for key in names:
        if not brackets and not rest:
            yield document, key
        elif brackets and not rest:
            yield document[key], 0
        else:
            for below in document[key] if brackets else [document[key]]:
                yield from places(below, rest)


def another(node: Node, value: Any) -> Any:
    """Return another value that the field may have."""
    if node.path in OTHERS:
        return OTHERS[node.path]
    if "enum" in node.schema:
        return next(one for one in reversed(node.schema["enum"]) if one != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if value < node.schema["maximum"] else value - 1
    if node.schema.get("x-kubernetes-int-or-string"):
        return "50%"
    return f"{value}x"


def reached(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return where a change of the resource shows."""
    old, new = JobQueue.model_validate(before), JobQueue.model_validate(after)
    found = set()
    if (old.queue, old.spec.database_part()) != (new.queue, new.spec.database_part()):
        found.add(ROW)
    pods, children = zip(built(old), built(new), strict=True)
    if pods[0] != pods[1]:
        found.add(POD)
    if children[0] != children[1]:
        found.add(CHILDREN)
    return found


def built(resource: JobQueue) -> tuple[Any, Any]:
    """Return the pods' template, and the rest of the children. Of how many workers run the controller decides."""
    with_budget = resource.model_copy(update={"spec": resource.spec.model_copy(update={"replicas": 2})})
    context = Context(uid="uid", replicas=3)
    made = deployment(resource, context=context)
    template = made["spec"].pop("template")
    return template, (made, disruption_budget(with_budget, context=context))


def within(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


def controller_code() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "controller").rglob("*.py")))
