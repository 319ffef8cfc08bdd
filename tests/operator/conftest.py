"""What the tests of the operator share beyond the rig."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator

import pytest

from tailrace_controller.kube import Kube, Place
from tests.operator.stage import Stage
from tests.rig.kube.api import Api
from tests.rig.kube.cluster import Cluster, Kubectl
from tests.rig.kube.controllers import wait_for_right
from tests.rig.kube.fault_proxy import FaultProxy
from tests.rig.kube.fixtures import StartController, WriteKubeconfig
from tests.rig.servers import RigDatabase

MakeFaulty = Callable[..., Kube]


def _make_admin(kubectl: Kubectl, namespace: str, name: str) -> None:
    """Give a service account every right in its namespace."""
    kubectl("create", "rolebinding", name, "--clusterrole=admin", f"--serviceaccount={namespace}:{name}")
    wait_for_right(kubectl, f"{namespace}:{name}", "create", "configmaps")


@pytest.fixture
def through(control_plane: Cluster, kube_namespace: str, kubectl: Kubectl, fault_proxy: FaultProxy) -> Iterator[Api]:
    """A client that goes through the fault proxy, with every right in the test's namespace."""
    token = control_plane.token(kube_namespace, "through")
    _make_admin(kubectl, kube_namespace, "through")
    api = Api(fault_proxy.url, ssl.create_default_context(cafile=str(control_plane.ca)), token=token)
    yield api
    api.close()


@pytest.fixture
def make_faulty(
    fault_proxy: FaultProxy, service_account_kubeconfig: WriteKubeconfig, kube_namespace: str, kubectl: Kubectl
) -> Iterator[MakeFaulty]:
    """Make the controller's client: it goes through the fault proxy and may do everything in the namespace."""
    _make_admin(kubectl, kube_namespace, "faulty")
    made: list[Kube] = []

    def make(*, timeout: float = 10.0) -> Kube:
        file = service_account_kubeconfig(kube_namespace, "faulty", url=fault_proxy.url)
        made.append(Kube(Place.find(kubeconfig=file), timeout=timeout, write_timeout=timeout))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def faulty(make_faulty: MakeFaulty) -> Kube:
    """Such a client, with time for its answers."""
    return make_faulty()


@pytest.fixture
def stage(
    control_plane: Cluster,
    kube_admin: Api,
    kube_namespace: str,
    database: RigDatabase,
    controller_process: StartController,
) -> Stage:
    """A namespace with a Secret that leads to the test's database; controllers and JobQueues are the test's to start."""
    made = Stage(cluster=control_plane, admin=kube_admin, namespace=kube_namespace, database=database, start=controller_process)
    made.secret()
    return made
