"""Which fields of a JobQueue this release cannot honour yet.

The models read the whole resource, so that a file for a later release is checked alike; but nothing is stored that
nobody honours. A release that learns one of these fields removes its line here.
"""

from __future__ import annotations

from tailrace.errors import InvalidOption
from tailrace.queue_spec.fleet import Behavior
from tailrace.queue_spec.resource import JobQueueSpec

__all__ = ["refuse_unsupported", "unsupported"]


def unsupported(spec: JobQueueSpec) -> list[str]:
    """Return the paths of the fields that are set and not in this release, in the order of the resource.

    Args:
        spec: A spec that was read.
    """
    scaling = spec.autoscaling
    given = ["autoscaling.mode"] if scaling.mode in ("HPA", "KEDA") else []
    if scaling.mode != "Disabled" and scaling.behavior != Behavior():  # defaults that an API server wrote out ask for nothing
        given.append("autoscaling.behavior")
    return [f"spec.{path}" for path in given]


def refuse_unsupported(spec: JobQueueSpec) -> None:
    """Refuse a spec with fields that this release cannot honour.

    Args:
        spec: A spec that was read.

    Raises:
        InvalidOption: Such fields are set; the message names each.
    """
    if paths := unsupported(spec):
        also = f" (as are {', '.join(paths[1:])})" if paths[1:] else ""
        raise InvalidOption(f"not in this release{also}", field=paths[0], hint="remove it; nothing was stored")
