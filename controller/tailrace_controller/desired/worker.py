"""The container worker: its defaults, and what in it is ours whatever the author says.

Ours are the command, the probes, the variables TAILRACE_…, the place of the last message (the proof of death is read
there) and the mount of the connection string. `template` has the rest of the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.errors import InvalidOption
from tailrace.queue_spec import JobQueue, worker_environment
from tailrace.queue_spec.container import CONTAINER

__all__ = ["CONTAINER", "DATABASE_VOLUME", "METRICS_PORT", "SCRATCH_VOLUME", "default_container", "our_container"]

DATABASE_VOLUME: Final = "tailrace-database"
"""The volume with the Secret that holds the connection string."""

SCRATCH_VOLUME: Final = "tmp"
"""The volume at /tmp; the rest of the file system is read-only. A template may give it a size or another source."""

METRICS_PORT: Final = 9464
"""Where a worker serves metrics and health."""

_DATABASE_PATH: Final = "/var/run/secrets/tailrace.dev/database"
_COMMAND: Final = ("tailrace",)
_OURS: Final = "TAILRACE_"
_TERMINATION_LOG: Final = "/dev/termination-log"


def default_container() -> dict[str, Any]:
    """Return what the author of a template may change: a restricted container with a writable /tmp."""
    return {
        "name": CONTAINER,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": SCRATCH_VOLUME, "mountPath": "/tmp"}],
    }


def our_container(container: Mapping[str, Any], resource: JobQueue) -> dict[str, Any]:
    """Return the container with our fields in it.

    Args:
        container: Defaults and the author's fields, merged.
        resource: The JobQueue; it must have `database`.

    Raises:
        InvalidOption: The queue's name cannot stand in a worker's list of queues.
    """
    ports = [port for port in container.get("ports") or [] if not _is_metrics(port)]
    mounts = [mount for mount in container.get("volumeMounts") or [] if mount["mountPath"] != _DATABASE_PATH]
    return {
        **container,
        "command": list(_COMMAND),
        "env": _environment(container.get("env") or [], resource),
        "ports": [*ports, {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "volumeMounts": [*mounts, {"name": DATABASE_VOLUME, "mountPath": _DATABASE_PATH, "readOnly": True}],
        **_probes(),
        "terminationMessagePath": _TERMINATION_LOG,
        # What a worker logged last stands in for a message that it could not write: an import that fails, for example.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _environment(given: list[Any], resource: JobQueue) -> list[dict[str, Any]]:
    """Ours come first, so that the author's may refer to them by $(NAME)."""
    database = resource.spec.database
    if database is None:
        raise InvalidOption("is missing", field="spec.database", hint="give secretRef with the name and key of a Secret")
    ours: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in sorted(worker_environment(resource).items())]
    ours += [
        {"name": "TAILRACE_DATABASE_URL_FILE", "value": f"{_DATABASE_PATH}/{database.secret_ref.key}"},
        {"name": "TAILRACE_METRICS_PORT", "value": str(METRICS_PORT)},
        _from_pod("TAILRACE_NAMESPACE", "metadata.namespace"),
        _from_pod("TAILRACE_POD_NAME", "metadata.name"),
        _from_pod("TAILRACE_POD_UID", "metadata.uid"),
    ]
    return ours + [variable for variable in given if not variable["name"].startswith(_OURS)]


def _from_pod(name: str, field: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}}


def _probes() -> dict[str, Any]:
    """A start has a minute. Not ready is known within seconds. Dead is only a loop that stood still for a minute.

    Live does not ask for the database: an outage restarts nothing.
    """
    return {
        "startupProbe": _probe("/livez", period=1, failures=60, timeout=1),
        "readinessProbe": _probe("/readyz", period=2, failures=1, timeout=2),
        "livenessProbe": _probe("/livez", period=10, failures=6, timeout=5),
    }


def _probe(path: str, *, period: int, failures: int, timeout: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": METRICS_PORT, "scheme": "HTTP"},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
        "successThreshold": 1,
    }


def _is_metrics(port: Any) -> bool:
    return isinstance(port, Mapping) and port.get("containerPort") == METRICS_PORT and port.get("protocol", "TCP") == "TCP"
