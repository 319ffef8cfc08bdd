"""New templates: what rolls the workers, what does not, in whose turn, and what the API server refuses."""

from __future__ import annotations

from typing import Any

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.samples import resource
from tests.operator.stage import Stage, child
from tests.rig.kube.api import Body
from tests.rig.waiting import eventually

IMAGE = "registry.example/shop:2.0.0"


def template(**worker: Any) -> Body:
    """Return the smallest sample's template with more in its container."""
    body: Body = resource("jobs")["spec"]["template"]
    body["spec"]["containers"][0].update(worker)
    return body


def image(body: Body) -> str:
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


def marks(body: Body) -> Body:
    return dict(body["spec"]["template"]["metadata"].get("annotations") or {})


def test_a_new_image_rolls_the_workers(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=2)
    stage.wait_rolled_out()
    stage.wait(ConditionType.READY, "True", Reason.READY)
    stage.change(template=template(image=IMAGE))
    stage.wait_deployment(lambda body: image(body) == IMAGE)
    assert stage.wait_event(EventReason.ROLLOUT_STARTED)
    stage.wait_rolled_out()
    stage.wait(ConditionType.READY, "True", Reason.READY)
    assert stage.status()["updatedReplicas"] == 2


def test_restarted_at_rolls_the_workers(stage: Stage) -> None:
    """`kubectl rollout restart` does not know custom resources."""
    stage.controller()
    stage.apply(replicas=1)
    before = marks(stage.wait_replicas(1))
    stage.change(annotations={"tailrace.dev/restarted-at": "2026-11-27T22:00:00Z"})
    stage.wait_deployment(lambda body: marks(body) != before)


def test_a_changed_value_of_the_environment_rolls_the_workers(stage: Stage) -> None:
    """g4: also of an object that is deleted and made again; and no plain hash of a Secret stands on the pods."""
    stage.controller()
    stage.secret("one", name="keys", key="token")
    stage.config_map("words", greeting="hello")
    references = [
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "greeting"}}},
    ]
    stage.apply(replicas=1, template=template(env=references))
    first = marks(stage.wait_replicas(1))["tailrace.dev/environment"]
    stage.wait_settled()
    stage.secret("two", name="keys", key="token")
    second = marks(stage.wait_deployment(lambda body: marks(body)["tailrace.dev/environment"] != first))
    stage.config_map("words", greeting="goodbye")
    stage.wait_deployment(lambda body: marks(body)["tailrace.dev/environment"] not in (first, second))
    stage.secret("one", name="keys", key="token")
    stage.config_map("words", greeting="hello")
    stage.wait_deployment(lambda body: marks(body)["tailrace.dev/environment"] == first)


def test_the_key_of_fingerprints_outlives_the_controller(stage: Stage) -> None:
    controller = stage.controller()
    stage.secret("one", name="keys", key="token")
    stage.apply(replicas=1, template=template(envFrom=[{"secretRef": {"name": "keys"}}]))
    generation = stage.wait_replicas(1)["metadata"]["generation"]
    stage.wait_settled()
    controller.kill9()
    stage.controller()
    stage.change(latencyTargetSeconds=7)
    stage.wait_settled()
    assert stage.must("deployments", child("jobs"))["metadata"]["generation"] == generation


def test_a_rotated_connection_string_rolls_nothing(stage: Stage) -> None:
    """g4: workers read it at their next connect."""
    stage.controller()
    stage.apply(replicas=1)
    generation = stage.wait_replicas(1)["metadata"]["generation"]
    stage.wait_settled()
    stage.secret(f"{stage.database.dsn}?connect_timeout=3")
    stage.wait_event(EventReason.SECRET_CHANGED)
    stage.wait(ConditionType.DATABASE_REACHABLE, "True", Reason.CONNECTED)
    assert stage.must("deployments", child("jobs"))["metadata"]["generation"] == generation


