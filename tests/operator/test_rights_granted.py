"""The manifests of rights on a real API server: what people and the controller may do once they are applied."""

from __future__ import annotations

import pytest

from tests.operator.test_rights_manifests import CLUSTER, NAMESPACED
from tests.rig.kube.cluster import Cluster, Kubectl
from tests.rig.kube.controllers import wait_for_rights
from tests.rig.waiting import eventually


def may(kubectl: Kubectl, who: str, verb: str, what: str, *more: str) -> bool:
    """Ask the API server whether somebody may do something in the namespace."""
    try:
        return kubectl("auth", "can-i", verb, what, f"--as={who}", *more).strip() == "yes"
    except AssertionError:
        return False


@pytest.mark.parametrize(("role", "writes"), [("view", False), ("edit", True), ("admin", True)], ids=["view", "edit", "admin"])
def test_jobqueues_are_in_the_roles_of_people(role: str, writes: bool, kubectl: Kubectl, control_plane: Cluster) -> None:
    """l3: who may start pods may make JobQueues, who may only look may look at them."""
    control_plane.kubectl()("apply", "--server-side", f"--filename={CLUSTER / 'users.yaml'}")
    kubectl("create", "rolebinding", "of-a-person", f"--clusterrole={role}", "--user=alice")
    eventually(lambda: may(kubectl, "alice", "list", "jobqueues"), 20, what="the aggregated role")
    assert may(kubectl, "alice", "get", "jobqueues", "--subresource=status")
    for verb in ("create", "patch", "delete"):
        assert may(kubectl, "alice", verb, "jobqueues") == writes
    assert may(kubectl, "alice", "patch", "jobqueues", "--subresource=scale") == writes
    assert not may(kubectl, "alice", "patch", "jobqueues", "--subresource=status"), "the controller alone writes it"


def test_the_controller_of_one_namespace_has_rights_there_only(
    kube_namespace: str, kubectl: Kubectl, control_plane: Cluster
) -> None:
    """l3: the manifests are applied as deploy/rbac/README.md says."""
    manifests = "".join(path.read_text(encoding="utf-8") for path in sorted(NAMESPACED.glob("*.yaml")))
    kubectl.apply(manifests.replace("team-a", kube_namespace))
    controller = f"system:serviceaccount:{kube_namespace}:tailrace-controller"
    wait_for_rights(kubectl, kube_namespace)
    for verb, what in (
        ("watch", "jobqueues"),
        ("patch", "deployments.apps"),
        ("get", "secrets"),
        ("create", "events.events.k8s.io"),
        ("create", "leases.coordination.k8s.io"),
        ("update", "leases.coordination.k8s.io/tailrace-controller"),
        ("get", f"namespaces/{kube_namespace}"),
    ):
        assert may(kubectl, controller, verb, what), f"{verb} {what}"
    assert may(kubectl, controller, "patch", "jobqueues", "--subresource=status")
    for verb, what in (
        ("list", "secrets"),
        ("watch", "secrets"),
        ("patch", "jobqueues"),
        ("delete", "deployments.apps"),
        ("delete", "pods"),
        ("create", "pods"),
        ("update", "leases.coordination.k8s.io/another"),
        ("get", "namespaces/kube-system"),
        ("create", "rolebindings.rbac.authorization.k8s.io"),
        ("create", "serviceaccounts"),
    ):
        assert not may(kubectl, controller, verb, what), f"{verb} {what}"
    elsewhere = control_plane.kubectl("default")
    assert not may(elsewhere, controller, "get", "secrets")
    assert not may(elsewhere, controller, "list", "jobqueues")


def test_the_manifests_for_a_cluster_are_valid(control_plane: Cluster) -> None:
    """What a server would say of them; the namespace of some of them is not there before they are applied for good."""
    kubectl = control_plane.kubectl()
    for name in ("controller", "secrets", "users"):
        kubectl("apply", "--server-side", "--dry-run=server", f"--filename={CLUSTER / name}.yaml")
    said = kubectl("apply", "--dry-run=client", f"--filename={CLUSTER}")
    assert "serviceaccount/tailrace-controller" in said
    assert "role.rbac.authorization.k8s.io/tailrace-controller-lease" in said
