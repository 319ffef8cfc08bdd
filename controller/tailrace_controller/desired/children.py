"""What all children of a JobQueue have alike: their name, their labels and who owns them.

`deployment` and `disruption_budget` add their own parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.names.labels import COMPONENT_WORKER, MANAGED_BY_TAILRACE, Label, instance, selector
from tailrace.queue_spec import JobQueue

__all__ = ["Context", "child_labels", "child_metadata", "child_name"]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a builder cannot read in the spec.

    Attributes:
        uid: The resource's uid.
        replicas: How many workers there should be now.
        environment: The fingerprint of what the environment refers to (see `references`); None when it refers to nothing.
    """

    uid: str
    replicas: int
    environment: str | None = None


def child_name(name: str) -> str:
    """Return the name of a JobQueue's Deployment and PodDisruptionBudget: at most 59 characters.

    Args:
        name: The JobQueue's metadata.name, at most 52 characters.
    """
    return f"{name}-worker"


def child_labels(resource: JobQueue) -> dict[str, str]:
    """Return the labels of a JobQueue's children and pods.

    Args:
        resource: The JobQueue.
    """
    return {
        **selector(resource.metadata.name),
        str(Label.COMPONENT): COMPONENT_WORKER,
        str(Label.MANAGED_BY): MANAGED_BY_TAILRACE,
        str(Label.INSTANCE): instance(resource.spec.controller_name),
    }


def child_metadata(resource: JobQueue, *, context: Context) -> dict[str, Any]:
    """Return the metadata of a child. The JobQueue's deletion is not held up for it: garbage collection follows.

    Args:
        resource: The JobQueue.
        context: With the resource's uid.
    """
    owner = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": resource.metadata.name,
        "uid": context.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "name": child_name(resource.metadata.name),
        "namespace": resource.metadata.namespace,
        "labels": child_labels(resource),
        "ownerReferences": [owner],
    }
