"""What a JobQueue says about its workers: database, pods, autoscaling, roll-outs.

The controller and `tailrace dev` read these fields; the queue's row keeps the lease and what the demand is worked out
from. They are here so that one file is checked alike by the command line and by the controller.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from tailrace.queue_spec.base import IntOrPercent, Part, Sequence

__all__ = [
    "Autoscaling",
    "Behavior",
    "DatabaseReference",
    "DisruptionBudget",
    "Hpa",
    "Keda",
    "Lease",
    "Logging",
    "PodTemplate",
    "Rollout",
    "ScalingPolicy",
    "ScalingRules",
    "SecretReference",
    "Worker",
]

_GRACE_AFTER_DRAIN_SECONDS = 5


class SecretReference(Part):
    """A key of a Secret in the same namespace."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """The Secret's name."""
    key: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """The key that holds the connection string."""


class DatabaseReference(Part):
    """Where the queue's database is."""

    secret_ref: SecretReference
    """Mounted as a file and read again at each connect."""
    schema_name: Annotated[str, StringConstraints(min_length=1, max_length=63)] = "tailrace"
    """The schema that holds Tailrace's tables."""
    migration_policy: Literal["Automatic", "Manual"] = "Automatic"
    """Whether the controller migrates."""
    max_connections_per_worker: Literal[2, 3] = 3
    """2 turns LISTEN off."""
    notifications: Literal["Listen", "Poll"] = "Listen"
    """Poll behind a pooler in transaction mode."""


class Lease(Part):
    """How long a worker's right to its jobs lasts without a heartbeat."""

    duration_seconds: Annotated[int, Field(ge=3, le=3600)] = 60
    """The lease, in seconds."""
    renew_period_seconds: Annotated[int, Field(ge=1, le=1200)] = 20
    """The heartbeat, in seconds."""

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.duration_seconds <= 2 * self.renew_period_seconds:
            raise ValueError(
                "durationSeconds must be more than twice renewPeriodSeconds: raise durationSeconds or lower renewPeriodSeconds"
            )
        return self


class Logging(Part):
    """How workers log."""

    format: Literal["JSON", "Text"] = "JSON"
    """One JSON object a line, or text."""
    level: Literal["Debug", "Info", "Warning", "Error"] = "Info"
    """The least level that is written."""


class Worker(Part):
    """One worker process."""

    slots: Annotated[int, Field(ge=1, le=1000)] = 10
    """Jobs that one worker runs at a time."""
    drain_timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] = 30
    """How long a stopping worker lets its jobs run, in seconds."""
    termination_grace_period_seconds: Annotated[int, Field(ge=6, le=90_000)] | None = None
    """How long the kubelet waits, in seconds; default: drainTimeoutSeconds + 15."""
    poll_period_seconds: Annotated[int, Field(ge=1, le=60)] = 1
    """How often an idle worker looks, in seconds."""
    lease: Lease = Lease()
    """The lease and its renewal."""
    logging: Logging = Logging()
    """Format and level."""

    @model_validator(mode="after")
    def _grace_covers_drain(self) -> Self:
        grace = self.termination_grace_period_seconds
        if grace is not None and grace < self.drain_timeout_seconds + _GRACE_AFTER_DRAIN_SECONDS:
            raise ValueError(
                "terminationGracePeriodSeconds must be at least drainTimeoutSeconds + 5: raise it, or leave it out for + 15"
            )
        return self


class ScalingPolicy(Part):
    """How much the fleet may change in a period."""

    type: Literal["Percent", "Pods"]
    """The unit of value."""
    value: Annotated[int, Field(ge=1, le=10_000)]
    """The change."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """The period, in seconds."""


class ScalingRules(Part):
    """The rules of one direction, as in autoscaling/v2."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """How far back the most careful recommendation counts, in seconds; default 0 up, 300 down."""
    select_policy: Literal["Max", "Min", "Disabled"] = "Max"
    """Which policy counts when there are several."""
    policies: Annotated[tuple[ScalingPolicy, ...], Sequence, Field(max_length=10)] = ()
    """Absent = the defaults of autoscaling/v2."""


class Behavior(Part):
    """How fast the fleet grows and shrinks."""

    scale_up: ScalingRules = ScalingRules()
    """Growing."""
    scale_down: ScalingRules = ScalingRules()
    """Shrinking."""


class Hpa(Part):
    """What a HorizontalPodAutoscaler looks at."""

    metric: Literal["DesiredWorkers", "ReadyJobs"] = "DesiredWorkers"
    """The external metric."""
    average_value: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Its target for each pod."""


class Keda(Part):
    """Settings of the ScaledObject."""

    polling_period_seconds: Annotated[int, Field(ge=1, le=3600)] = 15
    """How often KEDA asks, in seconds."""
    cooldown_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """How long before it scales to zero, in seconds."""
    fallback_replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Replicas while the reading fails; never 0."""


class Autoscaling(Part):
    """Who decides how many workers run."""

    mode: Literal["Disabled", "Operator", "HPA", "KEDA"] = "Disabled"
    """Disabled: spec.replicas counts."""
    min_replicas: Annotated[int, Field(ge=0, le=10_000)] = 1
    """The fewest workers."""
    max_replicas: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """The most workers; required unless Disabled."""
    target_utilization_percent: Annotated[int, Field(ge=1, le=100)] = 75
    """How busy the slots should be."""
    behavior: Behavior = Behavior()
    """How fast it goes."""
    hpa: Hpa | None = None
    """Only in mode HPA."""
    keda: Keda | None = None
    """Only in mode KEDA."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mode == "Disabled" and self.min_replicas == 0:
            raise ValueError("minReplicas 0 needs autoscaling: set mode, or use spec.replicas 0")
        if self.mode != "Disabled" and self.max_replicas is None:
            raise ValueError(f"maxReplicas is required in mode {self.mode}: add it")
        if self.max_replicas is not None and self.min_replicas > self.max_replicas:
            raise ValueError("minReplicas must not exceed maxReplicas: lower minReplicas or raise maxReplicas")
        for name, value, mode in (("hpa", self.hpa, "HPA"), ("keda", self.keda, "KEDA")):
            if value is not None and self.mode != mode:
                raise ValueError(f"{name} counts only in mode {mode}: remove it or set mode: {mode}")
        return self


class Rollout(Part):
    """How a new pod template reaches the fleet."""

    policy: Literal["Paced", "Immediate"] = "Paced"
    """Paced waits for drains and keeps a limit over all queues."""
    max_surge: IntOrPercent = "25%"
    """Workers beyond the number wanted."""
    max_unavailable: IntOrPercent = "25%"
    """Workers that may be missing."""
    progress_deadline_seconds: Annotated[int, Field(ge=1, le=86_400)] = 600
    """When a roll-out counts as stuck, in seconds."""


class DisruptionBudget(Part):
    """Whether a PodDisruptionBudget is kept."""

    policy: Literal["Managed", "None"] = "Managed"
    """None = no budget."""
    max_unavailable: IntOrPercent = "25%"
    """Workers that may be evicted at a time."""


class PodTemplate(Part):
    """An overlay in the shape of PodTemplateSpec, merged by key; its inside is the API server's to judge."""

    metadata: dict[str, Any] = Field(default_factory=dict)
    """Labels and annotations of the pods."""
    spec: dict[str, Any] = Field(default_factory=dict)
    """The pod spec's overlay; the container named worker is ours."""
