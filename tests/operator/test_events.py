"""Kubernetes events: one object for each resource and reason, counted, and at most one write in ten seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tailrace_controller.kube import Kube, Place, Recorder
from tailrace_controller.kube.kinds import EVENT
from tests.rig.kube.cluster import Cluster
from tests.rig.kube.fault_proxy import FaultProxy
from tests.rig.kube.faults import Fault
from tests.rig.waiting import aeventually


class Clock:
    """Seconds that the test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def kube(control_plane: Cluster) -> AsyncIterator[Kube]:
    made = Kube(Place.find(kubeconfig=control_plane.kubeconfig))
    yield made
    made.close()


def about(namespace: str, uid: str = "u-1") -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": "webhooks", "uid": uid}
    return {"apiVersion": "tailrace.dev/v1alpha1", "kind": "JobQueue", "metadata": metadata}


def recorder(kube: Kube, clock: Clock) -> Recorder:
    return Recorder(kube, controller="tailrace.dev/controller", instance="pod_1", clock=clock)


async def stored(kube: Kube, namespace: str) -> list[dict[str, Any]]:
    found = await kube.list(EVENT, namespace=namespace)
    return [one for one in found if one.get("reportingController") == "tailrace.dev/controller"]


async def told(events: Recorder, kube: Kube, resource: dict[str, Any], *, reason: str, note: str) -> None:
    """Tell an event and wait until it is written."""
    before = sum(kube.requests.values())
    await events.event(resource, type="Warning", reason=reason, note=note)
    await aeventually(lambda: sum(kube.requests.values()) > before and not waiting(events))


def waiting(events: Recorder) -> bool:
    return any(one.writer is not None and not one.writer.done() for one in events._series.values())


async def test_repeated_events_are_one_object_with_a_count(kube: Kube, kube_namespace: str) -> None:
    """operator-notes 3.2 #13."""
    clock = Clock()
    events = recorder(kube, clock)
    for _ in range(5):
        await told(events, kube, about(kube_namespace), reason="InvalidSpec", note="replicas: no")
        clock.now += 11
    (one,) = await stored(kube, kube_namespace)
    assert (one["reason"], one["type"], one["note"], one["series"]["count"]) == ("InvalidSpec", "Warning", "replicas: no", 5)
    assert one["regarding"]["name"] == "webhooks"


async def test_a_burst_is_written_once_and_not_again_before_ten_seconds(kube: Kube, kube_namespace: str) -> None:
    clock = Clock()
    events = recorder(kube, clock)
    before = sum(n for (verb, _), n in kube.requests.items() if verb != "GET")
    for _ in range(50):
        await events.event(about(kube_namespace), type="Normal", reason="Scaled", note="2 workers are wanted")

    await aeventually(lambda: not waiting(events))  # its answer has come too, which the requests are counted by
    (one,) = await stored(kube, kube_namespace)
    assert one["series"]["count"] == 50
    clock.now += 5
    await events.event(about(kube_namespace), type="Normal", reason="Scaled", note="2 workers are wanted")
    assert waiting(events)
    assert sum(n for (verb, _), n in kube.requests.items() if verb != "GET") == before + 1
    await events.close()


async def test_another_sentence_takes_the_place_of_the_object(kube: Kube, kube_namespace: str) -> None:
    clock = Clock()
    events = recorder(kube, clock)
    for note in ("first", "first", "second"):
        await told(events, kube, about(kube_namespace), reason="DatabaseProblem", note=note)
        clock.now += 11
    (one,) = await stored(kube, kube_namespace)
    assert one["note"] == "second"
    assert one.get("series") is None


async def test_a_restarted_controller_goes_on_with_the_same_object(kube: Kube, kube_namespace: str) -> None:
    for _ in range(2):
        await told(recorder(kube, Clock()), kube, about(kube_namespace), reason="Paused", note="paused")
    assert len(await stored(kube, kube_namespace)) == 1


async def test_events_of_resources_and_reasons_stand_apart_and_long_notes_are_cut(kube: Kube, kube_namespace: str) -> None:
    events = recorder(kube, Clock())
    await events.event(about(kube_namespace), type="Normal", reason="Paused", note="ä" * 2000)
    await events.event(about(kube_namespace), type="Normal", reason="Resumed", note="b")
    await events.event(about(kube_namespace, uid="u-2"), type="Normal", reason="Paused", note="c")
    await aeventually(lambda: not waiting(events))
    found = await stored(kube, kube_namespace)
    assert len(found) == 3
    assert max(len(one["note"].encode()) for one in found) <= 1024


async def test_an_event_is_tried_again_while_the_api_server_is_away(
    kube_namespace: str, faulty: Kube, fault_proxy: FaultProxy
) -> None:
    events = recorder(faulty, Clock())
    busy = fault_proxy.fault(Fault(method="POST", path="events", status=503, times=2))
    await events.event(about(kube_namespace), type="Normal", reason="Paused", note="paused")
    await aeventually(lambda: not waiting(events), 20, what="the third try")
    assert busy.met == 2
    assert len(await stored(faulty, kube_namespace)) == 1


async def test_an_event_that_is_refused_harms_nobody(control_plane: Cluster, kube_namespace: str) -> None:
    kube = Kube(Place.find(kubeconfig=control_plane.kubeconfig), may_write=lambda: False)
    events = recorder(kube, Clock())
    await events.event(about(kube_namespace), type="Normal", reason="Paused", note="a")
    await aeventually(lambda: not waiting(events))
    assert await stored(kube, kube_namespace) == []
    kube.close()
