"""The client on a real API server: what answers mean, the fence, deadlines, and that a write is never sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import InvalidOption
from tailrace_controller.kube import Kube, KubeConflict, KubeMissing, KubeRefused, KubeUnavailable, NotLeading, Place
from tailrace_controller.kube.kinds import CONFIGMAP, DEPLOYMENT, EVENT, JOBQUEUE, SECRET, Kind
from tests.rig.kube.cluster import Cluster
from tests.rig.kube.fault_proxy import FaultProxy
from tests.rig.kube.faults import Fault
from tests.rig.kube.fixtures import WriteKubeconfig

MANAGER = "test"


@pytest.fixture
async def kube(control_plane: Cluster) -> AsyncIterator[Kube]:
    made = Kube(Place.find(kubeconfig=control_plane.kubeconfig))
    yield made
    made.close()


def config_map(namespace: str, name: str = "one", **data: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "data": data}


async def test_objects_are_written_and_read_as_dictionaries(kube: Kube, kube_namespace: str) -> None:
    made = await kube.create(CONFIGMAP, config_map(kube_namespace, a="1"))
    assert (await kube.get(CONFIGMAP, namespace=kube_namespace, name="one") or {})["data"] == {"a": "1"}
    with pytest.raises(KubeConflict) as twice:
        await kube.create(CONFIGMAP, config_map(kube_namespace, a="2"))
    assert (twice.value.status, twice.value.word) == (409, "AlreadyExists")
    assert 'configmaps "one" already exists' in str(twice.value)

    patched = await kube.patch(CONFIGMAP, namespace=kube_namespace, name="one", body={"data": {"b": "2"}})
    assert patched["data"] == {"a": "1", "b": "2"}
    with pytest.raises(KubeConflict) as old:
        await kube.replace(CONFIGMAP, {**made, "data": {"c": "3"}})
    assert old.value.word == "Conflict"
    assert (await kube.replace(CONFIGMAP, {**patched, "data": {"c": "3"}}))["data"] == {"c": "3"}


async def test_apply_owns_fields_and_names_the_version_it_was_worked_out_from(kube: Kube, kube_namespace: str) -> None:
    """A controller that slept rolls nothing back (operator.md 2)."""
    first = await kube.apply(CONFIGMAP, config_map(kube_namespace, a="1"), manager=MANAGER)
    again = await kube.apply(CONFIGMAP, config_map(kube_namespace, a="1"), manager=MANAGER)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    with pytest.raises(KubeConflict) as owned:
        await kube.apply(CONFIGMAP, config_map(kube_namespace, a="2"), manager="other")
    assert MANAGER in str(owned.value)
    await kube.apply(CONFIGMAP, config_map(kube_namespace, a="2"), manager="other", force=True)

    late = config_map(kube_namespace, a="3")
    late["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"]
    with pytest.raises(KubeConflict):
        await kube.apply(CONFIGMAP, late, manager=MANAGER, force=True)


async def test_a_dry_run_tells_of_mistyped_fields_and_changes_nothing(kube: Kube, kube_namespace: str) -> None:
    wrong = {**config_map(kube_namespace, a="1"), "date": {"a": "1"}}
    with pytest.raises(KubeRefused, match=r"\.date: field not declared in schema"):  # said with status 500
        await kube.apply(CONFIGMAP, wrong, manager=MANAGER, dry_run=True)
    await kube.apply(CONFIGMAP, config_map(kube_namespace, a="1"), manager=MANAGER, dry_run=True)
    assert await kube.get(CONFIGMAP, namespace=kube_namespace, name="one") is None


async def test_lists_come_page_by_page_and_by_label(kube: Kube, kube_namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """operator-notes 3.2 #16."""
    for number in range(7):
        body = config_map(kube_namespace, f"c{number}")
        body["metadata"]["labels"] = {"even": str(number % 2 == 0).lower(), "ours": "yes"}
        await kube.create(CONFIGMAP, body)
    monkeypatch.setattr("tailrace_controller.kube.client._PAGE", 3)
    before = sum(kube.requests.values())
    found = await kube.list(CONFIGMAP, namespace=kube_namespace, labels="ours=yes")
    assert [one["metadata"]["name"] for one in found] == [f"c{n}" for n in range(7)]
    assert {(one["kind"], one["apiVersion"]) for one in found} == {("ConfigMap", "v1")}
    assert sum(kube.requests.values()) == before + 3
    assert len(await kube.list(CONFIGMAP, namespace=kube_namespace, labels="even=true")) == 4


