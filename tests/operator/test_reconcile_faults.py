"""Reconciles on a bad way to the API server: slow, refusing for a while, answers that are lost."""

from __future__ import annotations

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.stage import Stage, child
from tests.rig.kube.fault_proxy import FaultProxy
from tests.rig.kube.faults import Fault
from tests.rig.waiting import eventually

DEPLOYMENTS = r"/deployments/"
STATUS = r"/jobqueues/jobs/status"


def test_errors_of_the_server_are_tried_again(stage: Stage, fault_proxy: FaultProxy) -> None:
    """operator-notes 3.2 #10, #11: soon, with growing pauses, and as long as it takes."""
    stage.controller(url=fault_proxy.url)
    broken = fault_proxy.fault(Fault(method="PATCH", path=DEPLOYMENTS, status=500))
    stage.apply(replicas=2)
    eventually(lambda: broken.met >= 3, 20, what="three tries")
    assert stage.deployment() is None
    fault_proxy.clear()
    stage.wait_replicas(2, timeout=20)
    stage.run_pods(2)
    stage.wait(ConditionType.READY, "True", Reason.READY)


def test_too_many_requests_are_waited_out(stage: Stage, fault_proxy: FaultProxy) -> None:
    stage.controller(url=fault_proxy.url)
    busy = fault_proxy.fault(Fault(method="PATCH", status=429, retry_after=1))
    stage.apply(replicas=1)
    eventually(lambda: busy.met >= 2, 20, what="two tries")
    fault_proxy.clear()
    stage.wait_replicas(1, timeout=20)


def test_the_lost_answer_to_a_write_does_no_harm(stage: Stage, fault_proxy: FaultProxy) -> None:
    """g2: whether it was done is not known, so it is looked at anew."""
    stage.controller(url=fault_proxy.url)
    fault_proxy.fault(Fault(method="PATCH", path=DEPLOYMENTS, cut="after", times=3))
    fault_proxy.fault(Fault(method="PATCH", path=STATUS, cut="after", times=2))
    stage.apply(replicas=3)
    stage.wait_replicas(3)
    stage.run_pods(3)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    generation = stage.must("deployments", child("jobs"))["metadata"]["generation"]
    assert generation <= 2


def test_what_a_status_with_a_lost_answer_says_is_told_as_an_event(stage: Stage, fault_proxy: FaultProxy) -> None:
    """The next look finds the status as it should be; the turn was not told yet."""
    stage.controller(url=fault_proxy.url)
    stage.apply(replicas=1)
    stage.run_pods(1)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    lost = fault_proxy.fault(Fault(method="PATCH", path=STATUS, cut="after", times=1))
    stage.change(annotations={"tailrace.dev/reconcile": "disabled"})
    assert stage.wait_event(EventReason.PAUSED)
    assert lost.met == 1


def test_a_slow_api_server_makes_nothing_wrong(stage: Stage, fault_proxy: FaultProxy) -> None:
    stage.controller(url=fault_proxy.url)
    fault_proxy.fault(Fault(path=r"/(jobqueues|deployments|poddisruptionbudgets|secrets)", delay=0.8))  # not the Lease
    stage.apply(replicas=1)
    stage.wait_replicas(1)
    stage.change(replicas=2)
    stage.wait_replicas(2)
    fault_proxy.clear()
    stage.run_pods(2)
    stage.wait(ConditionType.READY, "True", Reason.READY)
