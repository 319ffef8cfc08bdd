"""Children that somebody changed are put back, what others own in them stays, and what is as it should be is not written."""

from __future__ import annotations

import time

import pytest

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.stage import PATIENCE, WORKER, Stage, child
from tests.rig.kube.api import Body
from tests.rig.waiting import eventually

SOON = 30.0
"""Seconds within which a child is put back, long before a resync: Kubernetes writes it too, so several tries may be due."""
QUIET = 12.0
"""Seconds of which a busy queue must make no write."""


def foreign_deployment(name: str) -> Body:
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "main", "image": "registry.example/other:1", "securityContext": restricted}
    template = {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "other"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_drift_is_restored_and_foreign_fields_stay(stage: Stage) -> None:
    """operator-notes 3.2 #14, #15."""
    stage.controller()
    stage.apply(replicas=2)
    stage.wait_replicas(2)
    stage.wait_settled()
    stage.kubectl("rollout", "restart", f"deployment/{child('jobs')}")
    extra = {"name": "SIDE", "value": "by hand"}
    strategic = {"spec": {"template": {"spec": {"containers": [{"name": "worker", "env": [extra]}]}}}}
    path = f"/apis/apps/v1/namespaces/{stage.namespace}/deployments/{child('jobs')}"
    stage.admin.ask("PATCH", path, body=strategic, content="application/strategic-merge-patch+json")
    drift = {"spec": {"replicas": 7, "template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
    stage.admin.patch("deployments", child("jobs"), drift, namespace=stage.namespace)

    def restored(body: Body) -> bool:
        grace = body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        return bool(body["spec"]["replicas"] == 2 and grace == 45)

    body = stage.wait_deployment(restored, timeout=SOON)
    template = body["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]
    (worker,) = template["spec"]["containers"]
    assert extra in worker["env"]
    assert stage.wait_event(EventReason.DRIFT_RESTORED)


def test_labels_and_owners_of_children_are_restored(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=2)
    stage.wait_replicas(2)
    stage.wait_settled()
    lost = {"metadata": {"labels": {"app.kubernetes.io/component": None}}}
    stage.admin.patch("deployments", child("jobs"), lost, namespace=stage.namespace)
    back = lambda body: body["metadata"]["labels"].get("app.kubernetes.io/component") == "worker"  # noqa: E731
    stage.wait_deployment(back, timeout=SOON)


def test_deleted_children_come_back(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=2)
    old = stage.wait_replicas(2)["metadata"]["uid"]
    eventually(lambda: stage.get("poddisruptionbudgets", child("jobs")), what="a budget")
    stage.kubectl("delete", f"deployment/{child('jobs')}", f"pdb/{child('jobs')}", "--wait=false")
    stage.wait_deployment(lambda body: body["metadata"]["uid"] != old, timeout=SOON)
    eventually(lambda: stage.get("poddisruptionbudgets", child("jobs")), SOON, what="a budget")


def test_a_budget_follows_its_policy(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=4)
    eventually(lambda: stage.get("poddisruptionbudgets", child("jobs")), what="a budget")
    stage.change(disruptionBudget={"policy": "None"})
    eventually(lambda: stage.get("poddisruptionbudgets", child("jobs")) is None, what="the end of the budget")
    stage.change(disruptionBudget={"policy": "Managed", "maxUnavailable": 2})
    found = eventually(lambda: stage.get("poddisruptionbudgets", child("jobs")), what="a budget")
    assert found is not None
    assert found["spec"]["maxUnavailable"] == 2


@pytest.mark.timeout(180)  # moved figures may wait for 60 s, and then for the next reading
def test_what_is_as_it_should_be_is_not_written(stage: Stage) -> None:
    """g1, operator-notes 3.2 #14: no reconcile wakes the next, and figures that move write nothing each second.

    The resync is short here, so that several looks fall into the time.
    """
    controller = stage.controller(env={"TAILRACE_RESYNC_SECONDS": "10", "TAILRACE_STATISTICS_SECONDS": "1"})
    stage.apply(replicas=1, worker={"slots": 3})
    stage.run_pods(1)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    stage.database.query("select tailrace.enqueue('jobs', 'work', '{}') from generate_series(1, 5)")
    start = stage.mark()
    eventually(lambda: (stage.status().get("jobs") or {}).get("unclaimable"), 90, what="figures in the status")
    eventually(lambda: stage.writes(start), what="the audit log's record of that write")
    version = stage.must("jobqueues", "jobs")["metadata"]["resourceVersion"]
    generation = stage.must("deployments", child("jobs"))["metadata"]["generation"]
    mark, before = stage.mark(), controller.metric("tailrace_reconcile_total")
    until = time.monotonic() + QUIET
    busy = "select tailrace.enqueue('jobs', 'work', '{}')"
    eventually(lambda: stage.database.query(busy) and time.monotonic() >= until, QUIET + 5, what="time")
    assert controller.metric("tailrace_reconcile_total") > before
    assert [(one.verb, one.resource, one.subresource) for one in stage.writes(mark)] == []
    assert stage.must("jobqueues", "jobs")["metadata"]["resourceVersion"] == version
    assert stage.must("deployments", child("jobs"))["metadata"]["generation"] == generation


def test_a_foreign_annotation_wakes_nobody_and_a_spec_does(stage: Stage) -> None:
    """g1."""
    stage.controller()
    stage.apply(replicas=1)
    stage.run_pods(1)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    mark = stage.mark()
    stage.change(annotations={"example.org/note": "hello"})
    stage.change(latencyTargetSeconds=9)
    stage.wait_settled()
    assert {(one.resource, one.subresource) for one in stage.writes(mark)} <= {("jobqueues", "status"), ("events", "")}


def test_a_foreign_deployment_of_our_name_is_left_untouched(stage: Stage) -> None:
    stage.admin.create("deployments", foreign_deployment(child("jobs")), namespace=stage.namespace)
    stage.controller()
    stage.apply(replicas=3)
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.NAME_TAKEN)
    assert child("jobs") in sentence
    assert stage.wait_event(EventReason.NAME_TAKEN)
    body = stage.must("deployments", child("jobs"))
    assert body["spec"]["replicas"] == 1
    assert "ownerReferences" not in body["metadata"]
    assert not set(WORKER) & set(body["metadata"].get("labels") or {})

    stage.admin.delete("deployments", child("jobs"), namespace=stage.namespace)
    stage.wait_replicas(3)
    stage.wait(ConditionType.STALLED, "False")


def test_a_deployment_of_another_owner_is_left_untouched(stage: Stage) -> None:
    config = stage.admin.create("configmaps", {"metadata": {"name": "owner"}}, namespace=stage.namespace)
    body = foreign_deployment(child("jobs"))
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": config["metadata"]["uid"], "controller": True}
    ]
    stage.admin.create("deployments", body, namespace=stage.namespace)
    stage.controller()
    stage.apply(replicas=3)
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.NAME_TAKEN)
    assert "ConfigMap owner" in sentence
    assert stage.must("deployments", child("jobs"))["spec"]["replicas"] == 1


def test_a_child_of_an_earlier_resource_is_waited_for(stage: Stage) -> None:
    """A resource that is deleted and applied again at once gets a Deployment of its own when the old one has gone."""
    stage.controller()
    stage.apply(replicas=1)
    old = stage.wait_replicas(1)["metadata"]["uid"]
    stage.wait_settled()
    gone = {pod["metadata"]["uid"] for pod in eventually(stage.pods, what="its pod")}
    stage.kubectl("delete", "jq", "jobs", "--wait=true")
    stage.apply(replicas=1)
    stage.wait_deployment(lambda body: body["metadata"]["uid"] != old)
    eventually(lambda: not gone & {pod["metadata"]["uid"] for pod in stage.kubelet.pods()}, PATIENCE, what="the end of its pod")
    stage.run_pods(1)
    stage.wait(ConditionType.READY, "True", Reason.READY)
