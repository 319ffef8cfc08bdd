"""The life of a JobQueue: applied, looked at, changed, held, scaled, deleted, on a real control plane (operator-notes 3.2 #19).

The controller has the rights of one namespace and no others (operator-notes 3.2 #18).
"""

from __future__ import annotations

import json

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.stage import Stage, child
from tests.rig.kube.cluster import ROOT
from tests.rig.waiting import eventually

TYPES = {str(kind) for kind in ConditionType}


def test_a_resource_becomes_workers_a_budget_and_settings(stage: Stage) -> None:
    """operator-notes 3.2 #1, #2, #3: no annotation of kopf's; the status is whole, and applied under a manager of its own."""
    stage.controller()
    stage.apply(replicas=3, worker={"slots": 4}, latencyTargetSeconds=30)
    deployment = stage.wait_replicas(3)
    budget = eventually(lambda: stage.get("poddisruptionbudgets", child("jobs")), what="a budget")
    assert budget is not None
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    owner = deployment["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("JobQueue", "jobs", True)
    stage.wait_setting("worker.slots", 4)
    stage.wait_setting("latencyTargetSeconds", 30)

    queue = stage.wait_settled()
    status = queue["status"]
    assert {one["type"] for one in status["conditions"]} == TYPES
    written = {one["manager"] for one in queue["metadata"]["managedFields"] if one.get("subresource") == "status"}
    assert written == {"tailrace-controller-status"}
    assert all(one["reason"] and one["message"] for one in status["conditions"])
    assert status["database"]["address"].endswith(f"/{stage.database.name}")
    assert "finalizers" not in queue["metadata"]
    assert not [name for name in queue["metadata"].get("annotations") or {} if "kopf" in name]

    stage.run_pods(3)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    assert stage.status()["readyReplicas"] == 3
    assert stage.status()["selector"] == "app.kubernetes.io/name=tailrace-worker,tailrace.dev/queue=jobs"
    assert stage.wait_event(EventReason.CHILD_CREATED)


def test_the_example_is_served(stage: Stage) -> None:
    """`kubectl apply -f examples/webhooks/jobqueue.yaml`, as its page says."""
    stage.secret(name="webhooks-db")
    stage.controller()
    stage.kubectl("apply", f"--filename={ROOT / 'examples' / 'webhooks' / 'jobqueue.yaml'}")
    stage.wait_replicas(1, "webhooks")
    stage.run_pods(1, "webhooks")
    stage.wait(ConditionType.READY, "True", Reason.READY, name="webhooks")
    stage.wait_setting("worker.slots", 4, "webhooks")


def test_get_describe_wait_and_scale(stage: Stage) -> None:
    """What people type works: columns, events in sentences, `kubectl wait`, `kubectl scale`."""
    stage.controller()
    stage.apply(replicas=1)
    stage.run_pods(1)
    stage.kubectl("wait", "--for=condition=Ready", "jq/jobs", "--timeout=30s")
    header, line = stage.kubectl("get", "jq").splitlines()
    assert header.split()[:7] == ["NAME", "QUEUE", "STATUS", "WORKERS", "READY-JOBS", "RUNNING", "DEAD"]
    assert line.split()[:4] == ["jobs", "jobs", "Ready", "1"]
    stage.kubectl("scale", "jq/jobs", "--replicas=5")
    stage.wait_replicas(5)
    stage.wait_event(EventReason.SCALED)

    def described() -> bool:
        said = stage.kubectl("describe", "jq", "jobs")
        return "SettingsStored" in said and "workers ready" in said

    eventually(described, what="conditions in sentences")


def test_the_scale_tells_replicas_and_selector_at_once(stage: Stage) -> None:
    """An autoscaler reads them; without a selector it stops."""
    stage.controller()
    stage.apply(replicas=2)
    stage.wait_replicas(2)
    stage.wait_settled()
    where = f"/apis/tailrace.dev/v1alpha1/namespaces/{stage.namespace}/jobqueues/jobs/scale"
    found = eventually(lambda: stage.admin.ask("GET", where)["status"].get("replicas") == 2 and stage.admin.ask("GET", where))
    assert found
    assert found["status"]["selector"] == "app.kubernetes.io/name=tailrace-worker,tailrace.dev/queue=jobs"


def test_hold_keeps_the_fleet_and_hold_and_drain_ends_it(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=2)
    stage.run_pods(2)
    stage.wait(ConditionType.READY, "True", Reason.READY)

    stage.change(stopPolicy="Hold")
    stage.wait(ConditionType.READY, "True", Reason.ON_HOLD)
    row = stage.row(columns="held")
    assert row == (True,)
    assert stage.wait_replicas(2)

    stage.change(stopPolicy="HoldAndDrain")
    stage.wait_replicas(0)
    eventually(lambda: not stage.pods(), what="the pods are told to end")
    stage.finish_endings()
    stage.wait(ConditionType.READY, "True", Reason.ON_HOLD)

    stage.change(stopPolicy="None")
    stage.wait_replicas(2)
    stage.run_pods(2)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    assert stage.row(columns="held") == (False,)


def test_no_worker_wanted_is_ready(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=0)
    stage.wait(ConditionType.READY, "True", Reason.SCALED_TO_ZERO)
    assert stage.get("poddisruptionbudgets", child("jobs")) is None


def test_deleting_stops_the_workers_and_keeps_the_jobs(stage: Stage) -> None:
    """operator-notes 3.2 #6: nothing holds the deletion up."""
    stage.controller()
    stage.apply(replicas=1)
    stage.run_pods(1)
    job = stage.database.value("select id from tailrace.enqueue('jobs', 'work', '{}')")
    stage.kubectl("delete", "jq", "jobs", "--timeout=10s")
    eventually(lambda: stage.deployment() is None, what="the end of the Deployment")
    eventually(lambda: not stage.pods(), what="the pods are told to end")
    stage.finish_endings()
    assert stage.database.value("select count(*) from tailrace.job where id = %s", [job]) == 1


def test_a_namespace_can_be_deleted(stage: Stage) -> None:
    """operator-notes 3.2 #6."""
    stage.controller()
    stage.apply(replicas=1)
    stage.run_pods(1)
    stage.kubectl("delete", "namespace", stage.namespace, "--wait=false")

    def gone() -> bool:
        if stage.admin.get("namespaces", stage.namespace) is None:
            return True
        stage.finish_endings()
        return stage.get("jobqueues", "jobs") is None and not stage.kubelet.pods()

    eventually(gone, 60, what="the end of the namespace")


def test_settings_reach_the_database_and_roll_nothing(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=1)
    before = stage.wait_replicas(1)["metadata"]["generation"]
    stage.wait_settled()
    schedules = [{"name": "often", "everySeconds": 3600, "task": "report"}]
    stage.change(
        latencyTargetSeconds=5,
        exhaustedPolicy="Discard",
        jobDefaults={"priority": 7, "maxAttempts": 2},
        limits={"concurrency": 9},
        schedules=schedules,
        worker={"lease": {"durationSeconds": 30, "renewPeriodSeconds": 10}},
    )
    stage.wait_setting("limits.concurrency", 9)
    stage.wait_setting("jobDefaults.priority", 7)
    stage.wait_setting("worker.lease.durationSeconds", 30)
    stage.wait_settled()
    deployment = stage.deployment()
    assert deployment is not None
    assert deployment["metadata"]["generation"] == before
    assert stage.database.query("select name from tailrace.schedule where queue = 'jobs'") == [("often",)]


def test_another_installations_resources_are_left_alone(stage: Stage) -> None:
    stage.controller()
    stage.apply("theirs", controllerName="elsewhere.example/controller")
    stage.apply("ours")
    stage.wait_deployment(name="ours")
    assert "conditions" not in stage.status("theirs")
    assert stage.deployment("theirs") is None
    assert stage.row("theirs") is None


def test_a_spec_that_only_the_models_refuse_is_told_and_heals(stage: Stage) -> None:
    stage.controller()
    stage.apply(schedules=[{"name": "odd", "cron": "61 * * * *", "task": "report"}])
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.INVALID_SPEC)
    assert "cron" in sentence
    assert stage.wait_event(EventReason.INVALID_SPEC)
    stage.change(schedules=[{"name": "odd", "cron": "1 * * * *", "task": "report"}])
    stage.wait_deployment()
    stage.wait(ConditionType.STALLED, "False")


