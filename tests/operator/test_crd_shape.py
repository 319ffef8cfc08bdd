"""The custom resource keeps its own rules: all typed, described, bounded, defaulted, and every rule with a sample."""

from __future__ import annotations

import re

from docs import jobqueue
from docs.jobqueue import Node
from tailrace.demand import LimitedBy
from tailrace.names.conditions import ConditionType
from tailrace.queue_spec import read_resources, worker_container
from tests.operator.samples import INVALID, VALID, documents, expected, paths

CAMEL = re.compile(r"[A-Z][A-Za-z]*")
OPEN = {"spec.schedules[].payload", "spec.template.spec", "spec.template.spec.containers[]"}


def all_nodes(part: str = "") -> list[Node]:
    schema = jobqueue.schema()
    return list(jobqueue.nodes(Node(part, schema["properties"][part] if part else schema)))


def test_every_node_is_typed_and_described() -> None:
    described = [node for node in all_nodes() if node.path != "metadata"]  # which the server describes, and nobody else may
    silent = [node.path for node in described if not str(node.schema.get("description", "")).endswith(".")]
    untyped = [node.path for node in all_nodes() if "type" not in node.schema and "anyOf" not in node.schema]
    assert not silent, "end a description with a full stop"
    assert not untyped


def test_every_node_is_bounded() -> None:
    """What has no bound lets the server's estimate of a rule's cost grow beyond its budget."""
    bounds = {"string": "maxLength", "integer": "maximum", "array": "maxItems"}
    loose = []
    for node in all_nodes():
        word = bounds.get(node.schema.get("type", ""))
        word = "maxProperties" if "additionalProperties" in node.schema else word
        if word is not None and word not in node.schema and "enum" not in node.schema:
            loose.append(f"{node.path} needs {word}")
        if word == "maximum" and ("minimum" in node.schema) != ("maximum" in node.schema):
            loose.append(f"{node.path} needs minimum")
    assert not loose


def test_each_field_of_spec_has_a_default_or_says_what_its_absence_means() -> None:
    """A field without a default that says nothing leaves its reader to guess."""
    for node in all_nodes("spec")[1:]:
        if node.required or node.path.endswith(("[]", ".*")) or node.path == "spec.template.spec":
            continue
        said = "Absent:" in node.schema["description"]
        assert ("default" in node.schema) != said, f"{node.path}: give it a default, or describe `Absent: …`, not both"
        if node.schema.get("properties") and not said:
            assert node.schema["default"] == {}, f"{node.path}: with default {{}} its fields get theirs"


def test_names_and_types_are_of_one_kind() -> None:
    for node in all_nodes("spec"):
        kind = node.schema.get("type")
        assert kind != "number", f"{node.path}: no floats"
        assert kind != "boolean" or node.name == "suspend", f"{node.path}: give it an enum, so that a third way can be added"
        if "in seconds" in node.schema["description"] and kind == "integer":
            assert node.name.endswith("Seconds"), f"{node.path}: the unit belongs in the name"
        if kind == "string" and "enum" in node.schema and "errorTypes" not in node.path:
            assert all(CAMEL.fullmatch(value) for value in node.schema["enum"]), node.path
        steps = node.path.split(".")
        if len(steps) > 2:
            parent = steps[-2].removesuffix("[]").removesuffix("s").lower()
            assert not node.name.lower().startswith(parent), f"{node.path} repeats its parent's name"


def test_lists_say_how_they_are_merged() -> None:
    for node in all_nodes():
        if node.schema.get("type") == "array":
            assert node.schema["x-kubernetes-list-type"] in {"map", "set", "atomic"}, node.path


def test_unknown_fields_are_kept_only_where_others_judge() -> None:
    """BF-39."""
    assert {node.path for node in all_nodes() if node.schema.get("x-kubernetes-preserve-unknown-fields")} == OPEN


def test_each_rule_names_its_remedy_and_has_a_sample() -> None:
    messages = [expected(sample) for sample in INVALID]
    for path, message in jobqueue.rules(Node("", jobqueue.schema())):
        assert ":" in message, f"{path}: {message!r} names no remedy"
        assert any(message.startswith(one) for one in messages), f"{path}: no invalid sample expects {message!r}"


def test_valid_samples_are_read_by_the_models() -> None:
    assert {path.stem for path in VALID} == {"smallest", "everything", "high-throughput", "scheduled", "per-tenant"}
    for sample in VALID:
        for resource in read_resources(sample.read_text(encoding="utf-8")):
            assert worker_container(resource).args, f"{sample.name}: {resource.metadata.name}"


def test_a_sample_has_every_field() -> None:
    (sample,) = (path for path in VALID if path.stem == "everything")
    used = {path for document in documents(sample) for path in paths(document["spec"], "spec")}
    fields = {node.path for node in all_nodes("spec") if not node.path.endswith(".*")}
    assert not fields - used, "crds/samples/everything.yaml lacks these"


def test_the_columns_are_those_that_people_know() -> None:
    columns = jobqueue.version()["additionalPrinterColumns"]
    shown = [column["name"].upper() for column in columns if not column.get("priority")]
    wide = [column["name"].upper() for column in columns if column.get("priority")]
    assert shown == ["QUEUE", "STATUS", "WORKERS", "READY-JOBS", "RUNNING", "DEAD", "OLDEST", "AGE"]
    assert wide == ["MIN", "MAX", "MODE", "IMAGE"]


def test_the_status_knows_the_words_that_the_controller_uses() -> None:
    status = {node.path: node.schema for node in all_nodes("status")}
    assert {str(word) for word in LimitedBy} <= set(status["status.autoscaling.limitedBy"]["enum"])
    for kind in ConditionType:
        assert re.search(rf"\b{kind}\b", status["status.conditions"]["description"]), f"{kind} is not described"
        assert re.fullmatch(status["status.conditions[].type"]["pattern"], kind)


def test_a_jobqueue_holds_no_secret() -> None:
    """l2: passwords are in Secrets; the status has the address of a database without user and password."""
    names = {node.name.lower() for node in all_nodes()}
    assert not {name for name in names if re.search("password|token|user|credential|dsn|uri", name)}
