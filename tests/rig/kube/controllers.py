"""Controllers as real processes, each with the token of its service account and no rights but those of `deploy/rbac`.

In a test a controller looks after the test's namespace only, so that several tests can share a control plane.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.rig.kube.cluster import ROOT, Cluster, Kubectl
from tests.rig.processes import WorkerProcess, clean_environment
from tests.rig.waiting import eventually

ACCOUNT = "tailrace-controller"
MANIFESTS = ROOT / "deploy" / "rbac"
_PLACEHOLDER = "team-a"

LEASE_SECONDS = 8
"""Soon enough for a test; what is left after the renewal is the time for a write, also on a machine with other work."""

SETTINGS: Mapping[str, str] = {
    "TAILRACE_LEASE_SECONDS": str(LEASE_SECONDS),
    "TAILRACE_RENEW_DEADLINE_SECONDS": "5",
    "TAILRACE_LEASE_RETRY_SECONDS": "0.3",
    "TAILRACE_SECRET_SECONDS": "1",
    "TAILRACE_DISCOVERY_SECONDS": "2",
    "TAILRACE_LOG_FORMAT": "json",
    "TAILRACE_LOG_LEVEL": "debug",
    "TAILRACE_METRICS_HOST": "127.0.0.1",
    "TAILRACE_METRICS_PORT": "0",
}


class ControllerProcess(WorkerProcess):
    """A `tailrace controller`, logging JSON: also `.get("/metrics")`, `.metric(name, …)`, `.stop()`, `.kill9()`."""

    def wait_ready(self, timeout: float = 30.0) -> ControllerProcess:
        """Wait until it leads and has taken up what there is; returns itself.

        Raises:
            AssertionError: It did not get there; the message has the output.
        """
        self.wait_event("controller_ready", timeout)
        return self


def grant_in_namespace(cluster: Cluster, namespace: str) -> None:
    """Give the controller's service account of a namespace the rights of `deploy/rbac/namespaced` there, and wait for them."""
    kubectl = cluster.kubectl(namespace)
    for file in sorted((MANIFESTS / "namespaced").glob("*.yaml")):
        kubectl("apply", "--filename=-", stdin=file.read_text(encoding="utf-8").replace(_PLACEHOLDER, namespace))
    wait_for_rights(kubectl, namespace)


def wait_for_rights(kubectl: Kubectl, namespace: str) -> None:
    """Wait until the controller's service account may do what its manifests say.

    Args:
        kubectl: Of the administrator, in the namespace of the account.
        namespace: That namespace.
    """
    for verb, resource in (("list", "jobqueues.tailrace.dev"), ("create", "leases.coordination.k8s.io")):
        wait_for_right(kubectl, f"{namespace}:{ACCOUNT}", verb, resource)


def wait_for_right(kubectl: Kubectl, account: str, verb: str, resource: str) -> None:
    """Wait until a service account may do something: the authorizer learns of new roles by a watch of its own.

    Args:
        kubectl: Of the administrator, in the namespace that it is about.
        account: Its namespace and name, with a colon between.
        verb: What it may do.
        resource: With what.
    """
    user = f"--as=system:serviceaccount:{account}"
    eventually(
        lambda: kubectl("auth", "can-i", verb, resource, user).strip() == "yes", 20, what=f"the right to {verb} {resource}"
    )


def grant_in_cluster(cluster: Cluster) -> None:
    """Apply `deploy/rbac/cluster`: only on a control plane of the test's own, since all tests would see it."""
    cluster.kubectl().run("apply", f"--filename={MANIFESTS / 'cluster'}")


def start_controller(*arguments: str, kubeconfig: Path, output: Path, env: Mapping[str, str] | None = None) -> ControllerProcess:
    """Start `tailrace controller`; the caller reaps it.

    Args:
        arguments: Of the command.
        kubeconfig: Whom it is to be, and where.
        output: Takes what it writes.
        env: Further settings.
    """
    command = [sys.executable, "-m", "tailrace_cli", "controller", *arguments]
    settings = {**SETTINGS, "TAILRACE_KUBECONFIG": str(kubeconfig), **(env or {})}
    return ControllerProcess(command, output=output, environment=clean_environment(settings))
