"""The JobQueue itself: metadata, spec, and the part of the spec that the database keeps.

`document` turns text into plain documents, `release` tells which fields this release cannot honour yet. In a cluster the
custom resource also requires `database` and `template`; a queue without Kubernetes needs neither.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from tailrace.errors import InvalidOption
from tailrace.queue_spec.base import DNS_LABEL, DaySeconds, Part, QueueName, Sequence, too_long
from tailrace.queue_spec.document import documents, wrong_fields
from tailrace.queue_spec.fleet import Autoscaling, DatabaseReference, DisruptionBudget, PodTemplate, Rollout, Worker
from tailrace.queue_spec.job_rules import DeadLetters, History, JobDefaults, Limits, TaskOverride, repeated
from tailrace.queue_spec.schedule import Schedule

__all__ = ["JobQueue", "JobQueueSpec", "Metadata", "read_resources"]


class JobQueueSpec(Part):
    """What one queue should be."""

    controller_name: Annotated[str, StringConstraints(min_length=1, max_length=253)] = "tailrace.dev/controller"
    """The installation that serves this queue; cannot be changed."""
    queue_name: QueueName | None = None
    """The queue's name in the database; default: metadata.name; cannot be changed."""
    replicas: Annotated[int, Field(ge=0, le=10_000)] = 1
    """Workers, unless autoscaled."""
    latency_target_seconds: DaySeconds = 60
    """How soon a due job should start, in seconds."""
    database: DatabaseReference | None = None
    """Where the database is; required in a cluster."""
    stop_policy: Literal["None", "Hold", "HoldAndDrain"] = "None"
    """Hold: nothing new is claimed. HoldAndDrain: and the fleet goes to zero."""
    exhausted_policy: Literal["DeadLetter", "Discard"] = "DeadLetter"
    """What becomes of a job without attempts left; Discard deletes it."""
    worker: Worker = Worker()
    """How each worker runs."""
    job_defaults: JobDefaults = JobDefaults()
    """Settings of jobs that say nothing else."""
    tasks: Annotated[tuple[TaskOverride, ...], Sequence, Field(max_length=100)] = ()
    """Settings by task."""
    limits: Limits | None = None
    """What runs at a time and per period."""
    dead_letters: DeadLetters = DeadLetters()
    """What becomes of dead letters."""
    history: History | None = None
    """Absent = success deletes the job."""
    schedules: Annotated[tuple[Schedule, ...], Sequence, Field(max_length=200)] = ()
    """Jobs enqueued at given times."""
    autoscaling: Autoscaling = Autoscaling()
    """Who decides how many workers run."""
    rollout: Rollout = Rollout()
    """How a new pod template reaches the fleet."""
    disruption_budget: DisruptionBudget = DisruptionBudget()
    """Whether a PodDisruptionBudget is kept."""
    template: PodTemplate | None = None
    """The pods' overlay; required in a cluster."""

    @field_validator("queue_name")
    @classmethod
    def _queue_fits(cls, value: str | None) -> str | None:
        if value is not None and too_long(value, 128):
            raise ValueError("must be at most 128 bytes of UTF-8: shorten it")
        return value

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        for field, names in (
            ("tasks", [task.name for task in self.tasks]),
            ("schedules", [plan.name for plan in self.schedules]),
        ):
            if twice := repeated(names):
                raise ValueError(f"{field} has the name {twice!r} twice: merge the two entries")
        return self

    def database_part(self) -> dict[str, Any]:
        """Return what the queue's row keeps, as JSON with the resource's own field names.

        Defaults are written out, but for tasks: an entry there says only what its author wrote, since the rest comes
        from the decorator first. Of the fields of pods and of the controller it has those from which the demand is
        worked out, so that everybody can read it there.
        """
        part: dict[str, Any] = {
            "latencyTargetSeconds": self.latency_target_seconds,
            "stopPolicy": self.stop_policy,
            "exhaustedPolicy": self.exhausted_policy,
            "worker": {"lease": _json(self.worker.lease), "slots": self.worker.slots},
            "jobDefaults": _json(self.job_defaults),
        }
        if self.autoscaling.mode != "Disabled":
            part["autoscaling"] = {"targetUtilizationPercent": self.autoscaling.target_utilization_percent}
        if self.dead_letters.model_fields_set:
            part["deadLetters"] = _json(self.dead_letters)
        if self.tasks:
            part["tasks"] = {task.name: _json(task, without={"name"}) for task in self.tasks}
        if self.limits is not None:
            part["limits"] = _json(self.limits)
        if self.history is not None:
            part["history"] = _json(self.history)
        if self.schedules:
            part["schedules"] = [_json(schedule) for schedule in self.schedules]
        return part


class Metadata(Part):
    """The object's name and what others attached to it."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, StringConstraints(pattern=DNS_LABEL, min_length=1, max_length=52)]
    """At most 52 characters, lower case letters, digits and hyphens."""
    namespace: str | None = None
    """The namespace in a cluster."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels, as given."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations, as given."""


class JobQueue(Part):
    """One JobQueue as `kubectl get -o yaml` prints it or a person writes it."""

    api_version: Literal["tailrace.dev/v1alpha1"]
    """The version of these fields."""
    kind: Literal["JobQueue"]
    """Always JobQueue."""
    metadata: Metadata
    """Its name."""
    spec: JobQueueSpec = JobQueueSpec()
    """What it should be."""
    status: dict[str, Any] | None = None
    """What the controller reported; not read here."""

    @property
    def queue(self) -> str:
        """The queue's name in the database."""
        return self.spec.queue_name or self.metadata.name

    @classmethod
    def from_file(cls, text: str) -> JobQueue:
        """Read the text of a file that holds one JobQueue.

        Args:
            text: YAML or JSON.

        Raises:
            InvalidOption: It is no YAML, no JobQueue, or a field is wrong; the message names each such field.
        """
        found = read_resources(text)
        if len(found) != 1:
            raise InvalidOption(f"holds {len(found)} JobQueues", field="file", hint="give a file with one document")
        return found[0]


def read_resources(text: str) -> list[JobQueue]:
    """Read every JobQueue of a text.

    Args:
        text: YAML or JSON, at most 1 MiB; documents are parted by `---`.

    Raises:
        InvalidOption: It is no YAML, a document is no JobQueue, or a field is wrong; the message names each such field.
    """
    try:
        return [JobQueue.model_validate(document) for document in documents(text)]
    except ValidationError as error:
        raise wrong_fields(error) from None


def _json(part: Part, *, without: set[str] | None = None) -> dict[str, Any]:
    return part.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=without)
