"""The controller works with the rights of its manifests, and each of them is used: what it asks is compared with the audit log.

A missing right shows as a refusal, a surplus one as a rule that no request needs (l3).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.operator.samples import resource
from tests.operator.test_rights_manifests import CLUSTER, NAMESPACED, rules
from tests.rig.kube import controllers
from tests.rig.kube.api import Api, Body
from tests.rig.kube.audit import Access, service_account
from tests.rig.kube.cluster import Cluster, Kubectl
from tests.rig.kube.controllers import ControllerProcess
from tests.rig.kube.fixtures import StartController, StartControlPlane, make_namespace
from tests.rig.kube.kubelet import Kubelet
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

Right = tuple[str, str, str]

# What every client with credentials may do: a cluster grants it to all.
EVERYONE: frozenset[Right] = frozenset()


@dataclass(frozen=True)
class Site:
    """A namespace with everything that a JobQueue of it may refer to."""

    cluster: Cluster
    admin: Api
    namespace: str

    @property
    def kubectl(self) -> Kubectl:
        return self.cluster.kubectl(self.namespace)

    @property
    def kubelet(self) -> Kubelet:
        return Kubelet(self.admin, self.namespace)

    def condition(self, kind: str) -> str | None:
        """Return the status of a condition of the queue; None before there is one."""
        queue = self.admin.get("jobqueues", "tour", namespace=self.namespace)
        found = (queue or {}).get("status", {}).get("conditions", [])
        return next((one["status"] for one in found if one["type"] == kind), None)

    def wait(self, kind: str, status: str) -> None:
        eventually(lambda: self.condition(kind) == status, 30, what=f"{kind}={status}")

    def give_address(self, address: str) -> None:
        """Write a connection string into the Secret of the queue."""
        self.admin.patch("secrets", "db", {"stringData": {"uri": address}}, namespace=self.namespace)

    def has(self, what: str, name: str) -> bool:
        return self.admin.get(what, name, namespace=self.namespace) is not None


def queue() -> Body:
    """Return a queue whose workers' environment refers to a Secret and a ConfigMap."""
    body = resource("tour", replicas=2)
    (container,) = body["spec"]["template"]["spec"]["containers"]
    container["env"] = [
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "greeting"}}},
    ]
    return body


def tour(site: Site, database: RigDatabase) -> None:
    """Let happen what makes a controller use its rights: a queue's life from first to last, with its mishaps."""
    kubectl, kubelet = site.kubectl, site.kubelet
    kubectl("create", "secret", "generic", "db", f"--from-literal=uri={database.dsn}")
    kubectl("create", "secret", "generic", "keys", "--from-literal=token=a")
    kubectl("create", "configmap", "words", "--from-literal=greeting=hello")
    kubectl.apply(queue())
    eventually(lambda: len(kubelet.pods()) == 2, 30, what="two workers")
    for pod in kubelet.pods():
        kubelet.run(pod["metadata"]["name"])
    site.wait("Ready", "True")
    assert site.has("poddisruptionbudgets", "tour-worker")
    _meet_an_autoscaler(site)
    kubectl("scale", "jq/tour", "--replicas=1")
    eventually(lambda: not site.has("poddisruptionbudgets", "tour-worker"), 30, what="the end of the budget of one worker")
    _lose_the_database(site, database)
    kubectl("delete", "jq", "tour", "--wait=false")
    eventually(lambda: not site.has("deployments", "tour-worker"), 30, what="the end of the Deployment")


def _meet_an_autoscaler(site: Site) -> None:
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "tour-worker"}, "maxReplicas": 3}
    site.admin.create("horizontalpodautoscalers", {"metadata": {"name": "stray"}, "spec": spec}, namespace=site.namespace)
    site.kubectl("annotate", "jq/tour", "example.org/look=again")
    site.wait("AutoscalerConflict", "True")
    site.admin.delete("horizontalpodautoscalers", "stray", namespace=site.namespace)


def _lose_the_database(site: Site, database: RigDatabase) -> None:
    """Let the same happen twice and then something like it, so that an event is made, counted and replaced."""

    def lose(address: str) -> None:
        site.give_address(address)
        site.wait("DatabaseReachable", "False")
        site.give_address(database.dsn)
        site.wait("DatabaseReachable", "True")

    def told() -> Body:
        events = [one for one in site.admin.list("events", namespace=site.namespace) if one["reason"] == "DatabaseProblem"]
        assert len(events) == 1, "an event that is replaced is away for a moment"
        return events[0]

    lose("mysql://nowhere")
    first = eventually(lambda: told()["message"], 30, what="the event")
    lose("mysql://nowhere")
    eventually(lambda: told().get("series", {}).get("count", 0) > 1, 30, what="the event with its count")
    lose("postgresql://127.0.0.1:1/none")
    eventually(lambda: told()["message"] != first, 30, what="another event in its place")


def compare(asked: list[Access], folder: Path) -> None:
    """Compare what was asked with what is granted."""
    refused = {(one.right, one.namespace, one.name) for one in asked if one.refused}
    assert not refused, f"rights that the controller lacks: {sorted(refused)}"
    granted: set[Right] = {
        (group, resource, verb)
        for rule in rules(folder, of="tailrace-controller")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    used = {one.right for one in asked if one.resource}
    # who applies what is not there yet needs the right to create it too
    used |= {(group, resource, "create") for group, resource, _ in {one.right for one in asked if one.status == 201}}
    assert not granted - used, f"rights that nothing needs: {sorted(granted - used)}"
    assert not used - granted - EVERYONE, f"rights from elsewhere: {sorted(used - granted)}"


def account(namespace: str) -> str:
    return service_account(namespace, controllers.ACCOUNT)


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_rights_in_one_namespace_are_enough_and_none_is_too_many(
    control_plane: Cluster, kube_admin: Api, kube_namespace: str, controller_process: StartController, database: RigDatabase
) -> None:
    """l3."""
    mark = control_plane.audit.mark()
    controller_process().wait_ready()
    tour(Site(control_plane, kube_admin, kube_namespace), database)
    asked = control_plane.audit.records(user=account(kube_namespace), since=mark)
    assert {one.namespace for one in asked if one.namespace} == {kube_namespace}
    compare(asked, NAMESPACED)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_rights_in_the_cluster_are_enough_and_none_is_too_many(
    private_control_plane: StartControlPlane, tmp_path: Path, database: RigDatabase
) -> None:
    """l3."""
    cluster = private_control_plane(controller_manager=True).cluster
    controllers.grant_in_cluster(cluster)
    controllers.wait_for_rights(cluster.kubectl("tailrace-system"), "tailrace-system")
    with _admin(cluster) as admin, _controller(cluster, tmp_path) as controller:
        make_namespace(admin, "team-b")
        controller.wait_ready()
        tour(Site(cluster, admin, "team-b"), database)
        asked = cluster.audit.records(user=account("tailrace-system"))
    compare(asked, CLUSTER)


@contextlib.contextmanager
def _admin(cluster: Cluster) -> Iterator[Api]:
    api = cluster.api()
    try:
        yield api
    finally:
        api.close()


@contextlib.contextmanager
def _controller(cluster: Cluster, folder: Path) -> Iterator[ControllerProcess]:
    kubeconfig = cluster.kubeconfig_of("tailrace-system", controllers.ACCOUNT, folder / "kubeconfig")
    controller = controllers.start_controller(kubeconfig=kubeconfig, output=folder / "controller.log")
    try:
        yield controller
    finally:
        controller.reap()
