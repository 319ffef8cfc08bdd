"""The labels on what the controller makes: Deployments, PodDisruptionBudgets and pods.

Selectors, the controller's watches and people's `kubectl logs -l` rely on them. Labels of a template are kept beside
these; where they clash, these win.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from typing import Final

__all__ = [
    "COMPONENT_WORKER",
    "DEFAULT_CONTROLLER",
    "MANAGED_BY_TAILRACE",
    "NAME_WORKER",
    "Label",
    "instance",
    "is_default",
    "selector",
    "watched",
]


class Label(StrEnum):
    """One label."""

    NAME = "app.kubernetes.io/name"
    """Always tailrace-worker; with tailrace.dev/queue the selector of a Deployment and its PodDisruptionBudget."""

    QUEUE = "tailrace.dev/queue"
    """The JobQueue's metadata.name, which need not be the queue's name in the database."""

    COMPONENT = "app.kubernetes.io/component"
    """Always worker."""

    MANAGED_BY = "app.kubernetes.io/managed-by"
    """Always tailrace."""

    INSTANCE = "app.kubernetes.io/instance"
    """The installation that made it: the last part of spec.controllerName."""


NAME_WORKER: Final = "tailrace-worker"
"""The value of app.kubernetes.io/name."""

COMPONENT_WORKER: Final = "worker"
"""The value of app.kubernetes.io/component."""

MANAGED_BY_TAILRACE: Final = "tailrace"
"""The value of app.kubernetes.io/managed-by."""

DEFAULT_CONTROLLER: Final = "tailrace.dev/controller"
"""The controllerName of an installation that was given none."""

_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_LONGEST: Final = 63


def instance(controller_name: str) -> str:
    """Return the value of app.kubernetes.io/instance: the last part of the name, made fit for a label.

    Args:
        controller_name: spec.controllerName.
    """
    last = controller_name.rsplit("/", 1)[-1]
    if len(last) <= _LONGEST and _VALUE.fullmatch(last):
        return last
    mark = sha256(controller_name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    fit = re.sub(r"[^A-Za-z0-9._-]+", "-", last)[: _LONGEST - len(mark) - 1].strip("-._")
    return f"{fit}-{mark}" if fit else mark


def is_default(controller_name: str) -> bool:
    """Tell whether the name is that of an installation that was given none: its names carry no addition.

    Args:
        controller_name: spec.controllerName.
    """
    return controller_name == DEFAULT_CONTROLLER


def selector(name: str) -> dict[str, str]:
    """Return the labels by which a JobQueue's pods are found; never changed, since a Deployment's selector cannot be.

    Args:
        name: The JobQueue's metadata.name.
    """
    return {str(Label.NAME): NAME_WORKER, str(Label.QUEUE): name}


def watched(controller_name: str) -> str:
    """Return the selector by which an installation watches its children and their pods.

    Args:
        controller_name: spec.controllerName.
    """
    return f"{Label.NAME}={NAME_WORKER},{Label.MANAGED_BY}={MANAGED_BY_TAILRACE},{Label.INSTANCE}={instance(controller_name)}"