async def test_what_is_not_there_is_none_and_its_deletion_a_success(kube: Kube, kube_namespace: str) -> None:
    assert await kube.get(SECRET, namespace=kube_namespace, name="none") is None
    await kube.delete(CONFIGMAP, namespace=kube_namespace, name="none")
    made = await kube.create(CONFIGMAP, config_map(kube_namespace))
    with pytest.raises(KubeConflict):
        await kube.delete(CONFIGMAP, namespace=kube_namespace, name="one", uid="another")
    await kube.delete(CONFIGMAP, namespace=kube_namespace, name="one", uid=made["metadata"]["uid"])
    assert await kube.get(CONFIGMAP, namespace=kube_namespace, name="one") is None
    with pytest.raises(KubeMissing):
        await kube.list(Kind("tailrace.dev", "v1alpha1", "nothings", "Nothing"), namespace=kube_namespace)
    with pytest.raises(KubeMissing):
        await kube.apply(CONFIGMAP, config_map("no-such-namespace"), manager=MANAGER)


async def test_refusals_have_the_api_servers_sentence(kube: Kube, kube_namespace: str, service_account_kubeconfig: Any) -> None:
    body = {"metadata": {"namespace": kube_namespace, "name": "bad"}, "spec": {}}
    with pytest.raises(KubeRefused, match=r"spec\.selector") as invalid:
        await kube.create(DEPLOYMENT, body)
    assert (invalid.value.status, invalid.value.retryable) == (422, False)
    nobody = Kube(Place.find(kubeconfig=service_account_kubeconfig(kube_namespace, "nobody")))
    with pytest.raises(KubeRefused, match=r"cannot list resource .jobqueues.") as forbidden:
        await nobody.list(JOBQUEUE, namespace=kube_namespace)
    assert forbidden.value.status == 403
    nobody.close()


async def test_the_fence_is_asked_right_before_each_write(control_plane: Cluster, kube_namespace: str) -> None:
    """operator.md 1: the Lease guards writes to the API server only."""
    leads = True
    kube = Kube(Place.find(kubeconfig=control_plane.kubeconfig), may_write=lambda: leads)
    await kube.create(CONFIGMAP, config_map(kube_namespace))
    leads = False
    writes: list[Callable[[], Any]] = [
        lambda: kube.create(CONFIGMAP, config_map(kube_namespace, "two")),
        lambda: kube.apply(CONFIGMAP, config_map(kube_namespace, "two"), manager=MANAGER),
        lambda: kube.patch(CONFIGMAP, namespace=kube_namespace, name="one", body={"data": {"x": "y"}}),
        lambda: kube.delete(CONFIGMAP, namespace=kube_namespace, name="one"),
    ]
    for write in writes:
        with pytest.raises(NotLeading):
            await write()
    found = await kube.list(CONFIGMAP, namespace=kube_namespace)  # reading goes on
    assert [one["metadata"]["name"] for one in found if "kube-root" not in one["metadata"]["name"]] == ["one"]
    kube.close()


@pytest.mark.parametrize(("status", "wait"), [(429, 7), (500, None), (503, 2)])
async def test_a_server_in_trouble_is_transient_and_nothing_is_repeated(
    faulty: Kube, fault_proxy: FaultProxy, kube_namespace: str, status: int, wait: int | None
) -> None:
    """operator.md 1: no client retries writes by itself; #11: no second layer of backoff."""
    fault = fault_proxy.fault(Fault(path="configmaps", status=status, retry_after=wait))
    with pytest.raises(KubeUnavailable) as caught:
        await faulty.create(CONFIGMAP, config_map(kube_namespace))
    assert (caught.value.status, caught.value.retry_after) == (status, wait)
    assert fault.met == 1
    with pytest.raises(KubeUnavailable):
        await faulty.list(CONFIGMAP, namespace=kube_namespace)
    assert fault.met == 2


