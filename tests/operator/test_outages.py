"""The API server away and back, and the CRD deleted and made again, each on a control plane of the test's own (g3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.operator.stage import QUICK, Stage
from tests.rig.kube import controllers
from tests.rig.kube.cluster import CRDS
from tests.rig.kube.control_plane import ControlPlane
from tests.rig.kube.controllers import ControllerProcess
from tests.rig.kube.fixtures import StartControlPlane, make_namespace
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

NAMESPACE = "away"


class Site:
    """A control plane that may go, with a namespace and a controller."""

    def __init__(self, plane: ControlPlane, database: RigDatabase, folder: Path, *, granted: bool = True) -> None:
        self.plane, self.cluster, self._folder = plane, plane.cluster, folder
        self.admin = self.cluster.api()
        make_namespace(self.admin, NAMESPACE)
        self._granted = granted
        if granted:
            controllers.grant_in_namespace(self.cluster, NAMESPACE)
        self.stage = Stage(cluster=self.cluster, admin=self.admin, namespace=NAMESPACE, database=database)
        self.stage.secret()
        self.started: list[ControllerProcess] = []

    def start(self, env: Mapping[str, str] | None = None) -> ControllerProcess:
        """Start a controller; not waited for."""
        number = len(self.started)
        kubeconfig = self.cluster.kubeconfig
        if self._granted:
            kubeconfig = self.cluster.kubeconfig_of(NAMESPACE, controllers.ACCOUNT, self._folder / f"kubeconfig-{number}")
        settings = {
            "TAILRACE_WATCH_NAMESPACES": NAMESPACE,
            "TAILRACE_LEASE_NAMESPACE": NAMESPACE,
            **QUICK,
            "TAILRACE_REAPER_SECONDS": "1",
            **(env or {}),
        }
        output = self._folder / f"controller-{number}.log"
        self.started.append(controllers.start_controller(kubeconfig=kubeconfig, output=output, env=settings))
        return self.started[-1]

    def close(self) -> None:
        """Reap."""
        for one in self.started:
            one.reap()
        self.admin.close()


@pytest.fixture
def site(private_control_plane: StartControlPlane, database: RigDatabase, tmp_path: Path) -> Iterator[Site]:
    made = Site(private_control_plane(controller_manager=True), database, tmp_path)
    yield made
    made.close()


def leads(controller: ControllerProcess) -> bool:
    """Whether it leads; no, if it has just ended."""
    try:
        return controller.metric("tailrace_leader") == 1
    except OSError:
        return False


def reaped(controller: ControllerProcess) -> float:
    return controller.metric("tailrace_maintenance_runs_total", routine="reaper", result="ok")


def test_maintenance_goes_on_while_no_api_server_answers(site: Site) -> None:
    """operator.md 1: the Lease guards writes to the API server only; a controller that is alone keeps its databases."""
    controller = site.start().wait_ready()
    site.stage.apply()
    site.stage.wait_replicas(1)
    eventually(lambda: reaped(controller) > 0, 20, what="the reaper")
    site.plane.kill_api_server()
    eventually(lambda: controller.events("leader_lost"), 20, what="the loss of the Lease")
    before = reaped(controller)
    eventually(lambda: reaped(controller) >= before + 3, 20, what="the reaper while the API server is away")
    assert controller.get("/livez")[0] == 200
    eventually(lambda: controller.get("/readyz")[0] == 503, what="readiness gone")
    assert controller.metric("tailrace_leader") == 0

    site.plane.start_api_server()
    eventually(lambda: controller.metric("tailrace_leader") == 1, 60, what="leading again")
    site.stage.change(replicas=2)
    site.stage.wait_replicas(2, timeout=60)
    assert controller.running


def test_an_api_server_that_is_restarted_is_found_again(site: Site) -> None:
    """g3: back before the Lease is lost, so nobody else could lead: the watches are taken up where they were."""
    settings = {"TAILRACE_LEASE_SECONDS": "60", "TAILRACE_RENEW_DEADLINE_SECONDS": "55"}
    controller = site.start(settings).wait_ready()
    site.stage.apply()
    site.stage.wait_replicas(1)
    site.plane.kill_api_server()
    site.plane.start_api_server()
    site.stage.change(replicas=3)
    site.stage.wait_replicas(3, timeout=60)
    assert not controller.events("leader_lost")


def test_an_api_server_that_stands_still_is_waited_for(site: Site) -> None:
    """Connections stay open and nothing comes: each call has a deadline."""
    controller = site.start().wait_ready()
    site.plane.pause_api_server()
    eventually(lambda: controller.events("leader_lost"), 20, what="the loss of the Lease")
    site.plane.resume_api_server()
    eventually(lambda: not controller.running or leads(controller), 60, what="its part again")
    if not controller.running:  # it came back just when we asked whether it answers
        assert controller.wait() == 1
        controller = site.start().wait_ready()
    site.stage.apply()
    site.stage.wait_replicas(1, timeout=60)


def test_a_crd_that_is_deleted_and_made_again_is_noticed(site: Site) -> None:
    """g3, operator.md 9: kopf watches on what is gone; we look at what the API server serves."""
    controller = site.start({"TAILRACE_DISCOVERY_SECONDS": "1"}).wait_ready()
    site.stage.apply()
    site.stage.wait_replicas(1)
    kubectl = site.cluster.kubectl()
    kubectl("delete", "crd", "jobqueues.tailrace.dev", "--wait=true")
    eventually(lambda: controller.events("kind_missing"), 30, what="the missing kind noticed")
    assert controller.get("/livez")[0] == 200
    site.cluster.furnish()
    site.stage.apply(replicas=2)
    eventually(lambda: site.stage.status().get("conditions"), 60, what="a status on the new resource")
    assert controller.running


def test_a_controller_that_comes_before_the_crd_waits_for_it(
    private_control_plane: StartControlPlane, database: RigDatabase, tmp_path: Path
) -> None:
    site = Site(private_control_plane(controller_manager=True, furnished=False), database, tmp_path, granted=False)
    try:
        controller = site.start()
        controller.wait_event("kind_missing")
        assert CRDS.is_dir()
        site.cluster.furnish()
        controller.wait_ready()
        site.stage.apply()
        site.stage.wait_replicas(1, timeout=30)
    finally:
        site.close()
