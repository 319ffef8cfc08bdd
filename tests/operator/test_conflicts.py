"""Two resources that want one queue, of one cluster and of two: one works, the other holds back and says why."""

from __future__ import annotations

import uuid

from psycopg.types.json import Jsonb

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.stage import Stage
from tests.rig.waiting import eventually


def owner(stage: Stage, queue: str = "jobs") -> str:
    """Return the uid of the recorded owner of a queue."""
    row = stage.row(queue)
    return str(row[1]["uid"]) if row is not None and row[1] else ""


def take_elsewhere(stage: Stage, *, queue: str = "jobs", generation: int = 1) -> str:
    """Let a resource of another cluster have the queue, and return its uid."""
    uid = str(uuid.uuid4())
    document = {"cluster": str(uuid.uuid4()), "uid": uid, "namespace": "far", "name": "away"}
    stage.database.query(
        "select tailrace.settle_queue_v1(%s, %s, %s, %s)", [queue, Jsonb({"stopPolicy": "None"}), Jsonb(document), generation]
    )
    return uid


def test_two_resources_of_one_cluster(stage: Stage) -> None:
    stage.controller()
    first = stage.apply("first", queueName="jobs", latencyTargetSeconds=21)
    stage.wait_deployment(name="first")
    stage.apply("second", queueName="jobs", latencyTargetSeconds=22)
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.CONFLICTED, name="second")
    assert f"{stage.namespace}/first" in sentence
    assert first["metadata"]["uid"] in sentence
    assert stage.wait_event(EventReason.CONFLICTED, "second")
    assert stage.deployment("second") is None
    assert owner(stage) == first["metadata"]["uid"]
    stage.wait_setting("latencyTargetSeconds", 21)
    stage.wait(ConditionType.STALLED, "False", name="first")


def test_a_resource_of_another_cluster(stage: Stage) -> None:
    theirs = take_elsewhere(stage)
    stage.controller()
    stage.apply()
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.CONFLICTED)
    assert "another cluster" in sentence
    assert theirs in sentence
    assert stage.deployment() is None
    assert owner(stage) == theirs


def test_taking_over_by_naming_the_owner(stage: Stage) -> None:
    theirs = take_elsewhere(stage)
    stage.controller()
    ours = stage.apply(latencyTargetSeconds=23)["metadata"]["uid"]
    stage.wait(ConditionType.STALLED, "True", Reason.CONFLICTED)
    stage.change(annotations={"tailrace.dev/take-over": str(uuid.uuid4())}, latencyTargetSeconds=24)
    stage.wait_settled()  # the new generation tells a look at the wrong owner from one before it
    stage.wait(ConditionType.STALLED, "True", Reason.CONFLICTED)
    assert owner(stage) == theirs
    stage.change(annotations={"tailrace.dev/take-over": theirs})
    eventually(lambda: owner(stage) == ours, what="the owner")
    stage.wait_setting("latencyTargetSeconds", 24)
    stage.wait_deployment()
    stage.wait(ConditionType.STALLED, "False")
    assert "taken-over" in stage.wait_event(EventReason.QUEUE_ADOPTED)


def test_who_loses_its_queue_ends_its_workers(stage: Stage) -> None:
    stage.controller()
    stage.apply("first", queueName="jobs", replicas=2)
    stage.run_pods(2, "first")
    uid = owner(stage)
    stage.apply("second", queueName="jobs", annotations={"tailrace.dev/take-over": uid})
    stage.wait_deployment(name="second")
    stage.change("first", latencyTargetSeconds=24)
    stage.wait(ConditionType.STALLED, "True", Reason.CONFLICTED, name="first")
    stage.wait_replicas(0, "first")


def test_a_queue_of_the_command_line_is_adopted(stage: Stage) -> None:
    stage.database.query("select tailrace.apply_queue('jobs', %s, 'cli')", [Jsonb({"latencyTargetSeconds": 99})])
    stage.controller()
    stage.apply(latencyTargetSeconds=25)
    stage.wait_setting("latencyTargetSeconds", 25)
    assert "cli" in stage.wait_event(EventReason.QUEUE_ADOPTED)


def test_a_resource_that_is_made_again_has_its_queue_at_once(stage: Stage) -> None:
    """`kubectl replace --force`: the API server itself shows that the recorded owner is gone (operator-notes 3.2 #2)."""
    stage.controller(env={"TAILRACE_ORPHAN_SECONDS": "600"})
    stage.apply(latencyTargetSeconds=26)
    stage.wait_deployment()
    old = owner(stage)
    stage.kubectl("delete", "jq", "jobs", "--wait=true")
    new = stage.apply(latencyTargetSeconds=27)["metadata"]["uid"]
    eventually(lambda: owner(stage) == new != old, what="the new owner")
    stage.wait_setting("latencyTargetSeconds", 27)


def test_an_older_generation_writes_nothing(stage: Stage) -> None:
    """As after a restore of the cluster; a controller that slept is refused the same way."""
    stage.controller()
    ours = stage.apply(latencyTargetSeconds=28)
    stage.wait_setting("latencyTargetSeconds", 28)
    stage.database.query("update tailrace.queue set generation = 1000 where name = 'jobs'")
    stage.change(latencyTargetSeconds=29)
    eventually(lambda: stage.status().get("observedGeneration") == 2, what="a look")
    assert stage.row()[0]["latencyTargetSeconds"] == 28  # type: ignore[index]
    stage.change(annotations={"tailrace.dev/take-over": ours["metadata"]["uid"]})
    stage.wait_setting("latencyTargetSeconds", 29)


def test_names_are_data(stage: Stage) -> None:
    """l1: a queue's name, a task and an annotation with quotes and comment marks change nothing but themselves."""
    stage.database.query("create table public.canary (n int)")
    queue = "a'; drop table public.canary; --"
    stage.controller()
    task = 'b"); select 1; /*'
    stage.apply(queueName=queue, tasks=[{"name": task, "maxAttempts": 3}], annotations={"tailrace.dev/take-over": "' or '1'='1"})
    stage.wait_setting("latencyTargetSeconds", 60, queue)
    settings = stage.row(queue)
    assert settings is not None
    assert settings[0]["tasks"][task]["maxAttempts"] == 3
    assert stage.database.query("select * from public.canary") == []