def test_a_template_that_the_api_server_refuses_is_told_and_scaling_goes_on(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=2)
    stage.wait_replicas(2)
    bad = template(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
    stage.change(template=bad)
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.POD_TEMPLATE_INVALID)
    assert "must be less than or equal to cpu limit" in sentence
    assert stage.wait_event(EventReason.POD_TEMPLATE_INVALID)
    stage.change(stopPolicy="HoldAndDrain")
    stage.wait_replicas(0)
    stage.change(stopPolicy="None", template=template(image=IMAGE, resources=None))
    stage.wait_deployment(lambda body: image(body) == IMAGE and body["spec"]["replicas"] == 2)
    stage.wait(ConditionType.STALLED, "False")


def test_a_mistyped_field_of_the_template_is_told(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=1, template=template(imagePullPolice="Always"))
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.POD_TEMPLATE_INVALID)
    assert "imagePullPolice" in sentence
    assert stage.deployment() is None
    stage.change(template=template(imagePullPolice=None))
    stage.wait_replicas(1)


def test_a_template_that_cannot_be_merged_is_told(stage: Stage) -> None:
    stage.controller()
    stage.apply(template=template(env=[{"name": "OLD", "$patch": "delete"}]))
    assert "$patch" in stage.wait(ConditionType.STALLED, "True", Reason.POD_TEMPLATE_INVALID)
    assert stage.deployment() is None
    stage.change(template=template(env=[]))
    stage.wait_deployment()


def test_roll_outs_take_turns(stage: Stage) -> None:
    """operator-notes 3.2 #10: who waits is woken by the end of another, not by asking each second."""
    stage.controller(env={"TAILRACE_MAX_CONCURRENT_ROLLOUTS": "1"})
    for name in ("one", "two"):
        stage.apply(name, replicas=1)
        stage.wait_rolled_out(name)
        stage.wait(ConditionType.READY, "True", Reason.READY, name=name)
    for name in ("one", "two"):
        stage.change(name, template=template(image=IMAGE))
    waiting = eventually(
        lambda: [n for n in ("one", "two") if stage.condition(ConditionType.READY, n)["reason"] == Reason.ROLLOUT_WAITING],
        what="one of two waits",
    )
    (first,) = {"one", "two"} - set(waiting)
    stage.wait_deployment(lambda body: image(body) == IMAGE, name=first)
    assert image(stage.must("deployments", child(waiting[0]))) != IMAGE
    stage.wait_rolled_out(first)
    stage.wait_deployment(lambda body: image(body) == IMAGE, name=waiting[0])


def test_an_immediate_roll_out_waits_for_nobody(stage: Stage) -> None:
    stage.controller(env={"TAILRACE_MAX_CONCURRENT_ROLLOUTS": "1"})
    for name in ("one", "two"):
        stage.apply(name, replicas=1, rollout={"policy": "Immediate"})
        stage.wait_rolled_out(name)
    for name in ("one", "two"):
        stage.change(name, template=template(image=IMAGE))
    for name in ("one", "two"):
        stage.wait_deployment(lambda body: image(body) == IMAGE, name=name)


def test_a_new_template_waits_for_workers_that_drain(stage: Stage) -> None:
    """A Deployment does not count pods that end, so a fleet could run several times over."""
    stage.controller()
    stage.apply(replicas=4)
    stage.wait_rolled_out()
    stage.change(replicas=1)
    stage.wait_replicas(1)
    eventually(lambda: len(stage.pods()) == 1, what="three pods are told to end")
    eventually(lambda: stage.status().get("terminatingReplicas") == 3, what="the controller has seen it")
    stage.change(template=template(image=IMAGE))
    stage.wait(ConditionType.READY, "True", Reason.ROLLOUT_WAITING)
    assert image(stage.must("deployments", child("jobs"))) != IMAGE
    stage.finish_endings()
    stage.wait_deployment(lambda body: image(body) == IMAGE)
