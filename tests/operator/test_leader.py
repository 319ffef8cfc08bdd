"""The election on real Lease objects, with clocks that the test turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tailrace_controller.kube import Kube, Place
from tailrace_controller.kube.kinds import LEASE
from tailrace_controller.kube.lease import LeaseLock
from tailrace_controller.leader import Leader
from tests.rig.kube.cluster import Cluster
from tests.rig.kube.fault_proxy import FaultProxy
from tests.rig.kube.faults import Fault
from tests.rig.waiting import aeventually


@dataclass
class Clock:
    """Seconds that the test lets pass."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def kube(control_plane: Cluster) -> AsyncIterator[Kube]:
    made = Kube(Place.find(kubeconfig=control_plane.kubeconfig))
    yield made
    made.close()


def lock(kube: Kube, namespace: str, identity: str, clock: Clock) -> LeaseLock:
    return LeaseLock(kube, namespace=namespace, name="controller", identity=identity, seconds=15, clock=clock)


async def spec(kube: Kube, namespace: str) -> dict[str, object]:
    found = await kube.get(LEASE, namespace=namespace, name="controller")
    assert found is not None
    return dict(found["spec"])


async def test_the_first_has_it_until_it_stops_renewing_it(kube: Kube, kube_namespace: str) -> None:
    """g2: by our own clock from when we saw it change, so that wrong wall clocks make no two leaders."""
    mine, theirs = Clock(), Clock(5.0)
    first, second = lock(kube, kube_namespace, "a", mine), lock(kube, kube_namespace, "b", theirs)
    assert await first.take()
    assert not await second.take()
    theirs.now += 14
    assert await first.take()  # renewed: the other begins to count anew
    assert not await second.take()
    theirs.now += 14.5
    assert not await second.take()
    theirs.now += 1
    assert await second.take()
    assert not await first.take()
    assert first.holder == "b"
    assert (await spec(kube, kube_namespace))["leaseTransitions"] == 1


async def test_a_lease_that_is_given_back_is_free_at_once(kube: Kube, kube_namespace: str) -> None:
    first, second = (lock(kube, kube_namespace, name, Clock()) for name in "ab")
    assert await first.take()
    assert not await second.take()
    await second.release()  # not its own
    assert (await spec(kube, kube_namespace))["holderIdentity"] == "a"
    await first.release()
    assert await second.take()
    await first.release()  # not its own any more
    assert (await spec(kube, kube_namespace))["holderIdentity"] == "b"


async def test_of_many_one_wins(kube: Kube, kube_namespace: str) -> None:
    locks = [lock(kube, kube_namespace, f"c{n}", Clock()) for n in range(8)]
    taken = await asyncio.gather(*(one.take() for one in locks))
    assert sum(taken) == 1


async def test_it_leads_for_less_time_than_the_lease_lasts(kube: Kube, kube_namespace: str) -> None:
    """A write that was sent while it led has ended (5 s) before another may lead: 10 s + 5 s = 15 s."""
    clock = Clock()
    leader = Leader(lock(kube, kube_namespace, "a", clock), identity="a", retry=0.01, clock=clock)
    assert not leader.leads()
    await leader.win()
    assert leader.leads()
    clock.now += 9.9
    assert leader.leads()
    clock.now += 0.2
    assert not leader.leads()


async def test_a_process_that_stood_still_knows_that_it_has_lost(kube: Kube, kube_namespace: str) -> None:
    clock = Clock()
    leader = Leader(lock(kube, kube_namespace, "a", clock), identity="a", retry=0.01, clock=clock)
    await leader.win()
    keeping = asyncio.create_task(leader.keep())
    clock.now += 11
    assert "not renewed" in await asyncio.wait_for(keeping, 5)
    assert not leader.leads()
    assert leader.since is None


async def test_it_ends_when_another_has_taken_it(kube: Kube, kube_namespace: str) -> None:
    clock = Clock()
    leader = Leader(lock(kube, kube_namespace, "a", clock), identity="a", retry=0.05, clock=clock)
    await leader.win()
    keeping = asyncio.create_task(leader.keep())
    found = await kube.get(LEASE, namespace=kube_namespace, name="controller")
    assert found is not None

    async def steal() -> bool:
        now = await kube.get(LEASE, namespace=kube_namespace, name="controller")
        assert now is not None
        stolen = {**now["spec"], "holderIdentity": "b"}
        await kube.patch(LEASE, namespace=kube_namespace, name="controller", body={"spec": stolen})
        return keeping.done()

    await aeventually(steal, what="the loss")
    assert await keeping == "b has it"
    assert not leader.leads()


async def test_trouble_stays_while_it_is_tried_again(faulty: Kube, fault_proxy: FaultProxy, kube_namespace: str) -> None:
    """Readiness is made of it, and would flap with each try."""
    clock = Clock()
    leader = Leader(lock(faulty, kube_namespace, "a", clock), identity="a", retry=0.02, clock=clock)
    fault_proxy.fault(Fault(path="leases", status=503, times=1))
    slow = fault_proxy.fault(Fault(path="leases", delay=30))
    winning = asyncio.create_task(leader.win())
    await aeventually(lambda: slow.met, what="the second try under way")
    assert leader.trouble
    winning.cancel()
    await asyncio.gather(winning, return_exceptions=True)


async def test_a_touched_lease_is_not_a_lost_one(kube: Kube, kube_namespace: str) -> None:
    """Somebody annotates the object between our reading and our writing: a conflict, and ours all the same."""
    clock = Clock()
    leader = Leader(lock(kube, kube_namespace, "a", clock), identity="a", retry=0.02, clock=clock)
    await leader.win()
    keeping = asyncio.create_task(leader.keep())
    for number in range(20):
        body = {"metadata": {"annotations": {"note": str(number)}}}
        await kube.patch(LEASE, namespace=kube_namespace, name="controller", body=body)
    assert not keeping.done()
    assert leader.leads()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await kube.settle(10)  # a renewal goes on in its thread
    await leader.release()
    assert (await spec(kube, kube_namespace))["holderIdentity"] == ""
