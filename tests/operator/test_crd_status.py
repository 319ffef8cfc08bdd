"""The status that the controller writes is kept by the API server whole: a field that the schema lacks would be dropped."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from docs import jobqueue
from tailrace.names.conditions import Reason
from tailrace.queue_spec import JobQueue
from tailrace_controller.observed import Autoscaling, DatabaseSeen, Observed, PodFacts, Problem, QueueSeen, SecretSeen
from tailrace_controller.status import status
from tests.operator.samples import paths, resource
from tests.rig.kube.api import Api, ApiError, Body

NOW = datetime(2026, 11, 27, 22, 0, tzinfo=UTC)
STATES = ("ready", "scheduled", "retrying", "blocked", "held", "unclaimable", "running", "stale", "dead")


def everything_seen(stored: Body) -> Observed:
    """Return what a reconcile sees of a queue in full swing."""
    earlier = NOW - timedelta(minutes=7)
    deployment = {
        "metadata": {"generation": 3},
        "spec": {"replicas": 5},
        "status": {"observedGeneration": 3, "replicas": 5, "readyReplicas": 4, "updatedReplicas": 5, "terminatingReplicas": 1},
    }
    pods = (
        PodFacts(name="a-1", uid="1", ready=True),
        PodFacts(name="a-2", uid="2", problem=Problem(reason=Reason("ImagePullBackOff"), message="no such image")),
        PodFacts(name="a-3", uid="3", terminating=True),
    )
    return Observed(
        raw=stored,
        resource=JobQueue.model_validate(stored),
        now=NOW,
        controller_version="1.4.0",
        secret=SecretSeen(observed_time=earlier),
        database=DatabaseSeen(address="db.team-a.svc:5432/app", reached=True, installation_id="5b1c0b1e-0000", schema_version=13),
        queue=QueueSeen(
            counts={state: number * 1000 for number, state in enumerate(STATES, start=1)},
            oldest_ready_time=earlier,
            oldest_dead_letter_time=earlier,
            stats_time=NOW,
            worker_versions={"1.4.0": 4, "1.3.2": 1},
        ),
        settled=True,
        deployment=deployment,
        wanted=5,
        pods=pods,
        autoscaling=Autoscaling(
            desired_replicas=5,
            demand={"flow": 1.2, "drain": 2.1, "busy": 3.4, "total": 3.4},
            limited_by="ScaleUpRate",
            last_scale_time=earlier,
            next_wake_time=NOW,
        ),
    )


@pytest.fixture
def stored(kube_admin: Api, kube_namespace: str) -> Body:
    body = resource("full", autoscaling={"mode": "Operator", "minReplicas": 0, "maxReplicas": 20})
    return kube_admin.create("jobqueues", body, namespace=kube_namespace)


def write(api: Api, stored: Body, wanted: Body) -> Body:
    """Write a status as the controller does, and return what is kept."""
    metadata = {name: stored["metadata"][name] for name in ("name", "namespace")}
    body = {"apiVersion": stored["apiVersion"], "kind": stored["kind"], "metadata": metadata, "status": wanted}
    where = f"/apis/tailrace.dev/v1alpha1/namespaces/{metadata['namespace']}/jobqueues/{metadata['name']}/status"
    query = {"fieldManager": "tailrace-controller-status", "force": "true", "fieldValidation": "Strict"}
    return dict(api.ask("PATCH", where, body=body, query=query, content="application/apply-patch+yaml")["status"])


def test_a_full_status_is_kept_whole(stored: Body, kube_admin: Api) -> None:
    wanted = status(everything_seen(stored))
    kept = write(kube_admin, stored, wanted)
    assert kept == wanted
    schema = jobqueue.Node("status", jobqueue.schema()["properties"]["status"])
    never = (
        {node.path for node in jobqueue.nodes(schema)} - set(paths(kept, "status")) - {"status.conditions[].observedGeneration"}
    )
    assert not never, "the schema has fields that the controller never writes"


def test_a_status_of_bad_news_is_kept_too(stored: Body, kube_admin: Api) -> None:
    seen = everything_seen(stored)
    away = Problem(reason=Reason("DatabaseUnavailable"), message="No answer. " + "x" * 40_000)
    bad = replace(
        seen,
        database=DatabaseSeen(address="db.team-a.svc:5432/app", reached=False, problem=away),
        queue=None,
        settled=None,
        conflict="The queue belongs to team-b/other.",
        name_taken="There is a Deployment of that name.",
        template_refused="spec.template.spec.containers[0].image: Required value",
        autoscaler_conflict="HorizontalPodAutoscaler x points at the Deployment.",
    )
    wanted = status(bad)
    assert write(kube_admin, stored, wanted) == wanted


def test_a_status_that_makes_no_sense_is_refused(stored: Body, kube_admin: Api) -> None:
    with pytest.raises(ApiError, match="limitedBy"):
        write(kube_admin, stored, {"autoscaling": {"limitedBy": "Mood"}})
    with pytest.raises(ApiError, match="replica"):
        write(kube_admin, stored, {"replica": 3})
