"""The rig of the operator's tests: a real control plane, what stands in for a kubelet, faults on the way, and a clean end."""

from __future__ import annotations

import json
import secrets
import signal
import sys
from pathlib import Path

import pytest

from tests.rig.kube import binaries, building, keeper
from tests.rig.kube.api import Api, ApiError, Body, path
from tests.rig.kube.audit import AuditLog, service_account
from tests.rig.kube.cluster import Cluster, Kubectl
from tests.rig.kube.fault_proxy import FaultProxy
from tests.rig.kube.faults import Fault
from tests.rig.kube.fixtures import StartControlPlane, WriteKubeconfig
from tests.rig.kube.kubelet import Kubelet
from tests.rig.processes import StartProcess
from tests.rig.waiting import eventually

HOLD = """
import json, sys, time
from pathlib import Path
from tests.rig.kube import keeper
with keeper.shared(sys.argv[1], Path(sys.argv[2])) as cluster:
    print(json.dumps({"event": "up", "folder": str(cluster.folder)}))
    time.sleep(80)
"""
KILL = "import os, signal, sys; os.kill(int(sys.argv[1]), signal.SIGKILL)"


def pod_template(name: str) -> Body:
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "worker", "image": "example.org/worker:1", "securityContext": restricted}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


def deployment(name: str, replicas: int) -> Body:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod_template(name)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_clients_are_told_the_pinned_version(kubectl: Kubectl) -> None:
    assert json.loads(kubectl("get", "--raw", "/version"))["gitVersion"] == f"v{building.kubernetes_version()}"


def test_a_new_control_plane_explains_our_resource_at_once(private_control_plane: StartControlPlane) -> None:
    """What kubectl explains is published later than what it serves."""
    assert "JobQueue" in private_control_plane().cluster.kubectl()("explain", "jobqueue")


def test_our_resource_is_served(kubectl: Kubectl, kube_admin: Api, kube_namespace: str) -> None:
    assert kubectl.json("get", "jq")["items"] == kube_admin.list("jobqueues", namespace=kube_namespace) == []


def test_namespaces_refuse_pods_that_are_not_restricted(kube_admin: Api, kube_namespace: str) -> None:
    lax = {"metadata": {"name": "lax"}, "spec": {"containers": [{"name": "worker", "image": "example.org/worker:1"}]}}
    with pytest.raises(ApiError, match="violates PodSecurity") as refused:
        kube_admin.create("pods", lax, namespace=kube_namespace)
    assert refused.value.status == 403


def test_a_service_account_has_the_rights_it_was_given(
    control_plane: Cluster, kubectl: Kubectl, kube_namespace: str, service_account_kubeconfig: WriteKubeconfig, audit: AuditLog
) -> None:
    kubeconfig, mark = service_account_kubeconfig(kube_namespace, "reader"), audit.mark()
    reader = control_plane.kubectl(kube_namespace, kubeconfig=kubeconfig)
    assert "cannot list resource" in reader.refused("get", "pods")
    kubectl("create", "role", "reader", "--verb=list", "--resource=pods")
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={kube_namespace}:reader")
    eventually(lambda: reader.json("get", "pods")["items"] == [], what="the right to list pods")
    asked = audit.records(user=service_account(kube_namespace, "reader"), namespace=kube_namespace, since=mark)
    assert {one.right for one in asked} == {("", "pods", "list")}
    assert [asked[0].refused, asked[-1].refused] == [True, False]
    assert not audit.writes(user=service_account(kube_namespace, "reader"), since=mark)


