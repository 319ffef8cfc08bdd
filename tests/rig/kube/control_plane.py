"""etcd, API server and controller manager as processes on loopback, with their keys, an audit log and RBAC.

There is no kubelet and no scheduler: pods stay Pending until `Kubelet` writes their status. Without the controller manager
there is also no garbage collection, no Deployment, no HorizontalPodAutoscaler and no end of a namespace.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.rig.kube import pki
from tests.rig.kube.api import Api, ApiError
from tests.rig.kube.cluster import Cluster, encoded, write_kubeconfig
from tests.rig.kube.tied import tied
from tests.rig.processes import EndedError, RealProcess
from tests.rig.waiting import eventually

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
# Nobody answers for our nodes: these would take the pods from them.
_LEFT_OUT = ("node-lifecycle-controller", "node-ipam-controller", "taint-eviction-controller")
_ISSUER = "https://kubernetes.default.svc"
_IN_USE = "address already in use"
_TAIL = 3000


@dataclass(frozen=True, kw_only=True)
class Options:
    """What differs between control planes."""

    controller_manager: bool = True
    """Whether there is one."""

    furnished: bool = True
    """Whether our CRD and the rig's node are there: before the controller manager starts, which seldom looks for new kinds."""

    api_server_flags: Sequence[str] = ()
    """More flags; a flag that is given twice counts as given last."""

    controller_manager_flags: Sequence[str] = ()
    """More flags, such as `--kube-api-qps=20`."""


