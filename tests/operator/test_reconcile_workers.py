"""Why workers are missing: the status names the commonest cause with how many, an example and what to do."""

from __future__ import annotations

from typing import Any

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.samples import resource
from tests.operator.stage import Stage, child
from tests.rig.kube.api import Body
from tests.rig.waiting import eventually

AVAILABLE = ConditionType.WORKERS_AVAILABLE


def template(**pod: Any) -> Body:
    body: Body = resource("jobs")["spec"]["template"]
    body["spec"].update(pod)
    return body


def names(stage: Stage, number: int) -> list[str]:
    eventually(lambda: len(stage.pods()) == number, 30, what=f"{number} pods")
    return [pod["metadata"]["name"] for pod in stage.pods()]


def test_an_image_that_cannot_be_had(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=3)
    first, second, third = names(stage, 3)
    stage.kubelet.run(first)
    for name in (second, third):
        stage.kubelet.wait_for_image(name)
    stage.wait(AVAILABLE, "False", Reason.IMAGE_PULL_BACK_OFF)

    def sentence_of_all() -> str:
        found = str(stage.condition(AVAILABLE)["message"])
        assert "ImagePullBackOff in 2" in found, found
        assert "1 of 3 workers ready" in found, found
        return found

    sentence = eventually(sentence_of_all, what="all pods are counted")
    assert second in sentence or third in sentence
    assert stage.wait_event(EventReason.WORKERS_UNAVAILABLE)
    for name in (second, third):
        stage.kubelet.run(name)
    stage.wait(AVAILABLE, "True", Reason.AVAILABLE)
    assert stage.wait_event(EventReason.WORKERS_AVAILABLE)


def test_a_crash_loop_tells_the_exit_code_and_the_last_words(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=1)
    (name,) = names(stage, 1)
    uid = stage.kubelet.run(name)["metadata"]["uid"]
    message = f"{uid}/worker/0a1b2c3d\nModuleNotFoundError: No module named 'shop'\n"
    stage.kubelet.crash_loop(name, message=message)
    sentence = stage.wait(AVAILABLE, "False", Reason.CRASH_LOOP_BACK_OFF)
    assert "exit code 1" in sentence
    assert "No module named 'shop'" in sentence


def test_a_quota_that_is_used_up(stage: Stage) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    stage.admin.create("resourcequotas", quota, namespace=stage.namespace)
    eventually(lambda: stage.must("resourcequotas", "few").get("status", {}).get("hard"), 20, what="the quota counts")
    stage.controller()
    stage.apply(replicas=3)
    (name,) = names(stage, 1)
    stage.kubelet.run(name)
    assert "quota" in stage.wait(AVAILABLE, "False", Reason.QUOTA_EXCEEDED)
    stage.admin.delete("resourcequotas", "few", namespace=stage.namespace)


def test_a_child_that_is_not_allowed(stage: Stage) -> None:
    """Here by a quota; a webhook or a missing right look the same, and none is the template's fault."""
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/deployments.apps": "0"}}}
    stage.admin.create("resourcequotas", quota, namespace=stage.namespace)
    eventually(lambda: stage.must("resourcequotas", "none").get("status", {}).get("hard"), 20, what="the quota counts")
    stage.controller()
    stage.apply()
    assert "exceeded quota" in stage.wait(ConditionType.READY, "False", Reason.CHILD_REFUSED)
    assert stage.wait_event(EventReason.CHILD_REFUSED)
    assert stage.condition(ConditionType.STALLED)["status"] == "False"
    stage.admin.delete("resourcequotas", "none", namespace=stage.namespace)
    stage.wait_deployment(timeout=60)


def test_pods_that_the_namespace_does_not_allow(stage: Stage) -> None:
    """l3: what an author asks for beyond the level of the namespace is the API server's to refuse, and is told."""
    stage.controller()
    stage.apply(template=template(hostNetwork=True))
    sentence = stage.wait(AVAILABLE, "False", Reason.POD_SECURITY_REFUSED)
    assert "hostNetwork" in sentence or "host namespaces" in sentence
    stage.change(template=template(hostNetwork=None))
    stage.run_pods(1)
    stage.wait(ConditionType.READY, "True", Reason.READY)


def test_workers_have_no_token_and_few_rights(stage: Stage) -> None:
    """l3: as the API server stored the pod, in a namespace that admits restricted pods only."""
    stage.controller()
    stage.apply(replicas=1)
    (name,) = names(stage, 1)
    pod = stage.kubelet.pod(name)["spec"]
    (worker,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert not [mount for mount in worker["volumeMounts"] if "serviceaccount" in mount["mountPath"]]
    assert worker["securityContext"]["readOnlyRootFilesystem"] is True
    assert worker["terminationMessagePath"] == "/dev/termination-log"
    assert {one["tolerationSeconds"] for one in pod["tolerations"] if "tolerationSeconds" in one} == {30}


def test_nothing_of_a_deployment_is_left_when_pods_are_deleted_by_hand(stage: Stage) -> None:
    stage.controller()
    stage.apply(replicas=2)
    stage.run_pods(2)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    first = stage.pods()[0]["metadata"]["name"]
    stage.kubelet.force_delete(first)
    stage.wait(AVAILABLE, "False")
    stage.run_pods(1 + 1)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    assert stage.must("deployments", child("jobs"))["spec"]["replicas"] == 2
