"""What a real API server makes of the builders' bodies: takes every field, admits the pods, changes nothing the second time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace_controller.desired import Context, deployment
from tailrace_controller.observed import Autoscaling, QueueSeen
from tailrace_controller.status import status
from tests.operator.children import children, placed
from tests.operator.queue import document, job_queue, worker
from tests.operator.samples import VALID, documents
from tests.operator.scene import NOW, deployed, kstatus, observed
from tests.rig.kube.api import Api, ApiError, Body, path
from tests.rig.waiting import eventually

PLURALS = {"Deployment": "deployments", "PodDisruptionBudget": "poddisruptionbudgets"}
TAKES = [sample for sample in VALID if sample.stem != "everything"]


def apply(api: Api, body: Body, *, subresource: str = "", dry_run: bool = False, force: bool = True) -> Body:
    """Server-side apply with unknown fields refused."""
    metadata = body["metadata"]
    resource = PLURALS.get(body["kind"], "jobqueues")
    where = path(resource, metadata["name"], subresource, namespace=metadata["namespace"])
    query = {"fieldManager": "tailrace-controller", "force": str(force).lower(), "fieldValidation": "Strict"}
    if dry_run:
        query["dryRun"] = "All"
    return api.ask("PATCH", where, body=body, query=query, content="application/apply-patch+yaml")


def missing(wanted: Any, stored: Any, place: str = "") -> list[str]:
    """Return the paths of what was sent and is not stored as it was sent."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        return [one for name, value in wanted.items() for one in missing(value, stored.get(name), f"{place}.{name}")]
    if isinstance(wanted, list) and isinstance(stored, list) and len(wanted) == len(stored):
        return [one for n, (a, b) in enumerate(zip(wanted, stored, strict=True)) for one in missing(a, b, f"{place}[{n}]")]
    return [] if wanted == stored else [f"{place}: {wanted!r} became {stored!r}"]


@pytest.mark.parametrize("sample", VALID, ids=lambda one: one.stem)
def test_every_field_of_the_children_is_stored_as_it_was_sent(sample: Path, kube_admin: Api, kube_namespace: str) -> None:
    for found in documents(sample):
        resource = placed(job_queue(**fields_of(found)), kube_namespace)
        for body in children(resource, Context(uid="u-1", replicas=2, environment="abc")):
            stored = apply(kube_admin, body, dry_run=True)
            assert missing(body, stored) == []


def fields_of(found: Body) -> dict[str, Any]:
    """The arguments with which `document` makes a sample again."""
    spec, metadata = dict(found["spec"]), found["metadata"]
    template = spec.pop("template")
    return {
        "name": metadata["name"],
        "pod": template["spec"],
        "pod_metadata": template.get("metadata"),
        "annotations": metadata.get("annotations"),
        **spec,
    }


@pytest.mark.parametrize("sample", TAKES, ids=lambda one: one.stem)
def test_a_restricted_namespace_admits_the_pods(sample: Path, kube_admin: Api, kube_namespace: str) -> None:
    """operator.md 3. The namespace enforces Pod Security `restricted`; an author's own containers are his own matter."""
    for found in documents(sample):
        resource = placed(job_queue(**fields_of(found)), kube_namespace)
        template = deployment(resource, context=Context(uid="u-1", replicas=1))["spec"]["template"]
        body = {"metadata": {"name": f"{resource.metadata.name}-pod", **template["metadata"]}, "spec": template["spec"]}
        admitted = kube_admin.ask("POST", path("pods", namespace=kube_namespace), body=body, query={"dryRun": "All"})
        seconds = {
            one["key"]: one["tolerationSeconds"] for one in admitted["spec"]["tolerations"] if one.get("effect") == "NoExecute"
        }
        assert set(seconds.values()) == {30}, "the API server has put in its own 300 s"
        names = [one["name"] for one in admitted["spec"]["volumes"]]
        assert not [name for name in names if name.startswith("kube-api-access")], "a token"


def test_a_template_that_loosens_the_pods_is_refused_in_words(kube_admin: Api, kube_namespace: str) -> None:
    loose = worker(securityContext={"allowPrivilegeEscalation": True})
    resource = placed(job_queue(pod={"containers": [loose]}), kube_namespace)
    template = deployment(resource, context=Context(uid="u-1", replicas=1))["spec"]["template"]
    body = {"metadata": {"name": "loose", **template["metadata"]}, "spec": template["spec"]}
    with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
        kube_admin.create("pods", body, namespace=kube_namespace)


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        ({"containers": [worker(image="")]}, r"spec\.template\.spec\.containers\[0\]\.image: Required value"),
        ({"containers": [worker(resources={"limits": {"memory": "much"}})]}, "quantities must match"),
        ({"containers": [worker(imagePullPolicy="Sometimes")]}, "imagePullPolicy: Unsupported value"),
        ({"containers": [worker(img="typo")]}, 'field not declared in schema|unknown field "spec.template.spec.containers'),
        (
            {"containers": [worker()], "volumes": [{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}]},
            "more than 1 volume type",
        ),
        ({"containers": [worker(volumeMounts=[{"name": "no", "mountPath": "/a"}])]}, 'volumeMounts\\[1\\].name: Not found: "no"'),
    ],
)
def test_the_api_server_says_what_is_wrong_with_a_template(
    pod: dict[str, Any], sentence: str, kube_admin: Api, kube_namespace: str
) -> None:
    """operator.md 3: validated by a dry-run; its sentence is what the status shows."""
    body = deployment(placed(job_queue(pod=pod), kube_namespace), context=Context(uid="u-1", replicas=1))
    with pytest.raises(ApiError, match=sentence):
        apply(kube_admin, body, dry_run=True)


