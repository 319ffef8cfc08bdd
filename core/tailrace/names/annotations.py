"""The annotations that the controller reads and writes, and the values that mean something.

Those on a JobQueue are for people; those on children are the controller's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["RECONCILE_DISABLED", "Annotation", "is_paused"]


class Annotation(StrEnum):
    """One annotation."""

    # ---- on a JobQueue -----------------------------------------------------------------------------------------------
    RECONCILE = "tailrace.dev/reconcile"
    """On a JobQueue: "disabled" makes the controller leave the children and the queue's settings alone."""

    RESTARTED_AT = "tailrace.dev/restarted-at"
    """On a JobQueue: any new value rolls the workers. The pods carry a copy."""

    TAKE_OVER = "tailrace.dev/take-over"
    """On a JobQueue that is Conflicted: the uid of the owner whose queue it takes over."""

    # ---- on the Deployment -------------------------------------------------------------------------------------------
    TEMPLATE = "tailrace.dev/template"
    """On the Deployment: a hash of the pods' template as it was applied last, by which a new one is told from a drift."""

    # ---- on pods -----------------------------------------------------------------------------------------------------
    ENVIRONMENT = "tailrace.dev/environment"
    """On pods: a keyed hash of the Secrets and ConfigMaps that the environment refers to; a change rolls the workers."""

    DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
    """On pods: always worker, so that `kubectl logs` and `kubectl exec` need no -c."""


RECONCILE_DISABLED: Final = "disabled"
"""The value of tailrace.dev/reconcile that pauses."""


def is_paused(annotations: Mapping[str, str] | None) -> bool:
    """Tell whether the annotations of a JobQueue pause it.

    Args:
        annotations: metadata.annotations, if there are any.
    """
    return (annotations or {}).get(Annotation.RECONCILE) == RECONCILE_DISABLED