def test_modes_that_are_not_in_this_release_say_so(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=2, autoscaling={"mode": "HPA", "maxReplicas": 5})
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.AUTOSCALING_UNSUPPORTED)
    assert "HPA" in sentence
    assert stage.wait_replicas(2)
    stage.change(autoscaling={"mode": "Disabled", "maxReplicas": None})
    stage.wait(ConditionType.STALLED, "False")


def test_a_long_drain_is_warned_about(stage: Stage) -> None:
    """GW-05: the pod's grace covers the worker's drain, and what a node drain would cut is told."""
    stage.controller()
    stage.apply(worker={"drainTimeoutSeconds": 900})
    deployment = stage.wait_deployment()
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 915
    stage.wait_settled()
    assert stage.status()["terminationGracePeriodSeconds"] == 915
    assert "570" in stage.wait_event(EventReason.LONG_DRAIN)


def test_pausing_leaves_the_children_alone(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=1)
    stage.wait_replicas(1)
    stage.change(annotations={"tailrace.dev/reconcile": "disabled"})
    stage.wait(ConditionType.PAUSED, "True", Reason.PAUSED)
    stage.admin.patch("deployments", child("jobs"), {"spec": {"replicas": 4}}, namespace=stage.namespace)
    stage.change(replicas=2)
    stage.wait_settled()
    assert stage.wait_replicas(4)
    stage.change(annotations={"tailrace.dev/reconcile": None})
    stage.wait(ConditionType.PAUSED, "False")
    stage.wait_replicas(2)


def test_the_stored_status_has_no_secret(stage: Stage) -> None:
    """l2."""
    stage.controller()
    stage.apply()
    stage.wait_deployment()
    queue = stage.wait_settled()
    password = stage.database.dsn.split(":")[2].split("@")[0]
    assert password not in json.dumps(queue)
    assert password not in json.dumps(stage.deployment())
    assert password not in json.dumps(stage.events())
