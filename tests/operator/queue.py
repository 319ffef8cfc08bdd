"""One JobQueue for tests of pure functions, with a line for what is different in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.queue_spec import JobQueue

__all__ = ["document", "job_queue", "worker"]


def worker(**fields: Any) -> dict[str, Any]:
    """Return a container worker."""
    return {"name": "worker", "image": "registry.example/shop:1.0.0", "args": ["worker", "shop.jobs:app"], **fields}


def document(
    *,
    name: str = "webhooks",
    pod: Mapping[str, Any] | None = None,
    pod_metadata: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a JobQueue as an API server would send it, but for defaults.

    Args:
        name: Its name.
        pod: `template.spec`; the container worker alone by default.
        pod_metadata: `template.metadata`.
        annotations: Of the JobQueue.
        status: Its status so far.
        **spec: Other fields of the spec.
    """
    template = {"metadata": dict(pod_metadata or {}), "spec": dict(pod or {"containers": [worker()]})}
    metadata = {"name": name, "namespace": "team-a", "uid": "u-1", "generation": 3, "annotations": dict(annotations or {})}
    return {
        "apiVersion": "tailrace.dev/v1alpha1",
        "kind": "JobQueue",
        "metadata": metadata,
        "spec": {"database": {"secretRef": {"name": "webhooks-db", "key": "uri"}}, "template": template, **spec},
        **({"status": dict(status)} if status is not None else {}),
    }


def job_queue(**fields: Any) -> JobQueue:
    """Return the same as a model; see `document`."""
    return JobQueue.model_validate(document(**fields))
