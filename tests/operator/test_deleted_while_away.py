"""JobQueues that were deleted while no controller ran: found out, told twice, orphaned, and adopted when applied again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tailrace.db.allowed import parse_target
from tailrace.names.event_reasons import EventReason
from tailrace.owners import Owner
from tailrace_controller.databases import Databases
from tailrace_controller.identity import Identity
from tailrace_controller.kube import Kube, Place, Recorder
from tailrace_controller.orphans import APART_SECONDS, Orphans
from tailrace_controller.settings import ControllerSettings
from tests.operator.stage import Stage
from tests.rig.waiting import eventually

Resources = dict[tuple[str, str], Mapping[str, Any]]


def orphaned(stage: Stage, queue: str = "jobs") -> bool:
    row = stage.row(queue, "orphaned_at is not null")
    return row is not None and bool(row[0])


def test_deleted_while_the_controller_was_away(stage: Stage) -> None:
    controller = stage.controller()
    schedules = [{"name": "seldom", "everySeconds": 31_622_400, "task": "report"}]  # not while the test runs
    stage.apply("gone", schedules=schedules)
    stage.apply("stays", schedules=schedules)
    for name in ("gone", "stays"):
        stage.wait_deployment(name=name)
    stage.database.query("select tailrace.enqueue('gone', 'work', '{}')")
    controller.terminate()
    assert controller.wait() == 0
    stage.kubectl("delete", "jq", "gone", "--wait=true")
    stage.controller()
    eventually(lambda: orphaned(stage, "gone"), 20, what="the queue is orphaned")
    assert stage.database.query("select queue from tailrace.schedule") == [("stays",)]
    assert stage.database.value("select count(*) from tailrace.job where queue = 'gone'") == 1
    assert not orphaned(stage, "stays")
    assert stage.wait_event(EventReason.QUEUE_ORPHANED, "gone")

    stage.apply("gone", schedules=schedules)
    eventually(lambda: not orphaned(stage, "gone"), what="the queue is adopted")
    eventually(lambda: len(stage.database.query("select queue from tailrace.schedule")) == 2, what="both schedules")


def test_deleted_while_the_controller_ran(stage: Stage) -> None:
    """Also when it was the only one with its database."""
    stage.controller()
    stage.apply()
    stage.wait_deployment()
    stage.kubectl("delete", "jq", "jobs", "--wait=true")
    eventually(lambda: orphaned(stage), 20, what="the queue is orphaned")


def test_who_was_refused_has_the_queue_when_its_owner_is_gone(stage: Stage) -> None:
    stage.controller()
    stage.apply("first", queueName="jobs")
    stage.wait_deployment(name="first")
    second = stage.apply("second", queueName="jobs")["metadata"]["uid"]
    eventually(lambda: stage.status("second").get("conditions"), what="a refusal")
    stage.kubectl("delete", "jq", "first", "--wait=true")
    owner = "select owner ->> 'uid' from tailrace.queue where name = 'jobs'"
    eventually(lambda: stage.database.value(owner) == second, 30, what="the new owner")
    stage.wait_deployment(name="second")


# ---- the rule itself, with a clock that the test moves ---------------------------------------------------------------
class Watchman:
    """Looks for orphans in process, as the administrator, by a clock of the test's."""

    def __init__(self, stage: Stage, kube: Kube) -> None:
        self.stage, self.kube, self.now = stage, kube, 1000.0
        self.resources: Resources = {}
        self.target = parse_target(stage.database.dsn.encode(), schema="tailrace")
        self.databases = Databases(ControllerSettings.load())
        self.orphans = Orphans(
            kube=kube,
            databases=self.databases,
            recorder=Recorder(kube, controller="test", instance="test"),
            identity=Identity(kube),
            resources=lambda: self.resources,
            wake=lambda _: None,
            jitter=lambda: 0.5,
            clock=lambda: self.now,
        )

    async def look(self) -> int:
        """Look once at the test's database."""
        self.orphans.hint(self.target)
        return await self.orphans.look()

    async def owned(self, uid: str, name: str = "jobs") -> Owner:
        """Record an owner of a queue of this cluster."""
        cluster = await Identity(self.kube).of(self.stage.namespace)
        owner = Owner(cluster=cluster, uid=uid, namespace=self.stage.namespace, name=name, generation=1)
        await self.databases.at(self.target).settle(owner, name, {"stopPolicy": "None"})
        return owner


@pytest.fixture
async def watchman(stage: Stage) -> AsyncIterator[Watchman]:
    kube = Kube(Place.find(kubeconfig=stage.cluster.kubeconfig))
    made = Watchman(stage, kube)
    yield made
    await made.databases.close()
    kube.close()


async def test_twice_missing_a_minute_apart(stage: Stage, watchman: Watchman) -> None:
    await watchman.owned("11111111-0000-0000-0000-000000000001")
    assert await watchman.look() == 0
    watchman.now += APART_SECONDS - 1
    assert await watchman.look() == 0
    assert not orphaned(stage)
    watchman.now += 1
    assert await watchman.look() == 1
    assert orphaned(stage)
    assert await watchman.look() == 0


async def test_one_that_is_found_again_begins_anew(stage: Stage, watchman: Watchman) -> None:
    """A list that was empty for a moment, a restore: the second time must follow the first without a sight between."""
    uid = "11111111-0000-0000-0000-000000000002"
    await watchman.owned(uid)
    await watchman.look()
    watchman.now += APART_SECONDS
    watchman.resources[stage.namespace, "jobs"] = {"metadata": {"uid": uid}}
    assert await watchman.look() == 0
    watchman.resources.clear()
    assert await watchman.look() == 0
    watchman.now += APART_SECONDS
    assert await watchman.look() == 1


async def test_a_stale_cache_ends_nothing(stage: Stage, watchman: Watchman) -> None:
    made = stage.apply()
    await watchman.owned(made["metadata"]["uid"])
    for _ in range(3):
        assert await watchman.look() == 0
        watchman.now += APART_SECONDS
    assert not orphaned(stage)


async def test_an_owner_of_another_cluster_is_not_ours_to_judge(stage: Stage, watchman: Watchman) -> None:
    owner = Owner(cluster="elsewhere", uid="u-1", namespace=stage.namespace, name="jobs", generation=1)
    await watchman.databases.at(watchman.target).settle(owner, "jobs", {"stopPolicy": "None"})
    for _ in range(3):
        assert await watchman.look() == 0
        watchman.now += APART_SECONDS


async def test_an_api_server_that_does_not_answer_proves_nothing(stage: Stage, watchman: Watchman) -> None:
    await watchman.owned("11111111-0000-0000-0000-000000000003")
    await watchman.look()
    configuration = watchman.kube.place.configuration
    configuration.host, real = "https://127.0.0.1:1", configuration.host
    watchman.now += APART_SECONDS
    assert await watchman.look() == 0
    configuration.host = real
    assert await watchman.look() == 0  # the first sight of it, after none
    watchman.now += APART_SECONDS
    assert await watchman.look() == 1
