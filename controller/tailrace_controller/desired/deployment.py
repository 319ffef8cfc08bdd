"""The Deployment of a JobQueue's workers.

The controller alone writes its replicas; whoever else decides about them does so on the JobQueue. `template` has the pods.
"""

from __future__ import annotations

from typing import Any

from tailrace.names.labels import selector
from tailrace.queue_spec import JobQueue
from tailrace_controller.desired.children import Context, child_metadata
from tailrace_controller.desired.template import pod_template

__all__ = ["deployment"]


def deployment(resource: JobQueue, *, context: Context) -> dict[str, Any]:
    """Return the Deployment, for server-side apply.

    Args:
        resource: The JobQueue; it must have a namespace, `database` and `template`.
        context: Its uid, the number of workers, the fingerprint of the environment.

    Raises:
        TemplateInvalid: The template cannot be merged; the error names the path.
        InvalidOption: Another field that a worker needs is missing or wrong.
    """
    rollout = resource.spec.rollout
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(resource, context=context),
        "spec": {
            "replicas": context.replicas,
            "selector": {"matchLabels": selector(resource.metadata.name)},
            "progressDeadlineSeconds": rollout.progress_deadline_seconds,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": rollout.max_surge, "maxUnavailable": rollout.max_unavailable},
            },
            "template": pod_template(resource, context=context),
        },
    }