async def test_an_answer_that_is_lost_leaves_the_write_to_who_asked(
    faulty: Kube, fault_proxy: FaultProxy, kube_namespace: str
) -> None:
    fault = fault_proxy.fault(Fault(method="POST", path="configmaps", cut="after"))
    with pytest.raises(KubeUnavailable, match="cannot be reached"):
        await faulty.create(CONFIGMAP, config_map(kube_namespace))
    assert fault.met == 1
    fault_proxy.clear()
    assert await faulty.get(CONFIGMAP, namespace=kube_namespace, name="one") is not None


async def test_each_call_has_a_deadline(make_faulty: Callable[..., Kube], fault_proxy: FaultProxy, kube_namespace: str) -> None:
    """operator-notes 3.2 #9: sync clients with timeouts; the event loop runs on meanwhile."""
    faulty = make_faulty(timeout=1.0)
    fault_proxy.fault(Fault(path="configmaps", delay=30.0))
    began, turns = asyncio.get_running_loop().time(), 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    turning = asyncio.create_task(turn())
    with pytest.raises(KubeUnavailable):
        await faulty.get(CONFIGMAP, namespace=kube_namespace, name="one")
    turning.cancel()
    assert asyncio.get_running_loop().time() - began < 20  # and not the 30 of the server
    assert turns > 3
    await faulty.settle(2.0)


async def test_a_list_that_changes_under_us_is_read_again_whole(
    faulty: Kube, fault_proxy: FaultProxy, kube_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await faulty.create(CONFIGMAP, config_map(kube_namespace, f"c{number}"))
    monkeypatch.setattr("tailrace_controller.kube.client._PAGE", 2)
    fault = fault_proxy.fault(Fault(path="continue=", status=410, times=1))
    found = {one["metadata"]["name"] for one in await faulty.list(CONFIGMAP, namespace=kube_namespace)}
    assert found >= {"c0", "c1", "c2"}
    assert fault.met == 1


async def test_nobody_there_is_transient(tmp_path: Path, control_plane: Cluster, fault_proxy: FaultProxy, faulty: Kube) -> None:
    fault_proxy.refuse()
    with pytest.raises(KubeUnavailable, match="cannot be reached"):
        await faulty.read("/version")
    assert faulty.requests["GET", 0] == 1


def test_a_place_that_cannot_be_found_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidOption, match="--kubeconfig or KUBECONFIG"):
        Place.find(kubeconfig=tmp_path / "none")
    broken = tmp_path / "broken"
    broken.write_text("clusters: [")
    with pytest.raises(InvalidOption, match="broken"):
        Place.find(kubeconfig=broken)


def test_the_namespace_of_the_context_is_where_we_are(
    service_account_kubeconfig: WriteKubeconfig, kube_namespace: str, control_plane: Cluster
) -> None:
    assert Place.find(kubeconfig=service_account_kubeconfig(kube_namespace, "x")).namespace == kube_namespace
    assert Place.find(kubeconfig=control_plane.kubeconfig).server == control_plane.url


def test_paths_are_those_of_the_api() -> None:
    assert JOBQUEUE.path() == "/apis/tailrace.dev/v1alpha1/jobqueues"
    assert SECRET.path(namespace="a", name="b/c") == "/api/v1/namespaces/a/secrets/b%2Fc"
    status = JOBQUEUE.path(namespace="a", name="b", subresource="status")
    assert status == "/apis/tailrace.dev/v1alpha1/namespaces/a/jobqueues/b/status"
    assert EVENT.api_version == "events.k8s.io/v1"