def test_applying_the_same_again_writes_nothing_and_keeps_what_is_not_ours(kube_admin: Api, kube_namespace: str) -> None:
    """operator.md 2: an unchanged reconcile writes nothing; foreign fields are kept."""
    queue = kube_admin.create("jobqueues", {**document(replicas=2), "metadata": {"name": "webhooks"}}, namespace=kube_namespace)
    context = Context(uid=queue["metadata"]["uid"], replicas=2)
    bodies = children(placed(job_queue(replicas=2), kube_namespace), context)
    assert [body["kind"] for body in bodies] == ["Deployment", "PodDisruptionBudget"]
    for body in bodies:
        apply(kube_admin, body)
    eventually(
        lambda: (
            (kube_admin.get("deployments", "webhooks-worker", namespace=kube_namespace) or {}).get("status", {}).get("replicas")
        ),
        20,
        what="the Deployment is looked at",
    )
    restarted = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
    kube_admin.patch("deployments", "webhooks-worker", restarted, namespace=kube_namespace)
    for body in bodies:
        before = kube_admin.get(PLURALS[body["kind"]], "webhooks-worker", namespace=kube_namespace)
        after = apply(kube_admin, body)
        assert before is not None
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
    kept = kube_admin.get("deployments", "webhooks-worker", namespace=kube_namespace)
    assert kept is not None
    assert "kubectl.kubernetes.io/restartedAt" in kept["spec"]["template"]["metadata"]["annotations"]


def test_the_deployment_makes_restricted_pods(kube_admin: Api, kube_namespace: str) -> None:
    """The real controller-manager makes them in a namespace that enforces `restricted`."""
    queue = kube_admin.create("jobqueues", {**document(), "metadata": {"name": "webhooks"}}, namespace=kube_namespace)
    context = Context(uid=queue["metadata"]["uid"], replicas=2)
    apply(kube_admin, deployment(placed(job_queue(), kube_namespace), context=context))

    def pods() -> list[Body]:
        made = kube_admin.list("pods", namespace=kube_namespace, labels="tailrace.dev/queue=webhooks")
        return made if len(made) == 2 else []

    found = eventually(pods, 30, what="two pods")
    assert all(one["spec"]["securityContext"]["runAsNonRoot"] for one in found)
    assert all(one["metadata"]["labels"]["pod-template-hash"] for one in found)


def test_a_status_with_every_field_is_stored_and_written_once(kube_admin: Api, kube_namespace: str) -> None:
    scaling: dict[str, Any] = {"autoscaling": {"mode": "Operator", "maxReplicas": 9}}
    created = kube_admin.create("jobqueues", {**document(**scaling), "metadata": {"name": "webhooks"}}, namespace=kube_namespace)
    seen = observed(
        spec=scaling,
        queue=QueueSeen(
            counts={"ready": 1}, stats_time=NOW, oldest_ready_time=NOW, oldest_dead_letter_time=NOW, worker_versions={"1.4.0": 4}
        ),
        autoscaling=Autoscaling(
            desired_replicas=4,
            demand={"flow": 1.2, "drain": 0, "busy": 3.4, "total": 3.4},
            last_scale_time=NOW,
            next_wake_time=NOW,
        ),
        deployment=deployed(ready=3),
    )
    body = {
        "apiVersion": created["apiVersion"],
        "kind": "JobQueue",
        "metadata": {"name": "webhooks", "namespace": kube_namespace},
        "status": status(seen),
    }
    first = apply(kube_admin, body, subresource="status")
    assert missing(body["status"], first["status"]) == []
    again = apply(kube_admin, body, subresource="status")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    scale = kube_admin.ask("GET", path("jobqueues", "webhooks", "scale", namespace=kube_namespace))
    assert scale["status"] == {"replicas": 4, "selector": body["status"]["selector"]}


def test_a_new_resource_is_not_taken_for_a_finished_one(kube_admin: Api, kube_namespace: str) -> None:
    """Helm, Flux and Argo CD hold one without any status to be done; seen with `helm install --wait` of Helm 4.3."""
    created = kube_admin.create("jobqueues", {**document(), "metadata": {"name": "webhooks"}}, namespace=kube_namespace)
    assert created["status"] == {"observedGeneration": -1}
    assert kstatus({"conditions": [], **created["status"]}, created["metadata"]["generation"]) == "InProgress"
    assert status(observed(raw={"status": created["status"]})) == status(observed()), "nothing of it is kept"
