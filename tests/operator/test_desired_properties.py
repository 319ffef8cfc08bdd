"""What holds for the children of any JobQueue, whatever an author writes."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_controller.desired import Context, TemplateInvalid, child_name, deployment, pod_template, references
from tailrace_controller.desired.overlay import merged
from tests.operator.queue import job_queue, worker

CONTEXT = Context(uid="u-1", replicas=1)
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
DNS = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

names = st.sampled_from(["a", "b", "worker", "tmp", "tailrace-database", "TAILRACE_SLOTS"])
scalars = st.none() | st.booleans() | st.integers(0, 9999) | names
anything = st.recursive(
    scalars,
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["name", "key", "x", "$patch"]), below, max_size=3)
    ),
    max_leaves=6,
)


def fields(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the known fields, mostly as they should be, now and then something else."""
    usual = st.fixed_dictionaries({}, optional=known)
    return usual | st.fixed_dictionaries({}, optional={**known, "other": anything, "$patch": names})


containers = st.lists(
    fields(
        name=names,
        command=st.lists(names, max_size=2),
        env=st.lists(fields(name=names, value=names, valueFrom=anything), max_size=3) | anything,
        ports=st.lists(fields(containerPort=st.sampled_from([80, 9464]), protocol=st.sampled_from(["TCP", "UDP"])), max_size=3),
        volumeMounts=st.lists(fields(name=names, mountPath=names), max_size=3) | anything,
        envFrom=anything,
        livenessProbe=anything,
        terminationMessagePath=names,
        securityContext=fields(readOnlyRootFilesystem=st.booleans()) | anything,
    ),
    max_size=3,
)
pods = fields(
    containers=containers.map(lambda found: [worker(), *(one for one in found if one.get("name") != "worker")]) | containers,
    initContainers=containers | anything,
    volumes=st.lists(fields(name=names, emptyDir=anything, secret=anything), max_size=3) | anything,
    tolerations=anything,
    topologySpreadConstraints=st.lists(fields(topologyKey=names, whenUnsatisfiable=names, maxSkew=st.integers(1, 3)), max_size=3),
    imagePullSecrets=anything,
    securityContext=fields(runAsUser=st.integers(1, 9)) | anything,
    restartPolicy=scalars,
    terminationGracePeriodSeconds=scalars,
)


def parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(inner for below in value.values() for inner in parts(below))]
    if isinstance(value, list):
        return [value, *(inner for below in value for inner in parts(below))]
    return [value]


def attempt(pod: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any] | TemplateInvalid:
    try:
        return pod_template(job_queue(pod=pod, pod_metadata=metadata), context=CONTEXT)
    except TemplateInvalid as problem:
        return problem


@settings(max_examples=400, deadline=None)
@given(pod=pods, metadata=fields(labels=anything, annotations=anything))
def test_a_template_is_refused_by_path_or_has_all_that_is_ours(pod: dict[str, Any], metadata: dict[str, Any]) -> None:
    """Nothing an author writes ends in another error, and nothing takes away what the guarantees rest on."""
    made = attempt(pod, metadata)
    if isinstance(made, TemplateInvalid):
        assert (made.field or "").startswith("spec.template")
        return
    ours = [one for one in made["spec"]["containers"] if one["name"] == "worker"]
    assert len(ours) == 1
    assert ours[0]["command"] == ["tailrace"]
    assert ours[0]["terminationMessagePath"] == "/dev/termination-log"
    assert {one["name"]: one.get("value") for one in ours[0]["env"]}["TAILRACE_SLOTS"] == "10"
    assert made["spec"]["terminationGracePeriodSeconds"] == 45
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["metadata"]["labels"]["tailrace.dev/queue"] == "webhooks"
    database = next(one for one in made["spec"]["volumes"] if one["name"] == "tailrace-database")
    assert database["secret"]["secretName"] == "webhooks-db"
    found = parts(made)
    assert None not in [one for one in found if one is None]
    assert not [key for one in found if isinstance(one, dict) for key in one if key.startswith("$")]
    references(made)


@settings(max_examples=200, deadline=None)
@given(base=pods, over=pods)
def test_merging_twice_is_merging_once(base: dict[str, Any], over: dict[str, Any]) -> None:
    """Else a second reconcile would want another Deployment than the first."""
    try:
        below = merged({}, {"spec": base}, path="spec.template")
        once = merged(below, {"spec": over}, path="spec.template")
    except TemplateInvalid:
        return
    assert merged(once, {"spec": over}, path="spec.template") == once


@settings(deadline=None)
@given(
    name=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", fullmatch=True),
    controller=st.text(min_size=1, max_size=253, alphabet=st.characters(codec="utf-8")),
)
def test_names_and_labels_are_valid_for_any_queue(name: str, controller: str) -> None:
    """jobqueue.md: names of up to 52 characters leave room for what Kubernetes adds to the names of pods."""
    made = deployment(job_queue(name=name, controllerName=controller), context=CONTEXT)
    assert DNS.fullmatch(child_name(name))
    assert len(child_name(name)) + len("-xxxxxxxxxx-xxxxx") <= 76, "a host's name is cut at 63, the pod's name is not"
    for labels in (made["metadata"]["labels"], made["spec"]["template"]["metadata"]["labels"]):
        assert all(LABEL.fullmatch(value) for value in labels.values()), labels
