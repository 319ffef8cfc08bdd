"""The JobQueue resource as models: one definition for the command line, the queue table and the controller.

`JobQueue.from_file` reads a document, `JobQueueSpec.database_part` is what the queue's row keeps, `unsupported` names
the fields that this release would ignore. The operator's schema of the custom resource is tested against these models.
"""

from tailrace.queue_spec.container import (
    Container,
    Variable,
    expanded,
    worker_container,
    worker_environment,
)
from tailrace.queue_spec.fleet import (
    Autoscaling,
    DatabaseReference,
    DisruptionBudget,
    PodTemplate,
    Rollout,
    Worker,
)
from tailrace.queue_spec.job_rules import (
    AutoRequeue,
    Backoff,
    DeadLetters,
    History,
    JobDefaults,
    Limits,
    Rate,
    TaskOverride,
)
from tailrace.queue_spec.release import refuse_unsupported, unsupported
from tailrace.queue_spec.resource import JobQueue, JobQueueSpec, Metadata, read_resources
from tailrace.queue_spec.schedule import Schedule

__all__ = [
    "AutoRequeue",
    "Autoscaling",
    "Backoff",
    "Container",
    "DatabaseReference",
    "DeadLetters",
    "DisruptionBudget",
    "History",
    "JobDefaults",
    "JobQueue",
    "JobQueueSpec",
    "Limits",
    "Metadata",
    "PodTemplate",
    "Rate",
    "Rollout",
    "Schedule",
    "TaskOverride",
    "Variable",
    "Worker",
    "expanded",
    "read_resources",
    "refuse_unsupported",
    "unsupported",
    "worker_container",
    "worker_environment",
]
