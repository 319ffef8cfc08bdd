"""One namespace with a controller, a Secret, a database and JobQueues: what the tests of behaviour share.

Everything is looked at as the administrator sees it, with the rig's own client; only the controller has its own rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.samples import resource
from tests.rig.kube.api import Api, ApiError, Body
from tests.rig.kube.audit import Access, service_account
from tests.rig.kube.cluster import Cluster, Kubectl
from tests.rig.kube.controllers import ACCOUNT, ControllerProcess
from tests.rig.kube.fixtures import StartController
from tests.rig.kube.kubelet import Kubelet
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

PATIENCE = 40.0
"""Seconds to wait for what must come."""
QUICK: Mapping[str, str] = {
    "TAILRACE_READING_SECONDS": "1",
    "TAILRACE_ORPHAN_SECONDS": "2",
    "TAILRACE_REAPER_SECONDS": "60",  # the reaper must not do what a proof of death should
}
"""Settings of a controller that notices things in test time."""
WORKER = {"app.kubernetes.io/name": "tailrace-worker"}


def child(name: str) -> str:
    """Return the name of a JobQueue's children."""
    return f"{name}-worker"


class Stage:
    """One test's namespace."""

    def __init__(
        self, *, cluster: Cluster, admin: Api, namespace: str, database: RigDatabase, start: StartController | None = None
    ) -> None:
        """Take the places.

        Args:
            cluster: The control plane.
            admin: A client with all rights.
            namespace: The test's own.
            database: The test's own.
            start: Starts controllers for the namespace.
        """
        self.cluster, self.admin, self.namespace, self.database = cluster, admin, namespace, database
        self._start = start
        self.kubectl: Kubectl = cluster.kubectl(namespace)
        self.kubelet = Kubelet(admin, namespace)

    # ---- what there is -----------------------------------------------------------------------------------------------
    def controller(self, *arguments: str, env: Mapping[str, str] | None = None, url: str | None = None) -> ControllerProcess:
        """Start a controller and wait until it leads."""
        assert self._start is not None
        return self._start(*arguments, env={**QUICK, **(env or {})}, url=url).wait_ready()

    def secret(self, value: str | None = None, *, name: str = "db", key: str = "uri", **more: str) -> None:
        """Make or change a Secret; the value is the database's connection string unless one is given."""
        data = {key: self.database.dsn if value is None else value, **more}
        self.admin.delete("secrets", name, namespace=self.namespace)
        self.admin.create("secrets", {"metadata": {"name": name}, "stringData": data}, namespace=self.namespace)

    def config_map(self, name: str, **data: str) -> None:
        """Make or change a ConfigMap."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        self.admin.apply("configmaps", body, namespace=self.namespace)

    def apply(self, name: str = "jobs", *, annotations: Mapping[str, str] | None = None, **spec: Any) -> Body:
        """Apply the smallest JobQueue with more in its spec, and return it."""
        body = resource(name, **spec)
        if annotations:
            body["metadata"]["annotations"] = dict(annotations)
        return self.admin.apply("jobqueues", body, namespace=self.namespace)

    def change(self, name: str = "jobs", *, annotations: Mapping[str, str | None] | None = None, **spec: Any) -> Body:
        """Merge fields into a JobQueue, and return it."""
        body: Body = {"spec": spec} if spec else {}
        if annotations is not None:
            body["metadata"] = {"annotations": dict(annotations)}
        return self.admin.patch("jobqueues", name, body, namespace=self.namespace)

    def get(self, resource: str, name: str) -> Body | None:
        """Return an object of the namespace, or None."""
        return self.admin.get(resource, name, namespace=self.namespace)

    def must(self, resource: str, name: str) -> Body:
        """Return an object of the namespace that is there."""
        found = self.get(resource, name)
        assert found is not None, f"there is no {resource} {name}"
        return found

    # ---- a JobQueue --------------------------------------------------------------------------------------------------
    def status(self, name: str = "jobs") -> Body:
        """Return a JobQueue's status; empty before the first."""
        return dict(self.must("jobqueues", name).get("status") or {})

    def condition(self, kind: ConditionType, name: str = "jobs") -> Body:
        """Return a condition; empty before the first."""
        found = (one for one in self.status(name).get("conditions", []) if one["type"] == kind)
        return dict(next(found, {}))

    def wait(
        self,
        kind: ConditionType,
        status: str,
        reason: Reason | None = None,
        *,
        name: str = "jobs",
        timeout: float = PATIENCE,
    ) -> str:
        """Wait for a condition and return its sentence."""

        def holds() -> Body:
            found = self.condition(kind, name)
            assert found.get("status") == status, found or self.status(name)
            assert reason in (None, found["reason"]), found
            return found

        return str(eventually(holds, timeout, what=f"{kind}={status} {reason or ''}")["message"])

    def wait_settled(self, name: str = "jobs", *, timeout: float = PATIENCE) -> Body:
        """Wait until the status speaks of the present generation and nothing is under way; returns the JobQueue."""

        def settled() -> Body:
            found = self.must("jobqueues", name)
            said = found.get("status") or {}
            assert said.get("observedGeneration") == found["metadata"]["generation"], said
            return found

        return eventually(settled, timeout, what=f"the status of {name}")

    def events(self, name: str = "jobs") -> list[tuple[str, str, str]]:
        """Return type, reason and note of a JobQueue's events."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        found = self.admin.ask("GET", path)["items"]
        about = [one for one in found if one["regarding"]["kind"] == "JobQueue" and one["regarding"]["name"] == name]
        return [(one["type"], one["reason"], one["note"]) for one in about]

    def wait_event(self, reason: EventReason, name: str = "jobs", *, timeout: float = PATIENCE) -> str:
        """Wait for an event and return its note."""

        def note() -> str:
            return next((note for _, found, note in self.events(name) if found == reason), "")

        return eventually(note, timeout, what=f"event {reason}")

    # ---- its children ------------------------------------------------------------------------------------------------
    def deployment(self, name: str = "jobs") -> Body | None:
        """Return a JobQueue's Deployment."""
        return self.get("deployments", child(name))

    def wait_deployment(
        self, fits: Callable[[Body], bool] = lambda _: True, name: str = "jobs", *, timeout: float = PATIENCE
    ) -> Body:
        """Wait for a Deployment that fits, and return it."""

        def found() -> Body:
            body = self.must("deployments", child(name))
            return body if fits(body) else {}

        return eventually(found, timeout, what=f"the Deployment of {name}")

    def wait_replicas(self, replicas: int, name: str = "jobs", *, timeout: float = PATIENCE) -> Body:
        """Wait until the Deployment asks for so many pods, and return it."""
        return self.wait_deployment(lambda body: body["spec"].get("replicas") == replicas, name, timeout=timeout)

    def pods(self, name: str = "jobs") -> list[Body]:
        """Return a JobQueue's pods that were not told to end."""
        found = self.kubelet.pods(f"tailrace.dev/queue={name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def run_pods(self, number: int, name: str = "jobs") -> list[Body]:
        """Wait for so many pods, let them run, and return them."""

        def enough() -> bool:
            assert len(self.pods(name)) == number, [pod["metadata"]["name"] for pod in self.pods(name)]
            return True

        eventually(enough, PATIENCE, what=f"{number} pods of {name}")
        return [self.kubelet.run(pod["metadata"]["name"]) for pod in self.pods(name)]

    def finish_endings(self, name: str = "jobs") -> None:
        """Let the pods end that were told to."""
        for pod in self.kubelet.pods(f"tailrace.dev/queue={name}"):
            if "deletionTimestamp" in pod["metadata"]:
                self.kubelet.end(pod["metadata"]["name"], message=f"{pod['metadata']['uid']}/worker/00000000")

    def wait_rolled_out(self, name: str = "jobs", *, timeout: float = PATIENCE) -> None:
        """Play the kubelet until all wanted pods are of the last template and ready."""

        def done() -> bool:
            self.finish_endings(name)
            for pod in self.pods(name):
                if pod.get("status", {}).get("phase") == "Pending":
                    try:
                        self.kubelet.run(pod["metadata"]["name"])
                    except (ApiError, AssertionError):  # it was deleted just now
                        continue
            body = self.must("deployments", child(name))
            said = body.get("status") or {}
            counts = {said.get(field, 0) for field in ("replicas", "updatedReplicas", "readyReplicas")}
            assert said.get("observedGeneration") == body["metadata"]["generation"], said
            assert counts == {body["spec"]["replicas"]}, said
            return True

        eventually(done, timeout, what=f"the roll-out of {name}")

    # ---- what was asked ----------------------------------------------------------------------------------------------
    def mark(self) -> int:
        """Return where the audit log ends now."""
        return self.cluster.audit.mark()

    def writes(self, since: int, *, leases: bool = False) -> list[Access]:
        """Return what the controller has written since a mark, but for its Lease."""
        found = self.cluster.audit.writes(user=service_account(self.namespace, ACCOUNT), since=since)
        return [one for one in found if leases or one.resource != "leases"]

    # ---- the database ------------------------------------------------------------------------------------------------
    def row(self, queue: str = "jobs", columns: str = "settings, owner, generation") -> tuple[Any, ...] | None:
        """Return columns of a queue's row; None when there is none."""
        rows = self.database.query(f"select {columns} from tailrace.queue where name = %s", [queue])
        return rows[0] if rows else None

    def wait_setting(self, path: str, value: Any, queue: str = "jobs", *, timeout: float = PATIENCE) -> None:
        """Wait until a setting of a queue, such as "worker.slots", is so."""

        def found() -> bool:
            row = self.row(queue)
            here: Any = row[0] if row is not None else {}
            for step in path.split("."):
                here = (here or {}).get(step)
            assert here == value, row
            return True

        eventually(found, timeout, what=f"{path} = {value!r}")