def test_pods_run_crash_and_end_as_a_kubelet_tells(kubectl: Kubectl, kube_admin: Api, kubelet: Kubelet) -> None:
    kubectl.apply(deployment("web", 2))
    eventually(lambda: len(kubelet.pods("app=web")) == 2, 20, what="two pods")
    first, second = (pod["metadata"]["name"] for pod in kubelet.pods("app=web"))
    kubelet.run(first)
    kubelet.run(second)
    kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    restarted = kubelet.oom_kill(first, message="worker-7")["status"]["containerStatuses"][0]
    assert restarted["restartCount"] == 1
    assert restarted["lastState"]["terminated"]["message"] == "worker-7"
    kubelet.delete(second)
    ending = kubelet.pod(second)
    assert ending["metadata"]["deletionTimestamp"]
    where = {"namespace": kubelet.namespace, "version": ending["metadata"]["resourceVersion"], "seconds": 60}
    with kube_admin.watch("pods", **where) as events:
        kubelet.end(second, message="worker-8", exit_code=1)
        deleted = next(event["object"] for event in events if event["type"] == "DELETED")
    assert deleted["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "worker-8"
    eventually(lambda: len(kubelet.pods("app=web")) == 2, 20, what="a pod in its place")


def test_deleting_an_owner_collects_what_it_owns(kubectl: Kubectl, kubelet: Kubelet) -> None:
    kubectl.apply(deployment("web", 1))
    eventually(lambda: kubelet.pods("app=web"), 20, what="a pod")
    kubectl("delete", "deployment", "web", "--wait=false")
    eventually(lambda: not kubelet.pods("app=web"), 20, what="the end of the pod")


def test_the_fault_proxy_refuses_delays_and_loses_answers(
    control_plane: Cluster, kube_namespace: str, kube_admin: Api, through: Api, fault_proxy: FaultProxy
) -> None:
    named = {"namespace": kube_namespace}
    busy = fault_proxy.fault(Fault(method="GET", path="/configmaps", status=429, retry_after=1, times=1))
    with pytest.raises(ApiError, match="429"):
        through.list("configmaps", **named)
    assert busy.met == 1
    assert through.list("configmaps", **named)
    fault_proxy.fault(Fault(method="POST", cut="after", times=1))
    with pytest.raises(Exception, match="disconnected|reset|closed"):
        through.create("configmaps", {"metadata": {"name": "made"}}, **named)
    assert kube_admin.get("configmaps", "made", **named)
    fault_proxy.refuse()
    with pytest.raises(Exception, match="disconnected|reset|closed|EOF"):
        through.list("configmaps", **named)
    fault_proxy.clear()
    assert through.list("configmaps", **named)
    assert [one.status for one in fault_proxy.requests] == [429, 200, 0, 0, 200]


def test_a_watch_falls_silent_or_is_told_that_it_is_outdated(
    kube_namespace: str, kube_admin: Api, through: Api, fault_proxy: FaultProxy
) -> None:
    version = kube_admin.ask("GET", path("configmaps", namespace=kube_namespace))["metadata"]["resourceVersion"]
    with through.watch("configmaps", namespace=kube_namespace, version=version, seconds=60) as events:
        kube_admin.create("configmaps", {"metadata": {"name": "seen"}}, namespace=kube_namespace)
        assert next(one for one in events if one["type"] == "ADDED")["object"]["metadata"]["name"] == "seen"
        fault_proxy.silence()
        kube_admin.create("configmaps", {"metadata": {"name": "unseen"}}, namespace=kube_namespace)
        fault_proxy.clear()
        assert fault_proxy.expire_watches() == 1
        told = next(events)
    assert (told["type"], told["object"]["code"]) == ("ERROR", 410)
    eventually(lambda: fault_proxy.watches == 0, what="the end of the watch")


def test_an_api_server_is_killed_and_comes_back_with_what_it_had(private_control_plane: StartControlPlane) -> None:
    plane = private_control_plane(furnished=False)
    api = plane.cluster.api()
    try:
        api.create("namespaces", {"metadata": {"name": "kept"}})
        plane.kill_api_server()
        with pytest.raises(Exception, match=r"refused|disconnected|closed"):
            api.get("namespaces", "kept")
        plane.start_api_server()
        assert api.get("namespaces", "kept")
    finally:
        api.close()


def test_a_control_plane_ends_with_the_last_that_holds_on_to_it(process: StartProcess, kube_binaries: Path) -> None:
    run = secrets.token_hex(4)
    first = process("-c", HOLD, run, str(kube_binaries))
    folder = Path(first.wait_event("up", 60)["folder"])
    second = process("-c", HOLD, run, str(kube_binaries))
    assert Path(second.wait_event("up", 60)["folder"]) == folder
    assert len(_running_in(folder)) == 3
    first.kill9()
    second.signal(signal.SIGINT)
    second.wait()
    eventually(lambda: not folder.parent.exists(), 20, what="the end of the control plane")
    assert not _running_in(folder)


def test_what_runs_for_a_killed_keeper_ends_with_it(process: StartProcess, kube_binaries: Path) -> None:
    holder = process("-c", HOLD, secrets.token_hex(4), str(kube_binaries))
    folder = Path(holder.wait_event("up", 60)["folder"])
    assert process("-c", KILL, (folder.parent / "owner").read_text()).wait() == 0
    eventually(lambda: not _running_in(folder), 20, what="the end of the processes")
    holder.kill9()  # a process that nobody has waited for still has its number

    def gone() -> bool:
        keeper.remove_left_overs()
        return not folder.parent.exists()

    eventually(gone, what="the end of the folder")


def test_a_folder_without_the_programs_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(binaries.GIVEN, str(tmp_path))
    with pytest.raises(
        building.BuildError, match="has no etcd and no kube-apiserver and no kube-controller-manager and no kubectl"
    ):
        binaries.find()


def _running_in(folder: Path) -> list[int]:
    """Return the processes whose command line names a folder."""
    if not sys.platform.startswith("linux"):
        return []
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = command.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/" in text:
            found.append(int(command.parent.name))
    return found
