"""The container `worker` of a JobQueue's template, and what the resource says to a worker process by its environment.

The rest of the template is the API server's to judge. A variable is given as a value or as a place where a cluster keeps
it; whoever starts the process knows how to look there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, ValidationError

from tailrace.errors import InvalidOption
from tailrace.queue_spec.base import Part, Sequence
from tailrace.queue_spec.document import wrong_fields
from tailrace.queue_spec.resource import JobQueue

__all__ = ["CONTAINER", "Container", "KeyReference", "Variable", "expanded", "worker_container", "worker_environment"]

CONTAINER = "worker"
"""The container that is ours."""

_PLAIN = re.compile(r"[^\s,\[]+")
_REFERENCE = re.compile(r"\$(\$*)\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)|\$\$")


class _Open(Part):
    """Fields that we do not read are the API server's."""

    model_config = ConfigDict(extra="ignore")


class KeyReference(_Open):
    """A key of a Secret or a ConfigMap."""

    name: str
    """The object's name."""
    key: str
    """The key."""
    optional: bool = False
    """Whether the variable is left out where there is no such key."""


class _FieldReference(_Open):
    """A field of the pod."""

    field_path: str
    """Such as metadata.name."""


class _Source(_Open):
    """Where a variable's value is kept."""

    secret_key_ref: KeyReference | None = None
    """In a Secret."""
    config_map_key_ref: KeyReference | None = None
    """In a ConfigMap."""
    field_ref: _FieldReference | None = None
    """In the pod itself."""
    resource_field_ref: dict[str, Any] | None = None
    """In the container's resources."""


class Variable(_Open):
    """One environment variable."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_.-][A-Za-z0-9_.-]*$")]
    """Its name."""
    value: str | None = None
    """Its value; $(NAME) stands for a variable before it."""
    value_from: _Source | None = None
    """Or where it is kept."""


class Container(_Open):
    """What a worker process is started with."""

    name: str
    """`worker`."""
    command: Annotated[tuple[str, ...], Sequence] = ()
    """The program; without it the image's own, which is `tailrace`."""
    args: Annotated[tuple[str, ...], Sequence] = ()
    """Its arguments."""
    env: Annotated[tuple[Variable, ...], Sequence] = Field(default=())
    """Its environment."""


def worker_container(resource: JobQueue) -> Container:
    """Return the container `worker` of a resource.

    Args:
        resource: A JobQueue.

    Raises:
        InvalidOption: There is none, or one of the fields read here is wrong.
    """
    spec = resource.spec.template.spec if resource.spec.template is not None else {}
    containers = spec.get("containers")
    for number, found in enumerate(containers if isinstance(containers, list) else ()):
        if isinstance(found, dict) and found.get("name") == CONTAINER:
            try:
                return Container.model_validate(found)
            except ValidationError as error:
                place = f"spec.template.spec.containers[{number}]"
                raise InvalidOption(str(wrong_fields(error)), field=place, hint="correct it") from None
    raise InvalidOption(
        f"has no container {CONTAINER!r}",
        field="spec.template.spec.containers",
        hint='add one, such as {name: worker, image: shop, args: ["worker", "shop.jobs:app"]}',
    )


def worker_environment(resource: JobQueue) -> dict[str, str]:
    """Return the settings of a worker as variables TAILRACE_…: those that the resource says.

    The lease is not among them: the worker reads it in the queue's row. Nor is the place of the database.

    Args:
        resource: A JobQueue.

    Raises:
        InvalidOption: The queue's name cannot stand in the list of queues of a worker.
    """
    if "=" in resource.queue:
        raise InvalidOption(f"{resource.queue!r} has a =", field="spec.queueName", hint="name the queue without it")
    worker, database = resource.spec.worker, resource.spec.database
    settings = {
        "TAILRACE_QUEUES": resource.queue if _PLAIN.fullmatch(resource.queue) else json.dumps([resource.queue]),
        "TAILRACE_SLOTS": str(worker.slots),
        "TAILRACE_DRAIN_TIMEOUT_SECONDS": str(worker.drain_timeout_seconds),
        "TAILRACE_POLL_SECONDS": str(worker.poll_period_seconds),
        "TAILRACE_LOG_FORMAT": worker.logging.format.lower(),
        "TAILRACE_LOG_LEVEL": worker.logging.level.lower(),
    }
    if database is not None:
        settings["TAILRACE_SCHEMA"] = database.schema_name
        if database.notifications == "Poll" or database.max_connections_per_worker < 3:
            settings["TAILRACE_NOTIFY"] = "false"
    return settings


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Put variables in place of $(NAME), as the kubelet does: an unknown one stays, and $$(NAME) is the text $(NAME).

    Args:
        text: A value, an argument or a part of the command.
        variables: Those known so far.
    """

    def put(match: re.Match[str]) -> str:
        if match[2] is None:
            return "$"
        escaped, name = len(match[1]), match[2]
        if escaped % 2:
            return "$" * ((escaped + 1) // 2) + f"({name})"
        return "$" * (escaped // 2) + variables.get(name, f"$({name})")

    return _REFERENCE.sub(put, text)
