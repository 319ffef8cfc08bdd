"""Bad resources are refused when they are applied, with a message that names the field and the remedy."""

from __future__ import annotations

import copy
import functools
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from docs import jobqueue
from docs.jobqueue import Node
from tailrace.queue_spec import JobQueue
from tailrace.queue_spec.document import wrong_fields
from tests.operator.samples import INVALID, documents, expected, resource
from tests.rig.kube.api import Api, ApiError
from tests.rig.kube.cluster import Cluster, Kubectl, wait_established
from tests.rig.kube.fixtures import make_namespace

# Below this many refusals the folder has lost some.
FEWEST = 40


@pytest.fixture(scope="module")
def together(control_plane: Cluster, kube_admin: Api) -> Iterator[Kubectl]:
    """A namespace for all samples, each of which has a name of its own."""
    name = f"t-{secrets.token_hex(5)}"
    make_namespace(kube_admin, name)
    yield control_plane.kubectl(name)
    kube_admin.delete("namespaces", name)


@pytest.mark.parametrize("sample", INVALID, ids=lambda path: path.stem)
def test_an_invalid_sample_is_refused_with_its_message(sample: Path, together: Kubectl) -> None:
    """BF-39, BF-41, l1: all but the last resource of a file are stored; the last is refused for one reason only."""
    said = together.refused("apply", f"--filename={sample}")
    assert expected(sample) in said
    told = [line for line in said.splitlines() if line.startswith("* ") and "rules were not checked" not in line]
    assert len(told) <= 1, "a sample shows one mistake"
    *before, last = documents(sample)
    stored = together(
        "get", "jobqueue", last["metadata"]["name"], "--ignore-not-found", "--output=jsonpath={.metadata.generation}"
    )
    assert stored == ("1" if before else "")


def test_the_samples_are_all_there() -> None:
    assert len(INVALID) >= FEWEST


def test_a_message_names_the_place(kubectl: Kubectl) -> None:
    """A rule over two fields points at the one to change."""
    body = resource("grace", worker={"drainTimeoutSeconds": 60, "terminationGracePeriodSeconds": 60})
    said = kubectl.refused("create", "--filename=-", stdin=body)
    assert "spec.worker.terminationGracePeriodSeconds" in said
    body = resource("limits", autoscaling={"mode": "Operator", "minReplicas": 4, "maxReplicas": 3})
    assert "spec.autoscaling.minReplicas" in kubectl.refused("create", "--filename=-", stdin=body)


def test_several_mistakes_are_told_at_once(kubectl: Kubectl) -> None:
    body = resource("mistakes", worker={"lease": {"durationSeconds": 30}}, schedules=[{"name": "a", "task": "t"}])
    said = kubectl.refused("create", "--filename=-", stdin=body)
    assert "durationSeconds must be more than twice renewPeriodSeconds" in said
    assert "exactly one of cron and everySeconds" in said


@pytest.mark.parametrize("name", ["controllerName", "queueName"])
def test_what_cannot_be_changed_cannot_be_patched_either(name: str, kubectl: Kubectl) -> None:
    kubectl.apply(resource("fixed", **{name: "tailrace.dev/mine"}))
    said = kubectl.refused("patch", "jobqueue", "fixed", "--type=merge", f'--patch={{"spec":{{"{name}":"other"}}}}')
    assert f"{name} cannot be changed" in said
    kubectl("patch", "jobqueue", "fixed", "--type=merge", '--patch={"spec":{"replicas":3}}')


def test_a_scale_is_bounded_too(kubectl: Kubectl) -> None:
    kubectl.apply(resource("wide"))
    assert "10000" in kubectl.refused("scale", "jobqueue", "wide", "--replicas=10001")


