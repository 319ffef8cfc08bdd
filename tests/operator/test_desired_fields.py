"""Which fields of a JobQueue roll its workers: those that reach a pod, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from docs import jobqueue
from tailrace.queue_spec import JobQueue
from tailrace_controller.desired import Context, deployment, disruption_budget, pod_template
from tests.operator.children import placed
from tests.operator.queue import job_queue, worker

CONTEXT = Context(uid="u-1", replicas=2)

REACH_PODS = {
    "database.secretRef.name",
    "database.secretRef.key",
    "database.schemaName",
    "database.maxConnectionsPerWorker",
    "database.notifications",
    "worker.slots",
    "worker.drainTimeoutSeconds",
    "worker.terminationGracePeriodSeconds",
    "worker.pollPeriodSeconds",
    "worker.logging.format",
    "worker.logging.level",
    "template.metadata",
    "template.spec",
}
CANNOT_CHANGE = {"queueName", "controllerName"}  # on the pods too, but the API server refuses another value
REACH_CHILDREN = {
    "rollout.maxSurge",
    "rollout.maxUnavailable",
    "rollout.progressDeadlineSeconds",
    "disruptionBudget.policy",
    "disruptionBudget.maxUnavailable",
}


def full() -> JobQueue:
    """A resource with every field, none of which hides another."""
    rate = {"name": "all", "jobs": 10, "periodSeconds": 60, "burst": 5, "tasks": ["a"]}
    rules = {"stabilizationWindowSeconds": 1, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}
    plan = {"name": "a", "cron": "1 2 * * *", "task": "t", "priority": 1, "maxAttempts": 2, "key": "k", "onDuplicate": "Skip"}
    task = {"priority": 1, "timeoutSeconds": 1, "maxAttempts": 1, "maxInterruptions": 1, "concurrencyLimit": 1, "backoff": {}}
    resource = job_queue(
        queueName="webhooks",
        replicas=2,
        worker={"terminationGracePeriodSeconds": 60},
        tasks=[{"name": "a", **task}],
        limits={"concurrency": 2, "rates": [rate]},
        deadLetters={"autoRequeue": {"afterSeconds": 60, "maxTimes": 1, "errorTypes": ["timeout"]}},
        history={"retentionSeconds": 60},
        schedules=[plan],
        autoscaling={"mode": "HPA", "maxReplicas": 4, "hpa": {}, "behavior": {"scaleUp": rules, "scaleDown": rules}},
        pod={"containers": [worker()]},
        pod_metadata={"labels": {"team": "a"}},
    )
    keda = type(resource.spec.autoscaling).model_fields["keda"].annotation
    model = next(part for part in get_args(keda) if isinstance(part, type) and issubclass(part, BaseModel))
    scaling = resource.spec.autoscaling.model_copy(update={"keda": model()})
    schedule = resource.spec.schedules[0].model_copy(update={"every_seconds": 5})
    spec = resource.spec.model_copy(update={"autoscaling": scaling, "schedules": (schedule,)})
    return placed(resource.model_copy(update={"spec": spec}))


def changes(part: BaseModel, path: str = "") -> Iterator[tuple[str, BaseModel]]:
    """Yield each leaf's path with a copy of the whole in which only this leaf is another."""
    for name, info in type(part).model_fields.items():
        place = f"{path}.{info.alias}" if path else str(info.alias)
        value = getattr(part, name)
        inner: Iterator[tuple[str, Any]]
        if isinstance(value, BaseModel):
            inner = ((below, copy) for below, copy in changes(value, place))
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            inner = ((below, (copy, *value[1:])) for below, copy in changes(value[0], f"{place}[]"))
        else:
            inner = iter([(place, other(value, info.annotation))])
        for below, copy in inner:
            yield below, part.model_copy(update={name: copy})


def other(value: Any, annotation: Any) -> Any:
    """Return a value that differs, of the same type; no model looks at it again."""
    choices = [choice for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal for choice in get_args(part)]
    if choices:
        return next(choice for choice in choices if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value}1"
    if isinstance(value, tuple):
        return (*value, "more")
    if isinstance(value, dict):
        return {**value, "annotations": {"a": "b"}} if "labels" in value else {**value, "priorityClassName": "high"}
    raise AssertionError(f"{value!r} is not set in the full resource, so nothing would be tried with it")


def test_only_fields_that_reach_a_pod_roll_the_workers() -> None:
    """jobqueue.md: a new limit or schedule rolls nothing."""
    resource = full()
    before = pod_template(resource, context=CONTEXT)
    rolled = {
        path
        for path, spec in changes(resource.spec)
        if pod_template(resource.model_copy(update={"spec": spec}), context=CONTEXT) != before
    }
    assert rolled == REACH_PODS | CANNOT_CHANGE


def test_other_fields_of_the_children_change_them_and_no_pod() -> None:
    resource = full()

    def made(one: JobQueue) -> list[Any]:
        return [deployment(one, context=CONTEXT), disruption_budget(one, context=CONTEXT)]

    reached = {
        path for path, spec in changes(resource.spec) if made(resource.model_copy(update={"spec": spec})) != made(resource)
    }
    assert reached == REACH_PODS | CANNOT_CHANGE | REACH_CHILDREN


def test_every_field_of_the_custom_resource_was_tried() -> None:
    tried = {path for path, _ in changes(full().spec)}
    assert tried >= REACH_PODS | CANNOT_CHANGE | REACH_CHILDREN
    leaves = {
        node.path.removeprefix("spec.").removesuffix("[]")
        for node in jobqueue.nodes(jobqueue.Node("spec", jobqueue.schema()["properties"]["spec"], required=True))
        if node.type not in ("object", "list of object")
        and not node.path.startswith(("spec.template.", "spec.schedules[].payload"))
    }
    assert {path for path in leaves if path not in tried} == set()


def test_the_number_of_workers_rolls_nothing() -> None:
    resource = full()
    more = deployment(resource, context=Context(uid="u-1", replicas=9))
    assert more["spec"]["template"] == deployment(resource, context=CONTEXT)["spec"]["template"]
