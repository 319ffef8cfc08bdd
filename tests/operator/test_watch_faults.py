"""Watches that go deaf, and API servers that go: the next edit is applied all the same, and the process lives (g3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tests.operator.stage import Stage
from tests.rig.kube.controllers import ControllerProcess
from tests.rig.kube.fault_proxy import FaultProxy
from tests.rig.kube.faults import Fault
from tests.rig.waiting import eventually

WATCH = r"watch=(true|1)"
KINDS = 4


@pytest.fixture
def start(stage: Stage, fault_proxy: FaultProxy) -> Iterator[Callable[..., ControllerProcess]]:
    """Start controllers that reach the API server through the proxy; they end before it does."""
    started: list[ControllerProcess] = []

    def one(**env: str) -> ControllerProcess:
        started.append(stage.controller(url=fault_proxy.url, env=env))
        stage.apply()
        stage.wait_replicas(1)
        eventually(lambda: fault_proxy.watches == KINDS, 20, what="open watches")
        return started[-1]

    yield one
    for controller in started:
        controller.reap()


@pytest.fixture
def through(start: Callable[..., ControllerProcess]) -> ControllerProcess:
    """A controller behind the proxy, with a JobQueue that it has taken up."""
    return start()


def edit(stage: Stage, replicas: int, *, timeout: float) -> None:
    """Change the JobQueue and wait until that has reached its Deployment."""
    stage.change(replicas=replicas)
    stage.wait_replicas(replicas, timeout=timeout)


def restarts(controller: ControllerProcess) -> float:
    return controller.metric("tailrace_watch_restarts_total")


def test_a_stream_that_falls_silent_is_begun_anew(
    stage: Stage, fault_proxy: FaultProxy, start: Callable[..., ControllerProcess]
) -> None:
    """g3, operator-notes 3.2 #4, #5: a load balancer forgot the connection; nothing is cut, and nothing comes."""
    controller = start(TAILRACE_SILENCE_SECONDS="5")
    fault_proxy.silence()
    edit(stage, 2, timeout=30)
    eventually(lambda: controller.metric("tailrace_watch_restarts_total", reason="silent") >= 1, 30, what="a new beginning")
    fault_proxy.clear()
    edit(stage, 3, timeout=30)
    assert controller.running


def test_a_watch_whose_version_is_gone_begins_from_a_new_list(
    stage: Stage, fault_proxy: FaultProxy, through: ControllerProcess
) -> None:
    """g3: 410."""
    assert fault_proxy.expire_watches() == KINDS
    edit(stage, 2, timeout=20)
    assert through.running


def test_watches_that_are_cut_are_taken_up(stage: Stage, fault_proxy: FaultProxy, through: ControllerProcess) -> None:
    fault_proxy.cut()
    edit(stage, 2, timeout=20)
    assert through.running


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_an_api_server_that_refuses_watches_is_asked_again(
    stage: Stage, fault_proxy: FaultProxy, through: ControllerProcess, status: int
) -> None:
    """operator-notes 3.2 #11: backoffs of half a second to four, then the whole thread is begun anew."""
    fault = fault_proxy.fault(Fault(path=WATCH, status=status, retry_after=1 if status == 429 else None))
    fault_proxy.cut()
    eventually(lambda: fault.met >= KINDS, 20, what="refusals")
    fault_proxy.clear()
    edit(stage, 2, timeout=45)
    assert through.get("/livez")[0] == 200


def test_credentials_that_are_refused_are_tried_again_after_a_pause(
    stage: Stage, fault_proxy: FaultProxy, through: ControllerProcess
) -> None:
    """At a 401 kopf logs in anew, at once and without end; the token is asked for at each request anyway."""
    fault = fault_proxy.fault(Fault(path=WATCH, status=401))
    fault_proxy.cut()
    eventually(lambda: fault.met >= 4 * KINDS, 60, what="refusals")
    fault_proxy.clear()
    for kind in {one.path.split("?")[0] for one in fault_proxy.requests if one.status == 401}:
        refused = [one.at for one in fault_proxy.requests if one.status == 401 and one.path.startswith(kind)]
        assert all(later - sooner > 0.4 for sooner, later in pairwise(refused)), kind
    edit(stage, 2, timeout=45)


def test_an_api_server_in_trouble_delays_and_loses_nothing(
    stage: Stage, fault_proxy: FaultProxy, through: ControllerProcess
) -> None:
    """Writes are refused, slow, or done without an answer; in the end each is done once."""
    fault_proxy.fault(Fault(method="PATCH", path="deployments", status=500, times=2))
    fault_proxy.fault(Fault(method="PATCH", path="deployments", cut="after", times=1))
    fault_proxy.fault(Fault(method="PATCH", path="jobqueues", status=429, retry_after=1, times=2))
    fault_proxy.fault(Fault(method="GET", path="secrets", delay=1.0, times=2))
    edit(stage, 4, timeout=30)
    stage.wait_settled()
    assert through.metric("tailrace_reconcile_total", result="error") >= 2


def test_what_was_deleted_while_the_watch_was_away_is_noticed(
    stage: Stage, fault_proxy: FaultProxy, through: ControllerProcess
) -> None:
    """operator-notes 3.2 #4: a new list has no word for what is gone; ours is compared with what was known."""
    fault = fault_proxy.fault(Fault(path=WATCH, status=500))
    fault_proxy.cut()
    stage.admin.delete("deployments", "jobs-worker", namespace=stage.namespace)
    eventually(lambda: fault.met >= 1, 20, what="refusals")
    fault_proxy.clear()
    stage.wait_deployment(timeout=45)
    assert through.running
