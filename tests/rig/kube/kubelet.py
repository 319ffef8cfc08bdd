"""What a kubelet would write about pods: they run, crash, are killed, end. There is no container behind it.

A pod is bound to the rig's node first, so that it ends as on a real one: a deletion waits until its containers have ended.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from tests.rig.kube.api import Api, Body
from tests.rig.kube.cluster import NODE

_IMAGE_ID = "sha256:" + "0" * 64


class Kubelet:
    """The kubelet of one namespace; a test tells it what has happened."""

    def __init__(self, api: Api, namespace: str) -> None:
        """Speak for the pods of a namespace.

        Args:
            api: With the rights of the administrator.
            namespace: Of the pods.
        """
        self._api = api
        self.namespace = namespace

    # ---- looking -----------------------------------------------------------------------------------------------------
    def pods(self, labels: str | None = None) -> list[Body]:
        """Return the pods that are there, also those that are ending, by age and name."""
        found = self._api.list("pods", namespace=self.namespace, labels=labels)
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def pod(self, name: str) -> Body:
        """Return one pod."""
        found = self._api.get("pods", name, namespace=self.namespace)
        assert found is not None, f"there is no pod {name}"
        return found

    # ---- a pod's life ------------------------------------------------------------------------------------------------
    def run(self, name: str, *, ready: bool = True) -> Body:
        """Place a pod on the node and start its containers; returns the pod.

        Args:
            name: Of the pod.
            ready: Whether its readiness probes pass.
        """
        self._bind(name)
        states = [_container(one, {"running": {"startedAt": _now()}}, ready=ready) for one in _containers(self.pod(name))]
        return self._write(name, phase="Running", ready=ready, containers=states)

    def ready(self, name: str, *, ready: bool) -> Body:
        """Let the readiness probes of a running pod pass or fail; returns the pod."""
        states = [{**one, "ready": ready} for one in self.pod(name)["status"]["containerStatuses"]]
        return self._write(name, phase="Running", ready=ready, containers=states)

    def restart(self, name: str, *, message: str, reason: str = "Error", exit_code: int = 1) -> Body:
        """Let the container `worker` end and run again at once; returns the pod.

        Args:
            name: Of the pod.
            message: What the container wrote to its termination log.
            reason: As the kubelet says it, such as Error, OOMKilled, Completed.
            exit_code: 137 after SIGKILL.
        """
        ended = terminated(message=message, reason=reason, exit_code=exit_code)
        return self._again(name, ended, {"running": {"startedAt": _now()}}, ready=True)

    def oom_kill(self, name: str, *, message: str) -> Body:
        """Let the container `worker` reach its memory limit; it runs again at once."""
        return self.restart(name, message=message, reason="OOMKilled", exit_code=137)

    def crash_loop(self, name: str, *, message: str, reason: str = "Error", exit_code: int = 1) -> Body:
        """Let the container `worker` end and wait for its next start; returns the pod."""
        ended = terminated(message=message, reason=reason, exit_code=exit_code)
        pause = f"back-off 5m0s restarting failed container=worker pod={name}_{self.namespace}"
        return self._again(name, ended, {"waiting": {"reason": "CrashLoopBackOff", "message": pause}}, ready=False)

    def wait_for_image(self, name: str, *, reason: str = "ImagePullBackOff") -> Body:
        """Let a pod wait for an image that cannot be had; returns the pod."""
        self._bind(name)
        containers = _containers(self.pod(name))
        states = [
            _container(one, {"waiting": {"reason": reason, "message": f'Back-off pulling image "{one["image"]}"'}}, ready=False)
            for one in containers
        ]
        return self._write(name, phase="Pending", ready=False, containers=states)

    def kill(self, name: str, *, message: str, reason: str = "Error", exit_code: int = 137, phase: str = "Failed") -> Body:
        """End the containers of a pod for good, as an eviction by the node does; the object stays. Returns it.

        Args:
            name: Of the pod.
            message: What the container `worker` wrote to its termination log.
            reason: As the kubelet says it; ContainerStatusUnknown when it does not know.
            exit_code: Of the containers.
            phase: Failed, or Succeeded.
        """
        ended = {"terminated": terminated(message=message, reason=reason, exit_code=exit_code)}
        states = [_container(one, ended, ready=False) for one in _containers(self.pod(name))]
        return self._write(name, phase=phase, ready=False, containers=states)

    def end(self, name: str, *, message: str, reason: str = "Completed", exit_code: int = 0) -> Body:
        """Finish a deletion that was asked for: the containers end, then the object goes. Returns its last form."""
        phase = "Failed" if exit_code else "Succeeded"
        last = self.kill(name, message=message, reason=reason, exit_code=exit_code, phase=phase)
        self._api.delete("pods", name, namespace=self.namespace, grace=0)
        return last

    def delete(self, name: str) -> None:
        """Ask for a deletion, as `kubectl delete pod` does: the pod is ending until `end`."""
        self._api.delete("pods", name, namespace=self.namespace)

    def force_delete(self, name: str) -> None:
        """Remove the object and leave its containers running, as `kubectl delete pod --force` does."""
        self._api.delete("pods", name, namespace=self.namespace, grace=0)

    # ---- inside ------------------------------------------------------------------------------------------------------
    def _bind(self, name: str) -> None:
        if self.pod(name)["spec"].get("nodeName") is None:
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self._api.ask("POST", f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding", body=body)

    def _again(self, name: str, ended: Body, state: Body, *, ready: bool) -> Body:
        states = []
        for one in self.pod(name)["status"]["containerStatuses"]:
            if one["name"] == "worker":
                changed = {"state": state, "lastState": {"terminated": ended}, "ready": ready, "started": "running" in state}
                one = {**one, **changed, "restartCount": one["restartCount"] + 1}
            states.append(one)
        return self._write(name, phase="Running", ready=ready, containers=states)

    def _write(self, name: str, *, phase: str, ready: bool, containers: Sequence[Body]) -> Body:
        """Write a whole status; conditions that are not the kubelet's stay, and so do the times of those that do not change."""
        before = {one["type"]: one for one in self.pod(name).get("status", {}).get("conditions", [])}
        truth = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
        for kind, holds in truth.items():
            told = "True" if holds else "False"
            if before.get(kind, {}).get("status") != told:
                before[kind] = {"type": kind, "status": told, "lastTransitionTime": _now()}
        status = {
            "phase": phase,
            "conditions": list(before.values()),
            "containerStatuses": list(containers),
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "startTime": self.pod(name).get("status", {}).get("startTime") or _now(),
        }
        return self._api.patch("pods", name, {"status": status}, namespace=self.namespace, subresource="status")


def terminated(*, message: str, reason: str, exit_code: int) -> Body:
    """Return the state of a container that has ended.

    Args:
        message: What it wrote to its termination log.
        reason: As the kubelet says it.
        exit_code: Its status.
    """
    now = _now()
    return {
        "exitCode": exit_code,
        "reason": reason,
        "message": message,
        "startedAt": now,
        "finishedAt": now,
        "containerID": "containerd://" + "0" * 64,
    }


def _containers(pod: Body) -> list[dict[str, Any]]:
    return list(pod["spec"]["containers"])


def _container(container: Body, state: Body, *, ready: bool) -> Body:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": _IMAGE_ID,
        "containerID": "containerd://" + "0" * 64,
        "restartCount": 0,
        "ready": ready,
        "started": "running" in state,
        "state": state,
        "lastState": {},
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
