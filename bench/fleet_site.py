"""A control plane with many JobQueues and one controller, for the benchmark `fleet`; pods are those of a kubelet that writes.

The programs and the processes are the test rig's. `scenarios.fleet` measures; this sets up and looks.
"""

import json
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.runs import RunError
from tests.rig.kube import binaries, controllers
from tests.rig.kube.audit import service_account
from tests.rig.kube.cluster import Cluster
from tests.rig.kube.control_plane import ControlPlane, Options
from tests.rig.kube.controllers import ControllerProcess
from tests.rig.kube.kubelet import Kubelet

HOME = "tailrace-system"
NAMESPACE = "fleet"
QPS = ("--kube-api-qps=200", "--kube-api-burst=400", "--concurrent-deployment-syncs=10", "--concurrent-replicaset-syncs=10")
"""The controller manager's own limit of 20 would be what is measured."""
CLIENTS = 8
POLL_SECONDS = 0.5


class Site:
    """The control plane with its namespace."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Prepare rights and namespaces."""
        self.cluster, self._folder = cluster, folder
        self.admin = cluster.api()
        self.admin.create("namespaces", {"metadata": {"name": NAMESPACE}})
        controllers.grant_in_cluster(cluster)
        self._kubeconfig = cluster.kubeconfig_of(HOME, controllers.ACCOUNT, folder / "kubeconfig")
        self._user = service_account(HOME, controllers.ACCOUNT)
        self._started = 0

    def secret(self, dsn: str) -> None:
        """Make the Secret that every JobQueue names."""
        self.admin.create("secrets", {"metadata": {"name": "db"}, "stringData": {"uri": dsn}}, namespace=NAMESPACE)

    def create(self, number: int, *, replicas: int) -> None:
        """Create JobQueues."""
        container = {"name": "worker", "image": "registry.example/fleet:1.0.0", "args": ["worker", "fleet:app"]}
        spec = {
            "database": {"secretRef": {"name": "db", "key": "uri"}},
            "replicas": replicas,
            "template": {"spec": {"containers": [container]}},
        }

        def one(index: int) -> None:
            body = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": f"q{index}"}, "spec": spec}
            self.admin.create("jobqueues", body, namespace=NAMESPACE)

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(one, range(number)))

    def run_pods(self, number: int, *, seconds: float) -> None:
        """Let every pod run, as a kubelet would tell; waits until there are so many."""
        kubelet = Kubelet(self.admin, NAMESPACE)
        self.until(lambda: len(self.admin.list("pods", namespace=NAMESPACE)) >= number, seconds, f"{number} pods")
        names = [pod["metadata"]["name"] for pod in self.admin.list("pods", namespace=NAMESPACE)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(kubelet.run, names))

    @contextmanager
    def controller(self, **settings: str) -> Iterator[ControllerProcess]:
        """A controller of the whole cluster, with the defaults but for what is given."""
        self._started += 1
        output = self._folder / f"controller-{self._started}.log"
        defaults = {
            "TAILRACE_LEASE_SECONDS": "15",
            "TAILRACE_RENEW_DEADLINE_SECONDS": "10",
            "TAILRACE_LEASE_RETRY_SECONDS": "2",
            "TAILRACE_SECRET_SECONDS": "60",
            "TAILRACE_DISCOVERY_SECONDS": "60",
            "TAILRACE_LOG_LEVEL": "info",
        }
        process = controllers.start_controller(kubeconfig=self._kubeconfig, output=output, env={**defaults, **settings})
        try:
            yield process
            process.terminate()
            if process.wait(30) != 0:
                raise RunError(f"the controller ended badly:\n{process.output[-2000:]}")
        finally:
            process.reap()

    # ---- looking -----------------------------------------------------------------------------------------------------
    def converged(self) -> int:
        """How many JobQueues have their status of this generation, their Deployment and their budget."""
        deployments = {one["metadata"]["name"] for one in self.admin.list("deployments", namespace=NAMESPACE)}
        budgets = {one["metadata"]["name"] for one in self.admin.list("poddisruptionbudgets", namespace=NAMESPACE)}
        both = deployments & budgets
        return sum(1 for one in self._queues() if _told(one) and f"{one['metadata']['name']}-worker" in both)

    def ready(self) -> int:
        """How many JobQueues say that they are ready."""
        return sum(1 for one in self._queues() if _is(one, "Ready"))

    def _queues(self) -> list[dict[str, Any]]:
        return self.admin.list("jobqueues", namespace=NAMESPACE)

    def writes(self, since: int) -> int:
        """How often the controller has written since a mark of the audit log, but for its Lease."""
        found = self.cluster.audit.writes(user=self._user, since=since)
        return sum(1 for one in found if one.resource != "leases")

    @staticmethod
    def until(done: Callable[[], bool], seconds: float, what: str) -> float:
        """Wait for something; returns the seconds that it took."""
        began = time.monotonic()
        while not done():
            if time.monotonic() - began > seconds:
                raise RunError(f"{what}: not within {seconds:.0f} s")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began


def _told(queue: dict[str, Any]) -> bool:
    return bool((queue.get("status") or {}).get("observedGeneration") == queue["metadata"]["generation"])


def _is(queue: dict[str, Any], condition: str) -> bool:
    found = (queue.get("status") or {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in found)


def scrape(process: ControllerProcess) -> tuple[float, list[str]]:
    """Return the seconds that a scrape took, and the lines of samples."""
    url = f"http://127.0.0.1:{process.metrics_port}/metrics"
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read()
    seconds = time.perf_counter() - began
    return seconds, [line for line in text.decode().splitlines() if not line.startswith("#")]


@contextmanager
def site() -> Iterator[Site]:
    """A control plane with a fast controller manager, gone afterwards."""
    print("control plane: finding or building the programs", flush=True)
    found = binaries.ensure(say=lambda line: print(json.dumps(line), flush=True))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-kube-") as folder:
        plane = ControlPlane(Path(folder) / "plane", found, options=Options(controller_manager_flags=QPS))
        try:
            cluster = plane.start()
            cluster.furnish()
            made = Site(cluster, Path(folder))
            yield made
            made.admin.close()
        finally:
            plane.stop()
