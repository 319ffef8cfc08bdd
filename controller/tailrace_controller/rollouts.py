"""Roll-outs in turn: how many Deployments change their pods at a time, and what a new template waits for.

A new release of the controller may change every template at once, and workers that drain are not counted by a Deployment:
without this a fleet could run twice over. `fleet` asks before it applies a template; status tells what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tailrace.names.annotations import Annotation
from tailrace_controller.act import digest
from tailrace_controller.work_queue import Key

__all__ = ["MOST_AT_A_TIME", "Rollouts", "changes_template", "in_progress", "is_observed", "marked", "terminating"]

MOST_AT_A_TIME: Final = 10
"""Deployments that may roll out at a time, unless the settings say otherwise."""

Object = Mapping[str, Any]


def marked(desired: Object) -> dict[str, Any]:
    """Return the body of a Deployment with the mark of its template, by which a later change is told from a drift.

    Args:
        desired: The body.
    """
    metadata = desired["metadata"]
    mark = {str(Annotation.TEMPLATE): digest(desired["spec"]["template"])}
    return {**desired, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **mark}}}


def changes_template(desired: Object, live: Object) -> bool:
    """Tell whether another template is wanted than the one that was applied last.

    Args:
        desired: A body with its mark.
        live: The Deployment.
    """
    has = (live["metadata"].get("annotations") or {}).get(Annotation.TEMPLATE)
    return bool(has != desired["metadata"]["annotations"][Annotation.TEMPLATE])


def is_observed(deployment: Object) -> bool:
    """Tell whether the status of a Deployment speaks of what it asks for now.

    Args:
        deployment: As the API server has it.
    """
    seen = (deployment.get("status") or {}).get("observedGeneration") or 0
    return int(seen) >= int(deployment["metadata"].get("generation") or 0)


def in_progress(deployment: Object) -> bool:
    """Tell whether workers of an older template still run; a roll-out that made no progress in time holds nobody up.

    Args:
        deployment: As the API server has it.
    """
    status = deployment.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            return False
    return int(status.get("replicas") or 0) > int(status.get("updatedReplicas") or 0)


def terminating(deployment: Object) -> int:
    """Return how many of its pods were told to end and have not ended.

    Args:
        deployment: As the API server has it.
    """
    return int((deployment.get("status") or {}).get("terminatingReplicas") or 0)


class Rollouts:
    """Who rolls out and who waits for a turn."""

    def __init__(self, *, most: int = MOST_AT_A_TIME, wake: Callable[[Key], None]) -> None:
        """Start with nobody.

        Args:
            most: Deployments at a time.
            wake: Told whose turn has come.
        """
        self._most, self._wake = most, wake
        self._running: set[Key] = set()
        self._waiting: dict[Key, None] = {}

    def seen(self, key: Key, deployment: Object | None) -> None:
        """Note how a Deployment does; the end of a roll-out gives a turn to the one that has waited longest.

        Args:
            key: The JobQueue.
            deployment: None when there is none.
        """
        if deployment is not None and not is_observed(deployment):
            return  # nothing is known yet of what was just written
        if deployment is not None and in_progress(deployment):
            self._running.add(key)
        elif key in self._running:
            self._running.discard(key)
            self._next()

    def waits_for(self, key: Key, live: Object, *, policy: str, replicas: int, draining: int) -> str | None:
        """Return what a new template has to wait for, as a sentence; None when its turn has come.

        Args:
            key: The JobQueue.
            live: Its Deployment.
            policy: spec.rollout.policy.
            replicas: How many workers there should be.
            draining: How many pods were told to end and have not ended.
        """
        if policy != "Paced" or replicas == 0:
            self._go(key)
            return None
        if draining > replicas:
            return f"{draining} workers still finish their jobs, and no more than {replicas} may do so at a time"
        if key not in self._running and len(self._running) >= self._most:
            self._waiting.setdefault(key)
            return f"{len(self._running)} other queues roll out, and no more than {self._most} may do so at a time"
        self._go(key)
        return None

    def forget(self, key: Key) -> None:
        """Give the turn of a JobQueue that is gone to another.

        Args:
            key: Its namespace and name.
        """
        self._waiting.pop(key, None)
        self.seen(key, None)

    def _go(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._running.add(key)

    def _next(self) -> None:
        for key in list(self._waiting)[: max(0, self._most - len(self._running))]:
            del self._waiting[key]
            self._wake(key)
