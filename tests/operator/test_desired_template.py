"""The pods: restricted by default, the author's fields over that, and over all what is ours."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import InvalidOption
from tailrace_controller.desired import Context, TemplateInvalid, pod_template
from tests.operator.queue import job_queue, worker

CONTEXT = Context(uid="u-1", replicas=1)


def template(**fields: Any) -> dict[str, Any]:
    return pod_template(job_queue(**fields), context=CONTEXT)


def container(made: dict[str, Any], name: str = "worker") -> dict[str, Any]:
    return next(one for one in made["spec"]["containers"] if one["name"] == name)


def variables(made: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(made)["env"]}


def test_pods_are_restricted_by_default() -> None:
    """operator.md 3, l3: numeric user that is not root, no token, no capabilities, a file system that cannot be written."""
    made = template()
    pod, inside = made["spec"]["securityContext"], container(made)["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inside == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert made["spec"]["automountServiceAccountToken"] is False
    assert {"name": "tmp", "emptyDir": {}} in made["spec"]["volumes"]
    assert {"name": "tmp", "mountPath": "/tmp"} in container(made)["volumeMounts"]


def test_an_author_may_loosen_what_is_default() -> None:
    made = template(
        pod={
            "automountServiceAccountToken": True,
            "securityContext": {"runAsUser": 1000, "supplementalGroups": [7]},
            "containers": [worker(securityContext={"readOnlyRootFilesystem": False})],
        }
    )
    assert made["spec"]["automountServiceAccountToken"] is True
    assert made["spec"]["securityContext"]["runAsUser"] == 1000
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True
    assert made["spec"]["securityContext"]["supplementalGroups"] == [7]
    assert container(made)["securityContext"]["readOnlyRootFilesystem"] is False
    assert container(made)["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_what_is_ours_in_the_container_wins() -> None:
    """operator.md 3: command, probes, TAILRACE_…, the place of the last message."""
    probe = {"exec": {"command": ["true"]}}
    given = worker(
        command=["/bin/sh", "-c"],
        livenessProbe=probe,
        readinessProbe=probe,
        startupProbe=probe,
        terminationMessagePath="/elsewhere",
        terminationMessagePolicy="File",
        env=[
            {"name": "TAILRACE_SLOTS", "value": "1"},
            {"name": "TAILRACE_DATABASE_URL", "value": "x"},
            {"name": "A", "value": "b"},
        ],
    )
    made = template(pod={"containers": [given]}, worker={"slots": 7})
    ours = container(made)
    assert ours["command"] == ["tailrace"]
    assert ours["args"] == given["args"]
    assert all("exec" not in ours[name] for name in ("livenessProbe", "readinessProbe", "startupProbe"))
    assert ours["terminationMessagePath"] == "/dev/termination-log"
    assert variables(made)["TAILRACE_SLOTS"] == "7"
    assert "TAILRACE_DATABASE_URL" not in variables(made)
    assert variables(made)["A"] == "b"


def test_other_containers_are_their_authors() -> None:
    given = {"name": "proxy", "image": "p", "command": ["proxy"], "livenessProbe": {"exec": {"command": ["true"]}}}
    made = template(pod={"containers": [given, worker()], "initContainers": [{"name": "wait", "image": "w"}]})
    assert container(made, "proxy") == given
    assert made["spec"]["initContainers"] == [{"name": "wait", "image": "w"}]
    assert [one["name"] for one in made["spec"]["containers"]] == ["worker", "proxy"], "kubectl logs takes the first"


def test_probes_are_as_often_as_the_contract_says() -> None:
    """operator.md 3, DB-12: ready within seconds, dead only after a minute, and an outage of the database restarts nothing."""
    ours = container(template())
    looked = {
        name: (ours[name]["httpGet"]["path"], ours[name]["periodSeconds"], ours[name]["failureThreshold"])
        for name in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    assert looked == {
        "startupProbe": ("/livez", 1, 60),
        "readinessProbe": ("/readyz", 2, 1),
        "livenessProbe": ("/livez", 10, 6),
    }


def test_the_connection_string_is_a_file_and_never_a_variable() -> None:
    """g4, l2: a rotated Secret reaches a worker without a roll-out, and no pod says what is in it."""
    made = template()
    path = variables(made)["TAILRACE_DATABASE_URL_FILE"]
    mount = next(one for one in container(made)["volumeMounts"] if one["name"] == "tailrace-database")
    volume = next(one for one in made["spec"]["volumes"] if one["name"] == "tailrace-database")
    assert path == f"{mount['mountPath']}/uri"
    assert "subPath" not in mount, "such a mount is never refreshed"
    assert mount["readOnly"] is True
    assert volume["secret"]["secretName"] == "webhooks-db"


def test_the_pod_tells_its_worker_who_it_is() -> None:
    """operator.md 5: the worker's id has the pod's UID, which is the proof of its death."""
    found = variables(template())
    paths = {
        name: found[name]["fieldRef"]["fieldPath"] for name in ("TAILRACE_POD_UID", "TAILRACE_POD_NAME", "TAILRACE_NAMESPACE")
    }
    assert paths == {
        "TAILRACE_POD_UID": "metadata.uid",
        "TAILRACE_POD_NAME": "metadata.name",
        "TAILRACE_NAMESPACE": "metadata.namespace",
    }


def test_the_grace_period_is_longer_than_the_drain() -> None:
    """GW-05: the kubelet waits until the worker has given up by itself."""
    assert template()["spec"]["terminationGracePeriodSeconds"] == 45
    assert template(worker={"drainTimeoutSeconds": 100})["spec"]["terminationGracePeriodSeconds"] == 115
    said = {"drainTimeoutSeconds": 100, "terminationGracePeriodSeconds": 105}
    overruled = template(worker=said, pod={"containers": [worker()], "terminationGracePeriodSeconds": 1})
    assert overruled["spec"]["terminationGracePeriodSeconds"] == 105


def test_workers_are_spread_softly_and_leave_a_lost_node_soon() -> None:
    made = template()["spec"]
    assert [(one["topologyKey"], one["whenUnsatisfiable"]) for one in made["topologySpreadConstraints"]] == [
        ("kubernetes.io/hostname", "ScheduleAnyway"),
        ("topology.kubernetes.io/zone", "ScheduleAnyway"),
    ]
    assert all(one["matchLabelKeys"] == ["pod-template-hash"] for one in made["topologySpreadConstraints"])
    assert {(one["key"], one["effect"], one["tolerationSeconds"]) for one in made["tolerations"]} == {
        ("node.kubernetes.io/not-ready", "NoExecute", 30),
        ("node.kubernetes.io/unreachable", "NoExecute", 30),
    }


def test_a_list_of_tolerations_does_not_lose_the_short_ones() -> None:
    """Without them the API server would put in 300 s."""
    mine = [
        {"key": "spot", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 5},
    ]
    found = template(pod={"containers": [worker()], "tolerations": mine})["spec"]["tolerations"]
    assert found[:2] == mine
    assert [one["key"] for one in found[2:]] == ["node.kubernetes.io/unreachable"]
    everything = [{"operator": "Exists"}]
    assert template(pod={"containers": [worker()], "tolerations": everything})["spec"]["tolerations"] == everything


def test_our_labels_win_and_annotations_are_kept() -> None:
    made = template(
        pod_metadata={
            "labels": {"team": "a", "tailrace.dev/queue": "other", "app.kubernetes.io/name": "mine"},
            "annotations": {"example.com/x": "y", "kubectl.kubernetes.io/default-container": "proxy"},
        }
    )["metadata"]
    assert made["labels"]["team"] == "a"
    assert made["labels"]["tailrace.dev/queue"] == "webhooks"
    assert made["labels"]["app.kubernetes.io/name"] == "tailrace-worker"
    assert made["annotations"] == {"example.com/x": "y", "kubectl.kubernetes.io/default-container": "proxy"}


def test_a_restart_is_asked_for_by_an_annotation() -> None:
    moment = "2026-11-27T22:00:00Z"
    made = template(annotations={"tailrace.dev/restarted-at": moment})
    assert made["metadata"]["annotations"]["tailrace.dev/restarted-at"] == moment
    assert template(annotations={"other": moment}) == template()


def test_the_fingerprint_of_the_environment_is_on_the_pods() -> None:
    made = pod_template(job_queue(), context=Context(uid="u-1", replicas=1, environment="abc"))
    assert made["metadata"]["annotations"]["tailrace.dev/environment"] == "abc"


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"pod": {"containers": []}}, "spec.template.spec.containers", "no container 'worker'"),
        ({"pod": {"containers": [{"name": "other"}]}}, "spec.template.spec.containers", "no container 'worker'"),
        (
            {"pod": {"containers": [worker()], "$patch": "replace"}},
            "spec.template.spec.$patch",
            "directive of patches",
        ),
        (
            {"pod": {"containers": [worker(env=[{"$patch": "delete", "name": "A"}])]}},
            "spec.template.spec.containers[0].env[0].$patch",
            "directive of patches",
        ),
        (
            {"pod": {"containers": [worker()], "tolerations": [{"$retainKeys": ["a"]}]}},
            "spec.template.spec.tolerations[0].$retainKeys",
            "directive of patches",
        ),
        (
            {"pod": {"containers": [worker(), worker()]}},
            "spec.template.spec.containers",
            "name 'worker' twice",
        ),
        (
            {"pod": {"containers": [worker(ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}])]}},
            "spec.template.spec.containers[0].ports",
            "containerPort 80 and protocol 'TCP' twice",
        ),
        (
            {"pod": {"containers": [worker()], "volumes": [{"emptyDir": {}}]}},
            "spec.template.spec.volumes[0].name",
            "merged by it",
        ),
        ({"pod": {"containers": [worker()], "volumes": {}}}, "spec.template.spec.volumes", "must be a list"),
        ({"pod": {"containers": [worker()], "volumes": ["tmp"]}}, "spec.template.spec.volumes[0]", "must be an object"),
        (
            {"pod": {"containers": [worker()], "volumes": [{"name": "tailrace-database", "emptyDir": {}}]}},
            "spec.template.spec.volumes[1].name",
            "connection string",
        ),
        ({"pod": {"containers": [worker()], "tolerations": "all"}}, "spec.template.spec.tolerations", "must be a list"),
        ({"pod": {"containers": [worker()], "tolerations": [None]}}, "spec.template.spec.tolerations[0]", "must not be null"),
        (
            {"pod": {"containers": [worker(), {"name": "proxy", "args": ["a", None]}]}},
            "spec.template.spec.containers[1].args[1]",
            "must not be null",
        ),
        ({"pod_metadata": {"labels": {"a": 1}}}, "spec.template.metadata.labels.a", "put it in quotes"),
        ({"pod_metadata": {"labels": ["a"]}}, "spec.template.metadata.labels", "must be an object"),
        ({"pod_metadata": {"finalizers": ["a"]}}, "spec.template.metadata.finalizers", "only labels and annotations"),
    ],
)
def test_what_cannot_be_merged_is_refused_by_its_path(fields: dict[str, Any], path: str, words: str) -> None:
    """operator.md 3: a typed error that names the path."""
    with pytest.raises(TemplateInvalid) as caught:
        template(**fields)
    assert caught.value.field == path
    assert words in str(caught.value)


def test_a_queue_that_a_worker_cannot_be_told_is_no_matter_of_the_template() -> None:
    with pytest.raises(InvalidOption) as caught:
        template(queueName="a=b")
    assert not isinstance(caught.value, TemplateInvalid)
    assert caught.value.field == "spec.queueName"
