"""Writes of children on a real API server: nothing of others is taken, nothing old is written, nothing is written twice."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tailrace.queue_spec import JobQueue
from tailrace_controller.act import Children, Put, stranger
from tailrace_controller.desired import Context, deployment
from tailrace_controller.kube import Kube, KubeConflict, KubeRefused, Place
from tailrace_controller.kube.kinds import DEPLOYMENT
from tests.operator.samples import resource
from tests.rig.kube.api import Api
from tests.rig.kube.cluster import Cluster
from tests.rig.waiting import aeventually

NAME = "jobs-worker"
MANAGER = "tailrace-controller"


@dataclasses.dataclass
class Desk:
    """Writes the Deployment of one JobQueue."""

    api: Api
    kube: Kube
    namespace: str
    uid: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, "jobs"

    def children(self) -> Children:
        """Return what a controller that has just started has."""
        return Children(self.kube, manager=MANAGER)

    def body(self, replicas: int = 1, **spec: Any) -> dict[str, Any]:
        document = resource("jobs", **spec)
        document["metadata"]["namespace"] = self.namespace
        return deployment(JobQueue.model_validate(document), context=Context(uid=self.uid, replicas=replicas))

    def live(self) -> dict[str, Any]:
        found = self.api.get("deployments", NAME, namespace=self.namespace)
        assert found is not None
        return found

    async def put(self, children: Children, body: dict[str, Any]) -> Put:
        """Write to the Deployment that there is; its status changes meanwhile, so a reconcile too would try again."""

        async def done() -> Put | None:
            try:
                return await children.put(DEPLOYMENT, self.key, body, live=self.live())
            except KubeConflict:
                return None

        found: Put | None = await aeventually(done, what="a write to the version that was read")
        assert found is not None
        return found

    def patch(self, body: dict[str, Any]) -> None:
        self.api.patch("deployments", NAME, body, namespace=self.namespace)


@pytest.fixture
async def desk(control_plane: Cluster, kube_admin: Api, kube_namespace: str) -> AsyncIterator[Desk]:
    owner = kube_admin.create("jobqueues", resource("jobs"), namespace=kube_namespace)
    kube = Kube(Place.find(kubeconfig=control_plane.kubeconfig))
    yield Desk(kube_admin, kube, kube_namespace, owner["metadata"]["uid"])
    kube.close()


async def test_made_changed_and_left(desk: Desk) -> None:
    children = desk.children()
    made = await children.put(DEPLOYMENT, desk.key, desk.body(), live=None)
    assert made.change == "created"
    assert made.child["metadata"]["managedFields"][0]["manager"] == MANAGER
    assert (await desk.put(children, desk.body())).change == "none"
    changed = await desk.put(children, desk.body(replicas=3))
    assert (changed.change, changed.child["spec"]["replicas"]) == ("changed", 3)


async def test_after_a_start_one_apply_changes_nothing(desk: Desk) -> None:
    await desk.children().put(DEPLOYMENT, desk.key, desk.body(), live=None)
    before = desk.live()["metadata"]
    put = await desk.put(desk.children(), desk.body())
    assert put.change == "none"
    assert desk.live()["metadata"]["generation"] == before["generation"]


async def test_a_version_that_is_not_the_present_one_is_refused(desk: Desk) -> None:
    """g2: a leader that was stopped in the middle rolls nothing back when it goes on."""
    children = desk.children()
    await children.put(DEPLOYMENT, desk.key, desk.body(), live=None)
    seen = desk.live()
    desk.patch({"spec": {"replicas": 8}})
    with pytest.raises(KubeConflict):
        await children.put(DEPLOYMENT, desk.key, desk.body(replicas=2), live=seen)
    with pytest.raises(KubeConflict):
        await children.scale(desk.key, seen, 2)
    assert desk.live()["spec"]["replicas"] == 8


async def test_drift_is_told_from_a_wish(desk: Desk) -> None:
    children = desk.children()
    await children.put(DEPLOYMENT, desk.key, desk.body(), live=None)
    desk.patch({"spec": {"replicas": 8}})
    put = await desk.put(children, desk.body())
    assert (put.change, put.child["spec"]["replicas"]) == ("restored", 1)
    desk.patch({"metadata": {"ownerReferences": None}})
    live = desk.live()
    assert stranger(DEPLOYMENT, live, uid=desk.uid) is not None


async def test_an_object_made_meanwhile_is_not_taken(desk: Desk) -> None:
    """It was not there when it was looked for; somebody made it before the write came."""
    foreign = desk.body(replicas=5)
    del foreign["metadata"]["ownerReferences"]
    desk.api.create("deployments", foreign, namespace=desk.namespace)
    with pytest.raises((KubeConflict, KubeRefused)):
        await desk.children().put(DEPLOYMENT, desk.key, desk.body(replicas=1), live=None)
    assert desk.live()["spec"]["replicas"] == 5


async def test_only_the_one_that_was_seen_is_deleted(desk: Desk) -> None:
    children = desk.children()
    await children.put(DEPLOYMENT, desk.key, desk.body(), live=None)
    seen = desk.live()
    other = {**seen, "metadata": {**seen["metadata"], "uid": "11111111-0000-0000-0000-000000000001"}}
    with pytest.raises(KubeConflict):
        await children.delete(DEPLOYMENT, desk.key, other)
    await children.delete(DEPLOYMENT, desk.key, seen)
    await children.delete(DEPLOYMENT, desk.key, seen)  # one that is gone is a success


async def test_a_trial_writes_nothing_and_names_what_is_wrong(desk: Desk) -> None:
    children = desk.children()
    await children.try_out(DEPLOYMENT, desk.body())
    assert desk.api.get("deployments", NAME, namespace=desk.namespace) is None
    body = desk.body()
    body["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(KubeRefused, match="imagePullPolice"):
        await children.try_out(DEPLOYMENT, body)
