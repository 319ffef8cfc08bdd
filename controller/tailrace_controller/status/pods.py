"""What one pod says about itself, boiled down to what the status needs.

Texts of the kubelet that change from minute to minute (which back-off it is in) are left out: they would make the status be
written again and again. `workforce` counts over all pods of a queue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tailrace.names.conditions import Reason
from tailrace_controller.observed import PodFacts, Problem

__all__ = ["pod_facts", "shortened"]

LONGEST: Final = 300
"""Characters of a text of somebody else's that are shown."""

_WAITING: Final[Mapping[str, Reason]] = {
    "ImagePullBackOff": Reason.IMAGE_PULL_BACK_OFF,
    "ErrImagePull": Reason.IMAGE_PULL_BACK_OFF,
    "ErrImageNeverPull": Reason.IMAGE_PULL_BACK_OFF,
    "ImageInspectError": Reason.IMAGE_PULL_BACK_OFF,
    "RegistryUnavailable": Reason.IMAGE_PULL_BACK_OFF,
    "SignatureValidationFailed": Reason.IMAGE_PULL_BACK_OFF,
    "InvalidImageName": Reason.INVALID_IMAGE_NAME,
    "CreateContainerConfigError": Reason.CONTAINER_CONFIG_ERROR,
    "CreateContainerError": Reason.CONTAINER_START_ERROR,
    "RunContainerError": Reason.CONTAINER_START_ERROR,
    "StartError": Reason.CONTAINER_START_ERROR,
    "PostStartHookError": Reason.CONTAINER_START_ERROR,
}
_START_ERRORS: Final = frozenset({"StartError", "ContainerCannotRun"})
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*"(: \w+)?(: )?')
_FAILED: Final[Mapping[str, Reason]] = {"Evicted": Reason.EVICTED, "Preempting": Reason.EVICTED, "NodeLost": Reason.NODE_LOST}
_LOG_TEXTS: Final = ("message", "msg", "text", "error", "event")


def pod_facts(pod: Mapping[str, Any]) -> PodFacts:
    """Return what is remembered of a pod.

    Args:
        pod: As the API server sent it.
    """
    metadata, said = pod["metadata"], pod.get("status") or {}
    terminating = metadata.get("deletionTimestamp") is not None
    ended = said.get("phase") in ("Succeeded", "Failed")
    ready = not terminating and not ended and _condition(said, "Ready").get("status") == "True"
    return PodFacts(
        name=str(metadata["name"]),
        uid=str(metadata.get("uid", "")),
        ready=ready,
        terminating=terminating,
        ended=ended,
        problem=None if ready else _problem(said),
    )


def shortened(text: str) -> str:
    """Return a text as one line of bearable length.

    Args:
        text: Of somebody else's.
    """
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _problem(said: Mapping[str, Any]) -> Problem | None:
    if said.get("phase") == "Failed" and said.get("reason"):
        return _made(_FAILED.get(said["reason"], Reason.PODS_REFUSED), f"{said['reason']}: {said.get('message', '')}")
    scheduled = _condition(said, "PodScheduled")
    if scheduled.get("status") == "False":
        return _made(Reason.UNSCHEDULABLE, str(scheduled.get("message") or scheduled.get("reason") or ""))
    containers = list(_containers(said))
    for container in containers:
        if found := _container_problem(container):
            return found
    return _not_ready(said, containers)


def _container_problem(container: Mapping[str, Any]) -> Problem | None:
    state = container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    reason = waiting.get("reason", "")
    if reason in _WAITING:
        text = _BACK_OFF.sub("", str(waiting.get("message") or "")) or f"the kubelet says {reason}"
        return _made(_WAITING[reason], f"container {container['name']}, image {container.get('image') or '?'}: {text}")
    last = ended or (container.get("lastState") or {}).get("terminated") or {}
    still = reason == "CrashLoopBackOff" or bool(ended) or not container.get("started")
    if last and still and (reason == "CrashLoopBackOff" or last.get("exitCode", 0) != 0):
        return _crash(container, last)
    return None


def _crash(container: Mapping[str, Any], ended: Mapping[str, Any]) -> Problem:
    name, code = container["name"], ended.get("exitCode")
    if ended.get("reason") == "OOMKilled":
        return _made(Reason.OOM_KILLED, f"container {name} took more memory than its limit")
    text = _last_words(str(ended.get("message") or ""))
    if ended.get("reason") in _START_ERRORS:
        return _made(Reason.CONTAINER_START_ERROR, f"container {name}: {text or ended['reason']}")
    return _made(Reason.CRASH_LOOP_BACK_OFF, f"container {name} ended with exit code {code}{': ' + text if text else ''}")


def _not_ready(said: Mapping[str, Any], containers: list[Mapping[str, Any]]) -> Problem | None:
    started = [one for one in containers if one.get("started") and (one.get("state") or {}).get("running") is not None]
    if not started or said.get("phase") != "Running":
        return None
    ready = _condition(said, "Ready")
    if ready.get("status") == "Unknown" or said.get("reason") == "NodeLost":
        return _made(Reason.NODE_LOST, "the node does not answer")
    silent = [one["name"] for one in started if not one.get("ready")]
    if silent:
        return _made(Reason.NOT_READY, f"container {silent[0]} runs and does not report ready")
    return None


def _last_words(message: str) -> str:
    """The last line that is not the worker's id, which the first line is; of a JSON log line only its text."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    if text.startswith("{"):
        try:
            fields = json.loads(text)
        except ValueError:
            return text
        return next((str(fields[name]) for name in _LOG_TEXTS if fields.get(name)), text) if isinstance(fields, dict) else text
    only_id = len(lines) == 1 and "/" in text and " " not in text
    return "" if only_id else text


def _made(reason: Reason, text: str) -> Problem:
    return Problem(reason=reason, message=shortened(text).removesuffix(":"))


def _containers(said: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("initContainerStatuses", "containerStatuses"):
        yield from said.get(name) or ()


def _condition(said: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((one for one in said.get("conditions") or () if one.get("type") == kind), {})
