"""The PodDisruptionBudget: how many workers a drain of nodes may take at a time.

Never none, since a budget of zero stops every drain; and pods that are not ready may always go, since a database that is
away would otherwise do the same.
"""

from __future__ import annotations

from typing import Any

from tailrace.names.labels import selector
from tailrace.queue_spec import JobQueue
from tailrace_controller.desired.children import Context, child_metadata

__all__ = ["disruption_budget"]


def disruption_budget(resource: JobQueue, *, context: Context) -> dict[str, Any] | None:
    """Return the PodDisruptionBudget, for server-side apply; None when there should be none.

    Args:
        resource: The JobQueue.
        context: Its uid.
    """
    budget = resource.spec.disruption_budget
    if budget.policy == "None" or _most(resource) <= 1:
        return None
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child_metadata(resource, context=context),
        "spec": {
            "maxUnavailable": 1 if budget.max_unavailable in (0, "0%") else budget.max_unavailable,
            "selector": {"matchLabels": selector(resource.metadata.name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _most(resource: JobQueue) -> int:
    """A single worker needs no budget: one would allow its eviction anyway."""
    scaling = resource.spec.autoscaling
    if scaling.mode == "Disabled" or scaling.max_replicas is None:
        return resource.spec.replicas
    return scaling.max_replicas
