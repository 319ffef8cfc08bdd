"""One writer of the replicas: whoever else decides about them does so on the JobQueue."""

from __future__ import annotations

import itertools
import threading

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.samples import resource
from tests.operator.stage import Stage, child
from tests.rig.waiting import eventually

OPERATOR = {"mode": "Operator", "minReplicas": 1, "maxReplicas": 6}


def test_mode_operator_goes_on_from_what_runs_and_from_its_status(stage: Stage) -> None:
    controller = stage.controller()
    stage.apply(replicas=3)
    stage.wait_replicas(3)
    stage.change(autoscaling=OPERATOR)
    eventually(lambda: (stage.status().get("autoscaling") or {}).get("desiredReplicas") == 3, what="desiredReplicas")
    assert stage.wait_replicas(3)
    controller.terminate()
    assert controller.wait() == 0
    stage.admin.patch("jobqueues", "jobs", {"spec": {"replicas": 1}}, namespace=stage.namespace)
    mark = stage.mark()
    stage.controller()
    stage.wait_settled()
    assert stage.wait_replicas(3)
    assert not [one for one in stage.writes(mark) if one.resource == "poddisruptionbudgets" and one.verb == "delete"]


def test_replicas_never_leave_what_is_wanted(stage: Stage) -> None:
    """h1: looks for other reasons, and another controller, write the number that stands or none."""
    controller = stage.controller()
    stage.apply(replicas=5, autoscaling=OPERATOR)
    version = stage.wait_replicas(5)["metadata"]["resourceVersion"]
    seen: list[int] = []

    def watch() -> None:
        with stage.admin.watch("deployments", namespace=stage.namespace, version=version, seconds=40) as changes:
            for change in itertools.takewhile(lambda change: change["type"] != "DELETED", changes):
                seen.append(change["object"]["spec"]["replicas"])

    watching = threading.Thread(target=watch)
    watching.start()
    stage.admin.patch("jobqueues", "jobs", {"metadata": {"labels": {"a": "b"}}}, namespace=stage.namespace)
    body = resource("jobs")["spec"]["template"]
    body["spec"]["containers"][0]["image"] = "registry.example/shop:2.0.0"
    stage.change(replicas=1, template=body)
    stage.wait_settled()
    controller.terminate()
    assert controller.wait(10) == 0
    another = stage.controller()
    eventually(lambda: another.events("reconciled"), what="its look")
    stage.change(latencyTargetSeconds=9)
    stage.wait_settled()
    stage.admin.delete("deployments", child("jobs"), namespace=stage.namespace)  # the end of the watch
    watching.join(60)
    assert len(seen) > 1
    assert set(seen) == {5}


def test_bounds_are_kept(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=1, autoscaling={**OPERATOR, "minReplicas": 2})
    stage.wait_replicas(2)
    eventually(lambda: (stage.status().get("autoscaling") or {}).get("limitedBy") == "Min", what="the reason")
    stage.change(autoscaling={"minReplicas": 4})
    stage.wait_replicas(4)
    stage.change(autoscaling={"minReplicas": 1, "maxReplicas": 3})
    stage.wait_replicas(3)


def test_scaling_by_hand_in_mode_operator_changes_nothing_and_is_told(stage: Stage) -> None:
    stage.controller()
    stage.apply(autoscaling=OPERATOR)
    stage.wait_replicas(1)
    stage.wait_settled()
    stage.kubectl("scale", "jq/jobs", "--replicas=5")
    note = stage.wait_event(EventReason.REPLICAS_IGNORED)
    assert "from 1 to 5" in note
    assert stage.wait_replicas(1)


def test_hold_and_drain_wins_over_the_mode_and_the_number_comes_back(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=1, autoscaling={**OPERATOR, "minReplicas": 2})
    stage.run_pods(2)
    stage.change(stopPolicy="HoldAndDrain")
    stage.wait_replicas(0)
    stage.finish_endings()
    assert stage.status()["autoscaling"]["desiredReplicas"] == 2
    stage.change(stopPolicy="None")
    stage.wait_replicas(2)


def test_replicas_of_the_deployment_are_written_back(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=2)
    stage.wait_replicas(2)
    stage.wait_settled()
    stage.kubectl("scale", f"deployment/{child('jobs')}", "--replicas=9")
    stage.wait_replicas(2)


def test_an_autoscaler_on_the_deployment_is_overwritten_and_told(stage: Stage) -> None:
    """h1: the HorizontalPodAutoscaler wants three; it and the controller would fight in silence."""
    stage.controller()
    stage.apply(replicas=1)
    stage.wait_replicas(1)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": child("jobs")}
    body = {"metadata": {"name": "stray"}, "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4}}
    stage.admin.create("horizontalpodautoscalers", body, namespace=stage.namespace)
    sentence = stage.wait(ConditionType.AUTOSCALER_CONFLICT, "True", Reason.AUTOSCALER_ON_DEPLOYMENT)
    assert "stray" in sentence
    assert "JobQueue jobs" in sentence
    assert stage.wait_event(EventReason.AUTOSCALER_CONFLICT)
    stage.wait_replicas(1)
    stage.admin.delete("horizontalpodautoscalers", "stray", namespace=stage.namespace)
    stage.wait(ConditionType.AUTOSCALER_CONFLICT, "False")
    stage.wait_replicas(1)


def test_an_autoscaler_on_the_jobqueue_is_no_conflict(stage: Stage) -> None:
    """It writes spec.replicas by the scale of the JobQueue."""
    stage.controller()
    stage.apply(replicas=1)
    stage.wait_replicas(1)
    target = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "JobQueue", "name": "jobs"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4, "metrics": [metric]}
    stage.admin.create("horizontalpodautoscalers", {"metadata": {"name": "fine"}, "spec": spec}, namespace=stage.namespace)
    stage.wait_replicas(2, timeout=60)
    assert stage.condition(ConditionType.AUTOSCALER_CONFLICT)["status"] == "False"
