"""The container `worker` of a template, and the settings that a resource says to a worker."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidOption
from tailrace.queue_spec import JobQueue, JobQueueSpec, expanded, worker_container, worker_environment
from tailrace.settings import WorkerSettings

HEAD = "apiVersion: tailrace.dev/v1alpha1\nkind: JobQueue\nmetadata: {name: webhooks}\n"


def resource(spec: str) -> JobQueue:
    return JobQueue.from_file(f"{HEAD}spec: {spec}")


def test_the_container_is_found_among_others_and_the_rest_is_left_alone() -> None:
    found = worker_container(
        resource(
            "{template: {spec: {containers: [{name: proxy, image: p}, {name: worker, image: x, args: [worker, 'a:b'],"
            " resources: {limits: {memory: 1Gi}}, env: [{name: A, value: '1'},"
            " {name: B, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]}]}}}"
        )
    )
    assert (found.command, found.args) == ((), ("worker", "a:b"))
    assert [(v.name, v.value) for v in found.env] == [("A", "1"), ("B", None)]
    assert found.env[1].value_from is not None
    assert found.env[1].value_from.secret_key_ref is not None
    assert found.env[1].value_from.secret_key_ref.optional


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("{}", "spec.template.spec.containers: has no container 'worker'"),
        ("{template: {spec: {containers: [{name: other}]}}}", "has no container 'worker'"),
        ("{template: {spec: {containers: {name: worker}}}}", "has no container 'worker'"),
        ("{template: {spec: {containers: [{name: worker, args: 7}]}}}", r"spec.template.spec.containers\[0\]: args"),
        ("{template: {spec: {containers: [{name: worker, env: [{name: A, value: 7}]}]}}}", r"env\[0\].value"),
    ],
)
def test_what_is_wrong_is_named(spec: str, named: str) -> None:
    """BF-39: by its path, with what to do."""
    with pytest.raises(InvalidOption, match=named):
        worker_container(resource(spec))


def test_the_settings_of_a_worker() -> None:
    assert worker_environment(resource("{worker: {slots: 3, drainTimeoutSeconds: 9, pollPeriodSeconds: 2}}")) == {
        "TAILRACE_QUEUES": "webhooks",
        "TAILRACE_SLOTS": "3",
        "TAILRACE_DRAIN_TIMEOUT_SECONDS": "9",
        "TAILRACE_POLL_SECONDS": "2",
        "TAILRACE_LOG_FORMAT": "json",
        "TAILRACE_LOG_LEVEL": "info",
    }
    polling = worker_environment(
        resource("{queueName: other, database: {secretRef: {name: a, key: b}, schemaName: jobs, notifications: Poll}}")
    )
    assert (polling["TAILRACE_QUEUES"], polling["TAILRACE_SCHEMA"], polling["TAILRACE_NOTIFY"]) == ("other", "jobs", "false")
    with pytest.raises(InvalidOption, match=r"spec\.queueName"):
        worker_environment(resource("{queueName: 'a=b'}"))


@pytest.mark.parametrize("name", ["webhooks", "two words", "a,b", "[x]", "名前"])
def test_a_worker_reads_the_name_of_its_queue_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = JobQueue.from_file(HEAD).model_copy(update={"spec": JobQueueSpec(queue_name=name)})
    monkeypatch.setenv("TAILRACE_QUEUES", worker_environment(found)["TAILRACE_QUEUES"])
    assert WorkerSettings.load().queues == (name,)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("plain", "plain"), ("$(A)-$(B)", "1-2"), ("$(UNKNOWN)", "$(UNKNOWN)"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$$", "$"),
        ("$A", "$A"), ("", ""),
    ],
)  # fmt: skip
def test_variables_are_put_in_as_the_kubelet_does(text: str, means: str) -> None:
    assert expanded(text, {"A": "1", "B": "2"}) == means
