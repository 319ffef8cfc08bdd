"""What the tests of the operator share beyond the rig."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from tests.operator.stage import Stage
from tests.rig.kube.api import Api
from tests.rig.kube.cluster import Cluster
from tests.rig.kube.fault_proxy import FaultProxy
from tests.rig.kube.fixtures import StartController
from tests.rig.servers import RigDatabase


@pytest.fixture
def through(control_plane: Cluster, kube_admin: Api, kube_namespace: str, fault_proxy: FaultProxy) -> Iterator[Api]:
    """A client that goes through the fault proxy, with every right in the test's namespace."""
    token = control_plane.token(kube_namespace, "through")
    subject = {"kind": "ServiceAccount", "name": "through", "namespace": kube_namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    kube_admin.create(
        "rolebindings", {"metadata": {"name": "through"}, "roleRef": role, "subjects": [subject]}, namespace=kube_namespace
    )
    api = Api(fault_proxy.url, ssl.create_default_context(cafile=str(control_plane.ca)), token=token)
    yield api
    api.close()


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
