"""A thousand JobQueues: delivered soon, without a mark of kopf on them, within the memory that a controller may take."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tailrace_controller.cache import Cache
from tailrace_controller.kube import Kube, Place
from tailrace_controller.kube.kinds import DEPLOYMENT, JOBQUEUE
from tailrace_controller.settings import ControllerSettings
from tailrace_controller.triggers import Triggers
from tailrace_controller.work_queue import Key
from tests.operator.samples import resource
from tests.rig.kube.cluster import Cluster
from tests.rig.kube.fixtures import StartControlPlane
from tests.rig.waiting import aeventually

MANY = 1000


async def fill(kube: Kube, number: int) -> None:
    limit = asyncio.Semaphore(16)

    async def one(index: int) -> None:
        async with limit:
            body = resource(f"queue-{index}")
            body["metadata"]["namespace"] = "default"
            await kube.create(JOBQUEUE, body)

    await asyncio.gather(*(one(index) for index in range(number)))


class Watching:
    """Triggers on a control plane, with what they told."""

    def __init__(self, cluster: Cluster) -> None:
        self.place = Place.find(kubeconfig=cluster.kubeconfig)
        self.kube = Kube(self.place, threads=16)
        self.cache = Cache(controller_name="tailrace.dev/controller")
        self.changed: list[Key] = []
        self.pods: list[tuple[str | None, Any]] = []
        self.triggers = Triggers(
            self.kube,
            self.cache,
            ControllerSettings.load(),
            on_change=lambda key, after=0.0: self.changed.append(key),
            on_pod=lambda event, pod: self.pods.append((event, pod)),
        )


@pytest.mark.slow
async def test_a_thousand_are_delivered_soon_and_stay_untouched(private_control_plane: StartControlPlane, tmp_path: Path) -> None:
    """operator-notes 3.2 #1, #6, #7, #16, 3.3: no finalizer, no annotation, no status of kopf; started and stopped again."""
    plane = private_control_plane()
    watching = Watching(plane.cluster)
    await fill(watching.kube, MANY)
    versions = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in await watching.kube.list(JOBQUEUE)}
    for _ in range(2):  # a second start in the same process
        watching.changed.clear()
        watching.cache.clear()
        began = time.monotonic()
        running = asyncio.create_task(watching.triggers.run())
        await aeventually(lambda: len(watching.changed) == MANY, 20, what="a thousand keys")
        assert time.monotonic() - began < 10.0
        await aeventually(lambda: set(watching.triggers.heard) >= {"jobqueues", "deployments", "pods"}, 20, what="streams")
        await watching.kube.patch(
            JOBQUEUE, namespace="default", name="queue-7", body={"metadata": {"labels": {"round": str(began)}}}
        )
        await aeventually(lambda: len(watching.changed) == MANY + 1, 20, what="news by the watch")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    found = await watching.kube.list(JOBQUEUE)
    assert not [one for one in found if one["metadata"].get("finalizers") or one["metadata"].get("annotations")]
    touched = [n for n, v in versions.items() if n != "queue-7" and v != _version(found, n)]
    assert touched == []
    watching.kube.close()


def _version(found: list[dict[str, Any]], name: str) -> str:
    return str(next(one["metadata"]["resourceVersion"] for one in found if one["metadata"]["name"] == name))


async def test_children_and_pods_are_watched_by_label(control_plane: Cluster, kube_namespace: str, kubectl: Any) -> None:
    """operator-notes 3.2 #15, #16, #18: server-side selectors, and explicit namespaces without a look at the cluster."""
    place = Place.find(kubeconfig=control_plane.kubeconfig)
    kube = Kube(place)
    cache = Cache(controller_name="tailrace.dev/controller")
    settings = ControllerSettings.load({"watch_namespaces": (kube_namespace,)})
    changed: list[Key] = []
    triggers = Triggers(
        kube, cache, settings, on_change=lambda key, after=0.0: changed.append(key), on_pod=lambda event, pod: None
    )
    running = asyncio.create_task(triggers.run())
    await aeventually(triggers.synced.is_set, 20)
    body = resource("jobs")
    body["metadata"]["namespace"] = kube_namespace
    await kube.create(JOBQUEUE, body)
    await aeventually(lambda: changed == [(kube_namespace, "jobs")], 20)
    for name, labels in (("ours", _labels()), ("foreign", {"tailrace.dev/queue": "jobs"})):
        await kube.create(DEPLOYMENT, _deployment(kube_namespace, name, labels))
    await aeventually(lambda: len(cache.children(DEPLOYMENT, (kube_namespace, "jobs"))) == 1, 20)
    await kube.delete(DEPLOYMENT, namespace=kube_namespace, name="ours")
    await aeventually(lambda: not cache.children(DEPLOYMENT, (kube_namespace, "jobs")), 20)
    assert len(changed) >= 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    kube.close()


def _labels() -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "tailrace-worker",
        "app.kubernetes.io/managed-by": "tailrace",
        "app.kubernetes.io/instance": "controller",
        "tailrace.dev/queue": "jobs",
    }


def _deployment(namespace: str, name: str, labels: dict[str, str]) -> dict[str, Any]:
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "worker", "image": "example/none:1"}]}}
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod},
    }
