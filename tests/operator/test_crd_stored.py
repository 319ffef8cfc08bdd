"""What a person applies is what a real API server keeps: whole, with the defaults of the models, in every way to apply.

No controller runs here; these tests are about the custom resource alone.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tailrace.queue_spec import JobQueue, JobQueueSpec
from tests.operator.samples import SMALLEST, VALID, documents, resource
from tests.rig.kube.api import Api
from tests.rig.kube.cluster import CRDS, Kubectl

CRD_NAME = "jobqueues.tailrace.dev"

DEFAULTS: dict[str, Any] = {
    "controllerName": "tailrace.dev/controller",
    "replicas": 1,
    "latencyTargetSeconds": 60,
    "database": {
        "schemaName": "tailrace",
        "migrationPolicy": "Automatic",
        "maxConnectionsPerWorker": 3,
        "notifications": "Listen",
    },
    "stopPolicy": "None",
    "exhaustedPolicy": "DeadLetter",
    "worker": {
        "slots": 10,
        "drainTimeoutSeconds": 30,
        "pollPeriodSeconds": 1,
        "lease": {"durationSeconds": 60, "renewPeriodSeconds": 20},
        "logging": {"format": "JSON", "level": "Info"},
    },
    "jobDefaults": {
        "priority": 0,
        "timeoutSeconds": 300,
        "maxAttempts": 5,
        "maxInterruptions": 10,
        "payloadLimitBytes": 262144,
        "backoff": {"strategy": "Exponential", "baseSeconds": 5, "maxSeconds": 900, "jitterPercent": 20},
    },
    "deadLetters": {"retentionSeconds": 7776000, "resolvedRetentionSeconds": 604800},
    "autoscaling": {
        "mode": "Disabled",
        "minReplicas": 1,
        "targetUtilizationPercent": 75,
        "behavior": {"scaleUp": {"selectPolicy": "Max"}, "scaleDown": {"selectPolicy": "Max"}},
    },
    "rollout": {"policy": "Paced", "maxSurge": "25%", "maxUnavailable": "25%", "progressDeadlineSeconds": 600},
    "disruptionBudget": {"policy": "Managed", "maxUnavailable": "25%"},
    "template": {"metadata": {}},
}


@pytest.mark.parametrize("server_side", [True, False], ids=["server-side", "client-side"])
@pytest.mark.parametrize("sample", VALID, ids=lambda path: path.stem)
def test_a_sample_is_stored_and_read_back_whole(sample: Path, server_side: bool, kubectl: Kubectl) -> None:
    """BF-39: no field is dropped, and applying the file again changes nothing."""
    kubectl.apply(sample, server_side=server_side)
    for document in documents(sample):
        stored = kubectl.json("get", "jobqueue", document["metadata"]["name"])
        assert missing(document["spec"], stored["spec"], "spec") == []
        assert missing(document["metadata"], stored["metadata"], "metadata") == []
        assert JobQueue.model_validate(stored).spec == JobQueue.model_validate(document).spec, (
            "the defaults are those of the models"
        )
        kubectl.apply(sample, server_side=server_side)
        assert kubectl.json("get", "jobqueue", document["metadata"]["name"])["metadata"]["generation"] == 1


def test_the_smallest_has_all_defaults(kubectl: Kubectl) -> None:
    kubectl.apply(SMALLEST)
    (document,) = documents(SMALLEST)
    wanted = copy.deepcopy(DEFAULTS)
    wanted["database"]["secretRef"] = document["spec"]["database"]["secretRef"]
    wanted["template"]["spec"] = document["spec"]["template"]["spec"]
    assert kubectl.json("get", "jobqueue", "smallest")["spec"] == wanted


def test_parts_that_are_given_get_the_defaults_of_the_rest(kubectl: Kubectl) -> None:
    given = {
        "tasks": [{"name": "deliver", "backoff": {}}],
        "limits": {"concurrency": 3},
        "schedules": [{"name": "tick", "everySeconds": 60, "task": "tick"}],
        "autoscaling": {"mode": "KEDA", "maxReplicas": 3, "keda": {}},
    }
    kubectl.apply(resource("partly", **given))
    spec = kubectl.json("get", "jobqueue", "partly")["spec"]
    assert spec["tasks"] == [{"name": "deliver", "backoff": DEFAULTS["jobDefaults"]["backoff"]}], "the decorator says the rest"
    assert spec["limits"] == {"concurrency": 3}
    more = {"timeZone": "UTC", "payload": {}, "overlap": "Skip", "catchUpSeconds": 0, "suspend": False}
    assert spec["schedules"] == [{"name": "tick", "everySeconds": 60, "task": "tick", **more}]
    assert spec["autoscaling"]["keda"] == {"pollingPeriodSeconds": 15, "cooldownSeconds": 300, "fallbackReplicas": 1}


def test_the_largest_is_stored(kubectl: Kubectl) -> None:
    """The rules' cost for every list at its limit is within the server's budget."""
    rates = [
        {"name": f"r{n}", "jobs": 1, "periodSeconds": 1, "tasks": [f"{n}-{m}" + "t" * 150 for m in range(100)]} for n in range(20)
    ]
    job = {"task": "t" * 200, "key": "k" * 512, "onDuplicate": "After", "payload": {"x": "y" * 1500}}
    schedules = [{"name": f"s{n}", "cron": "0 0 * * *", **job} for n in range(200)]
    tasks = [{"name": f"{n}-" + "t" * 190, "backoff": {}} for n in range(100)]
    given = {"queueName": "q" * 128, "tasks": tasks, "limits": {"rates": rates}, "schedules": schedules}
    kubectl.apply(resource("w" * 52, **given))
    stored = kubectl.json("get", "jobqueue", "w" * 52)
    assert len(spec_of(stored).schedules) == 200


def test_unknown_fields_are_dropped_where_nobody_judges_them_later(kube_admin: Api, kube_namespace: str) -> None:
    """BF-39: kubectl refuses them (an invalid sample); a client that does not ask for it is told by a warning only."""
    body = resource("loose", worker={"slots": 3, "threads": 4})
    body["spec"]["template"]["spec"] |= {
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a"]}],
        "aFieldOfTheFuture": {"x": None},
    }
    where = f"/apis/tailrace.dev/v1alpha1/namespaces/{kube_namespace}/jobqueues"
    stored = kube_admin.ask("POST", where, body=body, query={"fieldValidation": "Ignore"})
    assert "threads" not in stored["spec"]["worker"]
    assert stored["spec"]["template"]["spec"] == body["spec"]["template"]["spec"], "the pod's fields are kept, also later ones"


def test_a_null_is_kept(kubectl: Kubectl) -> None:
    """In a payload it is a value; in a template it removes a default. `kubectl apply` without --server-side drops it."""
    schedule = {"name": "tick", "everySeconds": 60, "task": "tick", "payload": {"note": None}}
    body = resource("nothing", schedules=[schedule])
    body["spec"]["template"]["spec"]["securityContext"] = {"runAsGroup": None}
    for command in (["apply", "--server-side"], ["replace", "--force"]):
        kubectl(*command, "--filename=-", stdin=body)
        spec = kubectl.json("get", "jobqueue", "nothing")["spec"]
        assert spec["schedules"][0]["payload"] == {"note": None}, command
        assert spec["template"]["spec"]["securityContext"] == {"runAsGroup": None}, command


def test_two_people_apply_parts_of_the_lists(kubectl: Kubectl) -> None:
    """Lists are merged by name under server-side apply, so nobody removes the entries of another."""
    kubectl.apply(resource("shared", tasks=[{"name": "a", "maxAttempts": 1}]))
    part = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": "shared"}}
    part["spec"] = {
        "tasks": [{"name": "b", "maxAttempts": 2}],
        "template": {"spec": {"containers": [{"name": "sidecar", "image": "registry.example/sidecar:1"}]}},
    }
    kubectl("apply", "--server-side", "--field-manager=second", "--filename=-", stdin=part)
    spec = kubectl.json("get", "jobqueue", "shared")["spec"]
    assert [task["name"] for task in spec["tasks"]] == ["a", "b"]
    assert [container["name"] for container in spec["template"]["spec"]["containers"]] == ["worker", "sidecar"]


def test_the_definition_is_accepted_as_it_is(kube_admin: Api, kubectl: Kubectl) -> None:
    found = kube_admin.get("customresourcedefinitions", CRD_NAME)
    assert found is not None
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
    said = kubectl("apply", "--server-side", "--dry-run=server", f"--filename={CRDS / f'{CRD_NAME}.yaml'}")
    assert "serverside-applied" in said


def spec_of(document: dict[str, Any]) -> JobQueueSpec:
    """Return the spec of a resource as the models read it."""
    return JobQueue.model_validate(document).spec


def missing(wanted: Any, found: Any, path: str) -> list[str]:
    """Return the paths of what is wanted and not there as it is; more may be there."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [gap for name, value in wanted.items() for gap in missing(value, found.get(name, "(nothing)"), f"{path}.{name}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [gap for number, value in enumerate(wanted) for gap in missing(value, found[number], f"{path}[{number}]")]
    return [] if wanted == found and type(wanted) is type(found) else [f"{path}: {found!r} instead of {wanted!r}"]