class ControlPlane:
    """A control plane of this process: it ends with it."""

    def __init__(self, folder: Path, binaries: Path, *, options: Options | None = None) -> None:
        """Take a place; nothing runs yet.

        Args:
            folder: For keys, data and logs; made if need be, removed by `stop`.
            binaries: With etcd, kube-apiserver, kube-controller-manager and kubectl.
            options: What differs from others.
        """
        self.folder = folder
        self.options = options or Options()
        self._binaries = binaries
        self._processes: dict[str, RealProcess] = {}
        self._ports = _Ports.free()

    @property
    def cluster(self) -> Cluster:
        """How to reach it."""
        return Cluster(url=f"https://127.0.0.1:{self._ports.api_server}", folder=self.folder, binaries=self._binaries)

    def start(self) -> Cluster:
        """Start everything and wait until it serves.

        Raises:
            AssertionError: Something does not get there in time; the message has the end of its log.
            StartError: Something ended; likewise.
        """
        for name in ("log", "pki"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        pki.write(self.folder / "pki")
        (self.folder / "audit-policy.json").write_text(json.dumps(_AUDIT_POLICY))
        for attempt in range(3):
            try:
                self._start_all()
                break
            except (AssertionError, StartError) as error:
                self._kill("etcd", "kube-apiserver", "kube-controller-manager")
                if _IN_USE not in str(error) or attempt == 2:
                    raise
                self._ports = _Ports.free()  # somebody else was faster
                shutil.rmtree(self.folder / "etcd", ignore_errors=True)
        return self.cluster

    def stop(self) -> None:
        """End everything at once and remove the folder. A polite API server would wait for etcd for ever."""
        self._kill("kube-controller-manager", "kube-apiserver", "etcd")
        if os.environ.get("TAILRACE_KUBE_LOGS"):
            shutil.copytree(self.folder / "log", os.environ["TAILRACE_KUBE_LOGS"], dirs_exist_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill_api_server(self) -> None:
        """End the API server at once: every connection breaks, the next ones are refused."""
        self._kill("kube-apiserver")

    def start_api_server(self) -> None:
        """Start it, again on the same port, and wait until it serves."""
        self._start("kube-apiserver", self._api_server())
        eventually(self._serves, 30, what="the API server")

    def pause_api_server(self) -> None:
        """Stop it with SIGSTOP: connections stay open and silent."""
        self._processes["kube-apiserver"].stop()

    def resume_api_server(self) -> None:
        """Let it go on."""
        self._processes["kube-apiserver"].cont()

    def kill_controller_manager(self) -> None:
        """End the controller manager: Deployments make no pods, nothing is collected."""
        self._kill("kube-controller-manager")

    def start_controller_manager(self) -> None:
        """Start it and wait until it works."""
        self._start("kube-controller-manager", self._controller_manager())
        eventually(self._has_service_account, 30, what="the controller manager")

    # ---- inside ------------------------------------------------------------------------------------------------------
    def _start_all(self) -> None:
        user = {
            "client-certificate-data": encoded(self.folder / "pki" / "admin.crt"),
            "client-key-data": encoded(self.folder / "pki" / "admin.key"),
        }
        write_kubeconfig(self.cluster.kubeconfig, url=self.cluster.url, ca=self.cluster.ca, user=user)
        self._start("etcd", self._etcd())
        self.start_api_server()
        if self.options.furnished:
            self.cluster.furnish()
        if self.options.controller_manager:
            self.start_controller_manager()

    def _start(self, name: str, flags: Sequence[str]) -> None:
        self._kill(name)
        command = tied([str(self._binaries / name), *flags])
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)}
        log = self.folder / "log" / name
        self._processes[name] = RealProcess(command, output=log, environment=environment, cwd=self.folder)

    def _kill(self, *names: str) -> None:
        for name in names:
            process = self._processes.pop(name, None)
            if process is not None:
                process.reap()

    def _serves(self) -> bool:
        self._still_run()
        try:
            api = self.cluster.api()
            try:
                return api.text("/readyz") == "ok"
            finally:
                api.close()
        except (httpx.TransportError, ApiError) as error:
            raise AssertionError(f"{error}\n{self._tail('kube-apiserver')}") from None

    def _has_service_account(self) -> bool:
        self._still_run()
        api: Api = self.cluster.api()
        try:
            return api.get("serviceaccounts", "default", namespace="default") is not None
        finally:
            api.close()

    def _still_run(self) -> None:
        """Make sure that nothing has ended; waiting any longer would be in vain."""
        for name, process in self._processes.items():
            if not process.running:
                raise StartError(f"{name} has ended:\n{self._tail(name)}")

    def _tail(self, name: str) -> str:
        log = self.folder / "log" / name
        return log.read_text(errors="replace")[-_TAIL:] if log.exists() else ""

    def _etcd(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._ports.etcd}", f"http://127.0.0.1:{self._ports.etcd_peer}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _api_server(self) -> list[str]:
        keys = self.folder / "pki"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._ports.etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._ports.api_server}",
            "--endpoint-reconciler-type=none",  # loopback is no endpoint
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            f"--cert-dir={keys}",
            f"--tls-cert-file={keys / 'server.crt'}",
            f"--tls-private-key-file={keys / 'server.key'}",
            f"--client-ca-file={keys / 'ca.crt'}",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-signing-key-file={keys / 'sa.key'}",
            f"--service-account-key-file={keys / 'sa.key'}",
            f"--proxy-client-cert-file={keys / 'front-proxy.crt'}",
            f"--proxy-client-key-file={keys / 'front-proxy.key'}",
            f"--requestheader-client-ca-file={keys / 'front-proxy-ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--audit-policy-file={self.folder / 'audit-policy.json'}",
            f"--audit-log-path={self.folder / 'log' / 'audit.jsonl'}",
            "--audit-log-maxsize=10000",  # megabytes: marks in it must stay true
            "--profiling=false",
            *self.options.api_server_flags,
        ]

    def _controller_manager(self) -> list[str]:
        keys, kubeconfig = self.folder / "pki", self.cluster.kubeconfig
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports.controller_manager}",
            f"--cert-dir={keys / 'controller-manager'}",
            f"--service-account-private-key-file={keys / 'sa.key'}",
            f"--root-ca-file={keys / 'ca.crt'}",
            "--use-service-account-credentials",
            f"--controllers=*,{','.join(f'-{one}' for one in _LEFT_OUT)}",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--horizontal-pod-autoscaler-sync-period=2s",
            "--profiling=false",
            *self.options.controller_manager_flags,
        ]


class StartError(EndedError):
    """A part of a control plane ended while it was waited for."""


@dataclass(frozen=True, kw_only=True)
class _Ports:
    api_server: int
    etcd: int
    etcd_peer: int
    controller_manager: int

    @classmethod
    def free(cls) -> _Ports:
        """Find ports that are free now; they stay with the control plane through restarts."""
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        return cls(api_server=ports[0], etcd=ports[1], etcd_peer=ports[2], controller_manager=ports[3])
