"""What kubectl makes of the custom resource: columns, explain, scale, wait, the category."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from docs import jobqueue
from docs.jobqueue import Node
from tests.operator.samples import resource
from tests.rig.kube.api import Api
from tests.rig.kube.cluster import Cluster, Kubectl

COLUMNS = ["QUEUE", "STATUS", "WORKERS", "READY-JOBS", "RUNNING", "DEAD", "OLDEST", "AGE"]
PARENTS = [
    node
    for node in jobqueue.nodes(Node("", jobqueue.schema()))
    if node.schema.get("properties") or node.schema.get("items", {}).get("properties")
    if not node.path.endswith("[]")
]


def condition(kind: str, reason: str, *, status: str = "True") -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": kind, "status": status, "reason": reason, "message": "A sentence.", "lastTransitionTime": now}


@pytest.fixture
def webhooks(kubectl: Kubectl, kube_admin: Api, kube_namespace: str) -> str:
    """A JobQueue with a status such as the controller writes."""
    kubectl.apply(resource("webhooks", autoscaling={"mode": "Operator", "minReplicas": 0, "maxReplicas": 20}))
    waited = (datetime.now(UTC) - timedelta(minutes=7)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {
        "observedGeneration": 1,
        "controller": {"name": "tailrace.dev/controller", "version": "1.4.0"},
        "queueName": "webhooks.v2",
        "database": {"address": "db.team-a.svc:5432/app", "schemaVersion": 12, "secretObservedTime": waited},
        "replicas": 4,
        "readyReplicas": 3,
        "selector": "app.kubernetes.io/name=tailrace-worker,tailrace.dev/queue=webhooks",
        "workerVersions": [{"version": "1.4.0", "count": 4}],
        "autoscaling": {
            "desiredReplicas": 4,
            "demand": {"flow": "1.20", "drain": "2.10", "busy": "3.40", "total": "3.40"},
            "limitedBy": "ScaleDownStabilization",
            "lastScaleTime": waited,
        },
        "jobs": {"ready": 120, "scheduled": 3400, "running": 34, "dead": 7},
        "oldestReadyTime": waited,
        "statsTime": waited,
        "conditions": [condition("Ready", "Ready"), condition("Stalled", "Ready", status="False")],
    }
    stored = kube_admin.patch("jobqueues", "webhooks", {"status": status}, namespace=kube_namespace, subresource="status")
    assert stored["status"] == status, "nothing of it is dropped"
    return "webhooks"


def test_get_shows_the_columns(webhooks: str, kubectl: Kubectl) -> None:
    head, row = kubectl("get", "jq").splitlines()
    assert re.split(r"  +", head.strip()) == ["NAME", *COLUMNS]
    *shown, oldest, _ = re.split(r"  +", row.strip())
    assert shown == [webhooks, "webhooks.v2", "Ready", "4", "120", "34", "7"]
    assert re.fullmatch(r"7m(\d+s)?", oldest), "it grows while the test runs"


def test_wide_shows_more(webhooks: str, kubectl: Kubectl) -> None:
    head, row = kubectl("get", "jq", webhooks, "--output=wide").splitlines()
    assert head.split()[-4:] == ["MIN", "MAX", "MODE", "IMAGE"]
    assert row.split()[-4:] == ["0", "20", "Operator", "registry.example/shop:1.0.0"]


def test_a_new_one_shows_that_nobody_has_looked_yet(kubectl: Kubectl) -> None:
    kubectl.apply(resource("fresh"))
    assert kubectl("get", "jq", "fresh", "--no-headers").split()[0] == "fresh"


def test_the_category_lists_them(webhooks: str, kubectl: Kubectl) -> None:
    assert f"jobqueue.tailrace.dev/{webhooks}" in kubectl("get", "tailrace", "--output=name")


def test_wait_and_describe_read_the_conditions(webhooks: str, kubectl: Kubectl) -> None:
    kubectl("wait", "--for=condition=Ready", f"jq/{webhooks}", "--timeout=10s")
    assert "A sentence." in kubectl("describe", "jq", webhooks)


def test_scale_writes_spec_and_reads_status(webhooks: str, kubectl: Kubectl, kube_admin: Api, kube_namespace: str) -> None:
    kubectl("scale", f"jq/{webhooks}", "--replicas=5")
    assert kubectl.json("get", "jq", webhooks)["spec"]["replicas"] == 5
    scale = kube_admin.ask("GET", f"/apis/tailrace.dev/v1alpha1/namespaces/{kube_namespace}/jobqueues/{webhooks}/scale")
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 4, "selector": "app.kubernetes.io/name=tailrace-worker,tailrace.dev/queue=webhooks"}


def test_scale_answers_before_anybody_has_said_how_many(kubectl: Kubectl, kube_admin: Api, kube_namespace: str) -> None:
    """Without a default for spec.replicas it would be an error of the server."""
    kubectl.apply(resource("silent"))
    scale = kube_admin.ask("GET", f"/apis/tailrace.dev/v1alpha1/namespaces/{kube_namespace}/jobqueues/silent/scale")
    assert scale["spec"] == {"replicas": 1}
    kubectl("scale", "jq/silent", "--replicas=0", "--current-replicas=1")
    assert kubectl.json("get", "jq", "silent")["spec"]["replicas"] == 0


def test_status_and_spec_are_written_apart(webhooks: str, kubectl: Kubectl, kube_admin: Api, kube_namespace: str) -> None:
    """g1: a status does not count as a change of the resource, and nobody writes it by the way."""
    before = kubectl.json("get", "jq", webhooks)
    body = {"spec": {"replicas": 9}, "status": {"replicas": 9}}
    kube_admin.patch("jobqueues", webhooks, body, namespace=kube_namespace, subresource="status")
    after = kubectl.json("get", "jq", webhooks)
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])
    kube_admin.patch("jobqueues", webhooks, {"status": {"replicas": 1}}, namespace=kube_namespace)
    assert kubectl.json("get", "jq", webhooks)["status"]["replicas"] == 9


@pytest.mark.parametrize("parent", PARENTS, ids=lambda node: node.path or "jobqueue")
def test_explain_describes_every_field(parent: Node, control_plane: Cluster) -> None:
    place = ".".join(("jobqueue", *(part.removesuffix("[]") for part in parent.path.split(".") if part)))
    said = _words(control_plane.kubectl()("explain", place))
    inside = parent.schema.get("items", parent.schema)
    for name, field in inside["properties"].items():
        assert f"{name} <" in said
        if name not in {"apiVersion", "kind", "metadata"}:  # these the server describes itself
            assert _words(field["description"]) in said, f"{place}.{name}"


def _words(text: str) -> str:
    return " ".join(text.replace("\t", " ").split())
