"""What tests of the operator ask for: a control plane, a namespace of their own, kubectl, tokens, a kubelet, faults.

The programs are found or built after the collection, before the first test and its time limit.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.rig.kube import binaries
from tests.rig.kube.building import BuildError
from tests.rig.waiting import eventually

if TYPE_CHECKING:
    from tests.rig.kube.api import Api
    from tests.rig.kube.audit import AuditLog
    from tests.rig.kube.cluster import Cluster, Kubectl
    from tests.rig.kube.control_plane import ControlPlane
    from tests.rig.kube.controllers import ControllerProcess
    from tests.rig.kube.fault_proxy import FaultProxy
    from tests.rig.kube.kubelet import Kubelet

_PROBLEM = pytest.StashKey[BuildError]()
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


class WriteKubeconfig(Protocol):
    """The fixture `service_account_kubeconfig`."""

    def __call__(self, namespace: str, name: str, *, cluster: Cluster | None = None, url: str | None = None) -> Path:
        """Write a kubeconfig with a token of a service account (made if need be), perhaps for another cluster or a proxy."""


class StartControlPlane(Protocol):
    """The fixture `private_control_plane`."""

    def __call__(
        self,
        *,
        controller_manager: bool = False,
        furnished: bool = True,
        api_server_flags: tuple[str, ...] = (),
        controller_manager_flags: tuple[str, ...] = (),
    ) -> ControlPlane:
        """Start a control plane of the test's own, with our CRD unless it is to be bare."""


class StartController(Protocol):
    """The fixture `controller_process`."""

    def __call__(self, *arguments: str, url: str | None = None, env: Mapping[str, str] | None = None) -> ControllerProcess:
        """Start `tailrace controller` for the test's namespace, perhaps through a fault proxy's `url`."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build the programs when a test needs them; what is said of it goes past pytest's capture."""
    if session.config.option.collectonly or not any("kube_binaries" in _fixtures(item) for item in session.items):
        return

    def say(line: str) -> None:
        print(f"Kubernetes for the tests: {line}", file=sys.__stderr__, flush=True)

    try:
        binaries.ensure(say=say)
    except BuildError as error:  # each test says it: a worker of pytest-xdist that stops here is not heard
        session.config.stash[_PROBLEM] = error


@pytest.fixture(scope="session")
def kube_binaries(pytestconfig: pytest.Config) -> Path:
    """The folder with etcd, kube-apiserver, kube-controller-manager and kubectl."""
    problem = pytestconfig.stash.get(_PROBLEM, None)
    if problem is not None:
        raise problem
    return binaries.ensure(say=print)


@pytest.fixture(scope="session")
def control_plane(kube_binaries: Path, run_name: str) -> Iterator[Cluster]:
    """The control plane of this run, with the controller manager and our CRD; there is no kubelet (see `kubelet`)."""
    from tests.rig.kube import keeper

    with keeper.shared(run_name, kube_binaries) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def run_name() -> str:
    """What names this run: the same in all processes of pytest-xdist."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(8))[:16]


@pytest.fixture
def private_control_plane(kube_binaries: Path) -> Iterator[StartControlPlane]:
    """Start control planes that a test may stop, kill and pause; without a controller manager unless asked for."""
    from tests.rig.kube import keeper
    from tests.rig.kube.control_plane import ControlPlane, Options

    started: list[ControlPlane] = []

    def start(**options: object) -> ControlPlane:
        name = f"{keeper.PREFIX}{os.getuid()}-private-{secrets.token_hex(6)}"
        folder = keeper.own(Path(tempfile.gettempdir()) / name)
        started.append(ControlPlane(folder, kube_binaries, options=Options(**{"controller_manager": False, **options})))  # type: ignore[arg-type]
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="session")
def kube_admin(control_plane: Cluster) -> Iterator[Api]:
    """A client with the rights of the administrator."""
    api = control_plane.api()
    yield api
    api.close()


@pytest.fixture
def kube_namespace(kube_admin: Api) -> Iterator[str]:
    """A namespace of the test's own, which refuses pods that are not restricted; its end is not waited for."""
    name = f"t-{secrets.token_hex(5)}"
    make_namespace(kube_admin, name)
    yield name
    kube_admin.delete("namespaces", name)


@pytest.fixture
def kubectl(control_plane: Cluster, kube_namespace: str) -> Kubectl:
    """The real kubectl in the test's namespace, as administrator."""
    return control_plane.kubectl(kube_namespace)


@pytest.fixture
def service_account_kubeconfig(control_plane: Cluster, tmp_path: Path) -> WriteKubeconfig:
    """Write kubeconfigs with real tokens of service accounts; rights are what the test gives them."""

    def write(namespace: str, name: str, *, cluster: Cluster | None = None, url: str | None = None) -> Path:
        file = tmp_path / f"kubeconfig-{namespace}-{name}-{secrets.token_hex(3)}"
        return (cluster or control_plane).kubeconfig_of(namespace, name, file, url=url)

    return write


@pytest.fixture
def kubelet(kube_admin: Api, kube_namespace: str) -> Kubelet:
    """Write the status of the namespace's pods as a kubelet would."""
    from tests.rig.kube.kubelet import Kubelet

    return Kubelet(kube_admin, kube_namespace)


@pytest.fixture
def audit(control_plane: Cluster) -> AuditLog:
    """What is asked of the API server, and by whom."""
    return control_plane.audit


@pytest.fixture
def fault_proxy(control_plane: Cluster) -> Iterator[FaultProxy]:
    """A way to the API server that can be slow, refusing, silent, cut: give its `url` to a kubeconfig with a token."""
    from tests.rig.kube.fault_proxy import fault_proxy_to

    with fault_proxy_to(control_plane) as proxy:
        yield proxy


@pytest.fixture
def controller_process(
    control_plane: Cluster, kube_namespace: str, service_account_kubeconfig: WriteKubeconfig, tmp_path: Path
) -> Iterator[StartController]:
    """Start controllers as their service account with the rights of `deploy/rbac/namespaced`; reaped after the test."""
    from tests.rig.kube import controllers

    controllers.grant_in_namespace(control_plane, kube_namespace)
    started: list[ControllerProcess] = []

    def start(*arguments: str, url: str | None = None, env: Mapping[str, str] | None = None) -> ControllerProcess:
        kubeconfig = service_account_kubeconfig(kube_namespace, controllers.ACCOUNT, url=url)
        output = tmp_path / f"controller-{len(started)}.log"
        settings = {"TAILRACE_WATCH_NAMESPACES": kube_namespace, **(env or {})}
        started.append(controllers.start_controller(*arguments, kubeconfig=kubeconfig, output=output, env=settings))
        return started[-1]

    yield start
    for one in started:
        one.reap()


def make_namespace(api: Api, name: str) -> None:
    """Make a namespace and wait for what two controllers put into it; without the service account no pod is made."""
    api.create("namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    for resource, expected in (("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")):
        eventually(lambda: api.get(resource, expected, namespace=name), 20, what=f"{expected} of {name}")  # noqa: B023 - awaited


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))
