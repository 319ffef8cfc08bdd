"""The pods of a JobQueue: restricted by default, what the author says over it, and over that what is ours.

Only the fields of the resource that reach a pod may change what is built here, since any change rolls the workers.
`overlay` merges; `deployment` puts the result into a Deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.errors import InvalidOption
from tailrace.names.annotations import Annotation
from tailrace.names.labels import selector
from tailrace.queue_spec import JobQueue, worker_container
from tailrace_controller.desired.children import Context, child_labels
from tailrace_controller.desired.overlay import TemplateInvalid, merged
from tailrace_controller.desired.worker import CONTAINER, DATABASE_VOLUME, SCRATCH_VOLUME, default_container, our_container

__all__ = ["GRACE_AFTER_DRAIN_SECONDS", "TemplateInvalid", "grace_seconds", "pod_template"]

GRACE_AFTER_DRAIN_SECONDS: Final = 15
"""What a worker gets beyond its drain, unless the resource says otherwise: to hand back, flush and close."""

_USER: Final = 65532
_TOLERATED_SECONDS: Final = 30
_LOST_NODE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SPREAD_OVER: Final = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
_FILE_MODE: Final = 0o440
_METADATA: Final = frozenset({"labels", "annotations"})
_PATH: Final = "spec.template"


def grace_seconds(resource: JobQueue) -> int:
    """Return the seconds between SIGTERM and SIGKILL.

    Args:
        resource: The JobQueue.
    """
    worker = resource.spec.worker
    return worker.termination_grace_period_seconds or worker.drain_timeout_seconds + GRACE_AFTER_DRAIN_SECONDS


def pod_template(resource: JobQueue, *, context: Context) -> dict[str, Any]:
    """Return the template of the pods.

    Args:
        resource: The JobQueue; it must have `database` and `template`.
        context: With the fingerprint of the environment.

    Raises:
        TemplateInvalid: The template has no container worker or cannot be merged; the error names the path.
        InvalidOption: Another field that a worker needs is missing or wrong.
    """
    given = resource.spec.template
    if given is None:
        raise InvalidOption("is missing", field=_PATH, hint="give the pods' template with a container named worker")
    try:
        worker_container(resource)
    except InvalidOption as problem:
        raise TemplateInvalid(str(problem), field=problem.field) from None
    _check_metadata(given.metadata)
    template = merged(_defaults(resource), {"metadata": given.metadata, "spec": given.spec}, path=_PATH)
    _insist(template, resource, context)
    return template


def _defaults(resource: JobQueue) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {str(Annotation.DEFAULT_CONTAINER): CONTAINER}},
        "spec": _default_spec(resource),
    }


def _default_spec(resource: JobQueue) -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [default_container()],
        "volumes": [{"name": SCRATCH_VOLUME, "emptyDir": {}}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": topology,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(resource.metadata.name)},
                "matchLabelKeys": ["pod-template-hash"],
            }
            for topology in _SPREAD_OVER
        ],
    }


def _insist(template: dict[str, Any], resource: JobQueue, context: Context) -> None:
    """Put in what is ours whatever the author says."""
    metadata, spec = template["metadata"], template["spec"]
    metadata["labels"] = {**_strings(metadata.get("labels"), "labels"), **child_labels(resource)}
    metadata["annotations"] = {**_strings(metadata.get("annotations"), "annotations"), **_annotations(resource, context)}
    spec["terminationGracePeriodSeconds"] = grace_seconds(resource)
    spec["restartPolicy"] = "Always"
    spec["tolerations"] = _tolerations(spec.get("tolerations"))
    spec["containers"] = [
        our_container(container, resource) if container["name"] == CONTAINER else container for container in spec["containers"]
    ]
    spec["volumes"] = [*_without_ours(spec.get("volumes") or []), _database_volume(resource)]


def _annotations(resource: JobQueue, context: Context) -> dict[str, str]:
    ours: dict[str, str] = {}
    restarted = resource.metadata.annotations.get(Annotation.RESTARTED_AT)
    if restarted is not None:
        ours[str(Annotation.RESTARTED_AT)] = restarted
    if context.environment is not None:
        ours[str(Annotation.ENVIRONMENT)] = context.environment
    return ours


def _tolerations(given: Any) -> list[Any]:
    """A lost node is left after seconds, not after the five minutes that the API server would put in."""
    if given is not None and not isinstance(given, list):
        raise TemplateInvalid("must be a list", field=f"{_PATH}.spec.tolerations", hint="correct it")
    found: list[Any] = list(given or [])
    objects = [item for item in found if isinstance(item, Mapping)]
    told = {item.get("key") for item in objects}
    if any(item.get("operator") == "Exists" and not item.get("key") for item in objects):
        return found  # every taint, for ever: that is said on purpose
    return found + [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_SECONDS}
        for key in _LOST_NODE
        if key not in told
    ]


def _database_volume(resource: JobQueue) -> dict[str, Any]:
    database = resource.spec.database
    if database is None:
        raise InvalidOption("is missing", field="spec.database", hint="give secretRef with the name and key of a Secret")
    # The whole Secret: a connection string may name another key of it as its root certificate.
    return {"name": DATABASE_VOLUME, "secret": {"secretName": database.secret_ref.name, "defaultMode": _FILE_MODE}}


def _without_ours(volumes: list[Any]) -> list[Any]:
    for number, volume in enumerate(volumes):
        if volume["name"] == DATABASE_VOLUME:
            raise TemplateInvalid(
                f"{DATABASE_VOLUME!r} is the volume with the connection string",
                field=f"{_PATH}.spec.volumes[{number}].name",
                hint="give the volume another name",
            )
    return volumes


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    for name in metadata:
        if name not in _METADATA and not name.startswith("$"):
            raise TemplateInvalid(
                "is no field of a pod's template", field=f"{_PATH}.metadata.{name}", hint="only labels and annotations are"
            )


def _strings(given: Any, field: str) -> dict[str, str]:
    path = f"{_PATH}.metadata.{field}"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TemplateInvalid("must be an object", field=path, hint="give names and values")
    for name, value in given.items():
        if not isinstance(value, str):
            raise TemplateInvalid(f"must be a string, not {value!r}", field=f"{path}.{name}", hint="put it in quotes")
    return dict(given)