def test_a_stricter_definition_lets_what_is_stored_live(kube_admin: Api, kubectl: Kubectl, kube_namespace: str) -> None:
    """A release that tightens a bound or a rule must not lock anybody out of what was valid before.

    It is tried with a definition of the test's own, once loose and once as it is: what offends and is left alone may stay,
    the rest may be changed, status may be written, and what offends cannot be written anew.
    """
    group = f"{kube_namespace}.example"
    strict = jobqueue.crd()
    strict["metadata"]["name"], strict["spec"]["group"] = f"copies.{group}", group
    # Names of its own too: `kubectl get jobqueue` of other tests must not find this one.
    strict["spec"]["names"] = {"kind": "Copy", "listKind": "CopyList", "plural": "copies", "singular": "copy"}
    kube_admin.apply("customresourcedefinitions", loosened(strict))
    try:
        wait_established(kube_admin, f"copies.{group}")
        offending = {"slots": 5000, "lease": {"durationSeconds": 30, "renewPeriodSeconds": 20}}
        body = {**resource("old", worker=offending), "apiVersion": f"{group}/v1alpha1", "kind": "Copy"}
        where = f"/apis/{group}/v1alpha1/namespaces/{kube_namespace}/copies"
        kube_admin.ask("POST", where, body=body)
        kube_admin.apply("customresourcedefinitions", strict)
        _wait_refused(kube_admin, where, body)

        patch = functools.partial(kube_admin.ask, "PATCH", content="application/merge-patch+json")
        changed = patch(f"{where}/old", body={"spec": {"replicas": 2, "worker": {"drainTimeoutSeconds": 9}}})
        assert changed["spec"]["worker"]["slots"] == 5000
        written = patch(f"{where}/old/status", body={"status": {"replicas": 2}})
        assert written["status"]["replicas"] == 2
        with pytest.raises(ApiError, match="less than or equal to 1000"):
            patch(f"{where}/old", body={"spec": {"worker": {"slots": 4999}}})
        with pytest.raises(ApiError, match="more than twice renewPeriodSeconds"):
            patch(f"{where}/old", body={"spec": {"worker": {"lease": {"durationSeconds": 31}}}})
        better = {"spec": {"worker": {"slots": 10, "lease": {"durationSeconds": 60}}}}
        assert patch(f"{where}/old", body=better)["spec"]["worker"]["slots"] == 10
    finally:
        kube_admin.delete("customresourcedefinitions", f"copies.{group}")


def loosened(crd: dict[str, Any]) -> dict[str, Any]:
    """Return a definition without rules and with a larger bound for slots."""
    loose = copy.deepcopy(crd)
    (version,) = loose["spec"]["versions"]
    root = Node("", version["schema"]["openAPIV3Schema"])
    for node in jobqueue.nodes(root):
        node.schema.pop("x-kubernetes-validations", None)
        if node.path == "spec.worker.slots":
            node.schema["maximum"] = 10000
    return loose


def _wait_refused(api: Api, where: str, body: dict[str, Any]) -> None:
    """Wait until the stricter definition is the one that is served."""
    from tests.rig.waiting import eventually

    def refused() -> bool:
        another = {**body, "metadata": {"name": "another"}}
        try:
            api.ask("POST", where, body=another, query={"dryRun": "All"})
        except ApiError as error:
            return bool(re.search("less than or equal to 1000", error.sentence))
        return False

    eventually(refused, 20, what="the stricter definition")


JUDGED_LATER = [
    ({"cron": "61 * * * *"}, r"spec\.schedules\[0\]\.cron"),
    ({"cron": "0 0 30 2 *"}, r"spec\.schedules\[0\]\.cron"),
    ({"everySeconds": 5, "timeZone": "Mars/Olympus"}, r"spec\.schedules\[0\]\.timeZone"),
    ({"everySeconds": 5, "payload": {"x": "y" * 2048}}, r"spec\.schedules\[0\]\.payload"),
    ({"everySeconds": 5, "payload": {"x": "\0"}}, r"spec\.schedules\[0\]\.payload"),
]


@pytest.mark.parametrize(("fields", "place"), JUDGED_LATER, ids=["line", "day", "zone", "size", "nul"])
def test_what_rules_cannot_judge_is_stored_and_named_by_the_models(
    fields: dict[str, Any], place: str, kube_admin: Api, kube_namespace: str
) -> None:
    """No rule can read a crontab line, know the zones or look into a payload: the controller's condition tells it."""
    body = resource("later", schedules=[{"name": "a", "task": "t", **fields}])
    stored = kube_admin.create("jobqueues", body, namespace=kube_namespace)
    with pytest.raises(ValidationError) as refused:
        JobQueue.model_validate(stored)
    assert re.match(place, str(wrong_fields(refused.value)))
