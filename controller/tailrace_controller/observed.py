"""What one reconcile saw: the resource, its database, its children and pods, as plain values.

`reconcile` fills it, `status` makes the whole status document of it. Nothing here talks to anybody; all moments are aware
datetimes, and what was not looked at is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tailrace.names.annotations import is_paused
from tailrace.names.conditions import Reason
from tailrace.queue_spec import JobQueue

__all__ = ["Autoscaling", "DatabaseSeen", "Observed", "PodFacts", "Problem", "QueueSeen", "SecretSeen"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that is not as it should be.

    Attributes:
        reason: What a machine tells it by.
        message: A sentence for people that says what to do; without secrets.
    """

    reason: Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class SecretSeen:
    """The Secret with the connection string.

    Attributes:
        observed_time: When its present content was first seen.
        problem: Why there is no connection string to be had; None when there is one.
    """

    observed_time: datetime | None = None
    problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class DatabaseSeen:
    """The database behind the Secret.

    Attributes:
        address: host:port/dbname, without user and password.
        reached: Whether it answered; None when it was not asked.
        installation_id: Its identity marker.
        schema_version: The last migration that it has.
        problem: Why it cannot be used. Of a database that answered, this is about its schema or our rights in it,
            unless the reason is DatabaseChanged.
    """

    address: str | None = None
    reached: bool | None = None
    installation_id: str | None = None
    schema_version: int | None = None
    problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class QueueSeen:
    """The queue in the database, from the last published reading. All moments are by the database's clock.

    Attributes:
        counts: Jobs by state: ready, scheduled, retrying, blocked, held, unclaimable, running, stale, dead; others are
            not looked at.
        oldest_ready_time: Since when the oldest ready job waits.
        oldest_dead_letter_time: When the oldest open dead letter came.
        stats_time: When it was counted.
        held: Whether people or the stop policy hold the queue.
        worker_versions: Living workers by their version.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    oldest_ready_time: datetime | None = None
    oldest_dead_letter_time: datetime | None = None
    stats_time: datetime | None = None
    held: bool = False
    worker_versions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Autoscaling:
    """What autoscaling says; only in mode Operator.

    Attributes:
        desired_replicas: How many workers there should be.
        demand: flow, drain, busy and total in workers; empty before the first reading.
        limited_by: Why it is not simply the demand, one of `tailrace.demand.LimitedBy` or of the scale-down rules.
        last_scale_time: When it last changed.
        next_wake_time: When the next scheduled job of a queue without workers is due.
    """

    desired_replicas: int
    demand: Mapping[str, float] = field(default_factory=dict)
    limited_by: str = "None"
    last_scale_time: datetime | None = None
    next_wake_time: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class PodFacts:
    """What is remembered of one pod; made by `status.pods.pod_facts`.

    Attributes:
        name: Its name.
        uid: Its uid.
        ready: Whether it takes work.
        terminating: Whether it was told to end.
        ended: Whether all its containers have ended for good (phase Succeeded or Failed).
        problem: Why it is not ready, when that is more than a matter of time.
    """

    name: str
    uid: str
    ready: bool = False
    terminating: bool = False
    ended: bool = False
    problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class Observed:
    """All that one reconcile saw and decided about one JobQueue.

    Attributes:
        raw: The resource as the API server sent it.
        resource: The same as a model; None when the models refuse it.
        now: The moment, for transition times.
        controller_version: The version of this controller.
        invalid: Why the models refuse the resource: a sentence with field, problem and remedy.
        secret: The Secret; None when it was not read.
        database: The database; None when it was not asked.
        conflict: Why the queue belongs to another JobQueue; the sentence names the owner and the way to take over.
        queue: What the database says of the queue; None when it was not asked.
        settled: Whether the queue's row has this generation's settings; None when that was not tried.
        deployment: The Deployment as it is after this reconcile; None when there is none.
        wanted: The replicas that the controller wants; None when nothing could be decided.
        name_taken: A sentence about an object of a child's name that is not ours.
        template_refused: The API server's sentence, or the builder's, about the pods' template.
        child_refused: The API server's sentence about a child, when it is not about the template.
        rollout_waiting: What a new template waits for; None when nothing waits.
        autoscaler_conflict: A sentence about an autoscaler on the Deployment; None when there is none.
        pods: What is remembered of the pods of the Deployment.
        autoscaling: What autoscaling says; None when it was not worked out.
    """

    raw: Mapping[str, Any]
    resource: JobQueue | None
    now: datetime
    controller_version: str
    invalid: str | None = None
    secret: SecretSeen | None = None
    database: DatabaseSeen | None = None
    conflict: str | None = None
    queue: QueueSeen | None = None
    settled: bool | None = None
    deployment: Mapping[str, Any] | None = None
    wanted: int | None = None
    name_taken: str | None = None
    template_refused: str | None = None
    child_refused: str | None = None
    rollout_waiting: str | None = None
    autoscaler_conflict: str | None = None
    pods: tuple[PodFacts, ...] = ()
    autoscaling: Autoscaling | None = None

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self.raw["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return str(self.raw["metadata"]["namespace"])

    @property
    def generation(self) -> int:
        """metadata.generation."""
        return int(self.raw["metadata"].get("generation", 0))

    @property
    def paused(self) -> bool:
        """Whether the annotation makes the controller leave the children alone."""
        return is_paused(self.raw["metadata"].get("annotations"))

    @property
    def previous(self) -> Mapping[str, Any]:
        """The status as it was; before the first it has no more than observedGeneration -1."""
        return self.raw.get("status") or {}
