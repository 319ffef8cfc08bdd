"""Deployment and PodDisruptionBudget beside the template: names, owners, replicas, budgets, fingerprints."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.names.labels import instance, watched
from tailrace_controller.desired import Context, Reference, deployment, disruption_budget, fingerprint, pod_template, references
from tests.operator.queue import job_queue, worker

CONTEXT = Context(uid="u-1", replicas=4)
KEY = b"0123456789abcdef"


def test_a_child_is_owned_by_its_queue_and_found_by_its_labels() -> None:
    made = deployment(job_queue(), context=CONTEXT)
    owner = made["metadata"]["ownerReferences"][0]
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("webhooks-worker", "team-a")
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("JobQueue", "webhooks", "u-1", True)
    assert owner["blockOwnerDeletion"] is False, "else the controller needs rights on finalizers"
    chosen = made["spec"]["selector"]["matchLabels"]
    assert chosen == {"app.kubernetes.io/name": "tailrace-worker", "tailrace.dev/queue": "webhooks"}
    assert chosen.items() <= made["spec"]["template"]["metadata"]["labels"].items()
    terms = dict(term.split("=") for term in watched("tailrace.dev/controller").split(","))
    assert terms.items() <= made["metadata"]["labels"].items()
    assert terms.items() <= made["spec"]["template"]["metadata"]["labels"].items()


def test_replicas_come_from_one_place_only() -> None:
    """h1: not from the spec, which autoscalers, people and the stop policy may overrule."""
    for mode in ({"mode": "Disabled"}, {"mode": "Operator", "maxReplicas": 9}):
        assert deployment(job_queue(replicas=7, autoscaling=mode), context=CONTEXT)["spec"]["replicas"] == 4


def test_the_rollout_is_the_deployments() -> None:
    made = deployment(job_queue(rollout={"maxSurge": 2, "maxUnavailable": "10%", "progressDeadlineSeconds": 9}), context=CONTEXT)
    assert made["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 2, "maxUnavailable": "10%"}
    assert made["spec"]["progressDeadlineSeconds"] == 9


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"replicas": 2}, "25%"),
        ({"replicas": 2, "disruptionBudget": {"maxUnavailable": 3}}, 3),
        ({"replicas": 2, "disruptionBudget": {"maxUnavailable": 0}}, 1),
        ({"replicas": 2, "disruptionBudget": {"maxUnavailable": "0%"}}, 1),
        ({"replicas": 1, "autoscaling": {"mode": "Operator", "maxReplicas": 2}}, "25%"),
        ({"replicas": 2, "disruptionBudget": {"policy": "None"}}, None),
        ({"replicas": 1}, None),
        ({"replicas": 0}, None),
        ({"replicas": 5, "autoscaling": {"mode": "Operator", "maxReplicas": 1}}, None),
    ],
)
def test_a_budget_never_stops_a_drain(spec: dict[str, Any], expected: object) -> None:
    """operator.md 3: at least one may go, and none is needed for a single worker."""
    made = disruption_budget(job_queue(**spec), context=CONTEXT)
    assert (made["spec"]["maxUnavailable"] if made is not None else None) == expected
    if made is not None:
        assert made["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow", "else an outage of the database stops every drain"
        assert (
            made["spec"]["selector"]["matchLabels"] == deployment(job_queue(), context=CONTEXT)["spec"]["selector"]["matchLabels"]
        )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tailrace.dev/controller", "controller"),
        ("tailrace.dev/team-b", "team-b"),
        ("blue", "blue"),
        ("example.com/a b", None),
        ("example.com/" + "x" * 100, None),
        ("/", None),
    ],
)
def test_an_installations_name_is_made_fit_for_a_label(name: str, expected: str | None) -> None:
    found = instance(name)
    assert found == (expected or found)
    assert 0 < len(found) <= 63
    assert found[0].isalnum()
    assert found[-1].isalnum()
    assert instance(name + "x") != found


def test_references_are_found_in_every_container() -> None:
    resource = job_queue(
        pod={
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "all"}}]}],
            "containers": [
                worker(
                    env=[
                        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    ]
                ),
                {"name": "proxy", "envFrom": [{"configMapRef": {"name": "conf"}}], "env": [{"name": "A", "value": "1"}]},
            ],
        }
    )
    found = references(pod_template(resource, context=CONTEXT))
    assert found == (
        Reference("ConfigMap", "c", "k"),
        Reference("ConfigMap", "conf"),
        Reference("Secret", "all"),
        Reference("Secret", "s", "k"),
    )
    assert references(pod_template(job_queue(), context=CONTEXT)) == (), "the connection string is a file, not a variable"


def test_a_fingerprint_changes_with_what_is_there_and_only_then() -> None:
    one, every = Reference("Secret", "s", "k"), Reference("ConfigMap", "c")
    before = fingerprint({one: b"v", every: {"a": b"1", "b": b"2"}}, key=KEY)
    assert before == fingerprint({every: {"b": b"2", "a": b"1"}, one: b"v"}, key=KEY)
    others = [
        fingerprint({one: b"w", every: {"a": b"1", "b": b"2"}}, key=KEY),
        fingerprint({one: None, every: {"a": b"1", "b": b"2"}}, key=KEY),
        fingerprint({one: b"v", every: {"a": b"1b", "": b"2"}}, key=KEY),
        fingerprint({one: b"v", every: {"a": b"12"}}, key=KEY),
        fingerprint({one: b"v"}, key=KEY),
        fingerprint({one: b"v", every: {"a": b"1", "b": b"2"}}, key=KEY[::-1]),
    ]
    assert len({before, *others}) == 1 + len(others), "also with another key: a plain hash would let readers try values"
    assert fingerprint({}, key=KEY) is None


def test_a_missing_value_is_not_the_text_that_stands_for_it() -> None:
    place = Reference("Secret", "s", "k")
    values: tuple[dict[str, bytes] | bytes | None, ...] = (None, b"absent", b"", {})
    assert len({fingerprint({place: value}, key=KEY) for value in values}) == len(values)
