"""How tests reach a control plane that runs: its address, its administrator, kubectl, and tokens of service accounts.

It holds no process: `control_plane` has those, and `keeper` hands these addresses from one process to another.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.kube.api import Api, Body
from tests.rig.kube.audit import AuditLog
from tests.rig.waiting import eventually

ROOT = Path(__file__).parents[3]
CRDS = ROOT / "crds"
NODE = "rig"
_SECONDS = 60.0


@dataclass(frozen=True)
class Cluster:
    """A running control plane."""

    url: str
    folder: Path
    binaries: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def ca(self) -> Path:
        """The certificate that clients trust."""
        return self.folder / "pki" / "ca.crt"

    @property
    def kubectl_cache(self) -> Path:
        """What kubectl remembers of this server."""
        return self.folder / "kubectl"

    @property
    def audit(self) -> AuditLog:
        """What was asked of the API server."""
        return AuditLog(self.folder / "log" / "audit.jsonl")

    def api(self) -> Api:
        """Return a client with the rights of the administrator; the caller closes it."""
        tls = ssl.create_default_context(cafile=str(self.ca))
        tls.load_cert_chain(self.folder / "pki" / "admin.crt", self.folder / "pki" / "admin.key")
        return Api(self.url, tls)

    def api_of(self, token: str) -> Api:
        """Return a client with the rights of a service account; the caller closes it."""
        return Api(self.url, ssl.create_default_context(cafile=str(self.ca)), token=token)

    def kubectl(self, namespace: str | None = None, *, kubeconfig: Path | None = None) -> Kubectl:
        """Return a kubectl for one namespace, as the administrator or with another kubeconfig."""
        return Kubectl(self, namespace, kubeconfig or self.kubeconfig)

    def token(self, namespace: str, name: str, *, seconds: int = 3600) -> str:
        """Return a token of a service account, which is made if there is none of that name."""
        api = self.api()
        try:
            if api.get("serviceaccounts", name, namespace=namespace) is None:
                api.create("serviceaccounts", {"metadata": {"name": name}}, namespace=namespace)
            where = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
            return str(api.ask("POST", where, body={"spec": {"expirationSeconds": seconds}})["status"]["token"])
        finally:
            api.close()

    def kubeconfig_of(self, namespace: str, name: str, file: Path, *, url: str | None = None) -> Path:
        """Write a kubeconfig with a token of a service account, as one inside a cluster has it, and return its path.

        Args:
            namespace: Of the service account, and the one that the kubeconfig means.
            name: Of the service account.
            file: To be written.
            url: Another way to the API server, such as a fault proxy's.
        """
        user = {"token": self.token(namespace, name)}
        return write_kubeconfig(file, url=url or self.url, ca=self.ca, user=user, namespace=namespace)

    def furnish(self) -> None:
        """Install our CRD, and make the node that `Kubelet` speaks for."""
        api = self.api()
        try:
            api.apply("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
            files = sorted(CRDS.glob("*.yaml"))
            if files:
                self.kubectl().run("apply", "--server-side", *(f"--filename={file}" for file in files))
                for crd in api.list("customresourcedefinitions"):
                    wait_established(api, str(crd["metadata"]["name"]))
                # kubectl asks for what is newer to the second, so what it kept of OpenAPI a moment ago may pass for current
                shutil.rmtree(self.kubectl_cache, ignore_errors=True)
        finally:
            api.close()

    def as_json(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps({"url": self.url, "folder": str(self.folder), "binaries": str(self.binaries)})

    @classmethod
    def from_json(cls, text: str) -> Cluster:
        """Return what `as_json` wrote."""
        told = json.loads(text)
        return cls(url=told["url"], folder=Path(told["folder"]), binaries=Path(told["binaries"]))


class Kubectl:
    """The real kubectl: `kubectl("get", "jq")` gives what it prints, `kubectl.refused("apply", …)` why it failed."""

    def __init__(self, cluster: Cluster, namespace: str | None, kubeconfig: Path) -> None:
        """Choose where and as whom.

        Args:
            cluster: Where.
            namespace: Added to each command unless None.
            kubeconfig: Of the user.
        """
        self._program = str(cluster.binaries / "kubectl")
        self._options = [f"--kubeconfig={kubeconfig}", *([f"--namespace={namespace}"] if namespace else [])]
        # kubectl remembers what a server serves, by its address: ports come back, servers do not
        cache = str(cluster.kubectl_cache)
        self._environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(cluster.folder), "KUBECACHEDIR": cache}

    def __call__(self, *arguments: str, stdin: str | Body | Sequence[Body] | None = None) -> str:
        """Run a command and return what it prints.

        Args:
            arguments: Without program, kubeconfig and namespace.
            stdin: Text, or objects for `--filename=-`.

        Raises:
            AssertionError: It failed; the message has what it wrote.
        """
        done = self._run(arguments, stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.strip()}"
        return done.stdout

    run = __call__

    def json(self, *arguments: str) -> Any:
        """Run a command with `--output=json` and return what it prints."""
        return json.loads(self(*arguments, "--output=json"))

    def apply(self, *objects: Body | Path | str, server_side: bool = True) -> str:
        """Apply objects, files or YAML, and return what kubectl prints."""
        said = []
        for one in objects:
            where = f"--filename={one}" if isinstance(one, Path) else "--filename=-"
            options = ["--server-side", "--force-conflicts"] if server_side else []
            said.append(self("apply", *options, where, stdin=None if isinstance(one, Path) else one))
        return "".join(said)

    def refused(self, *arguments: str, stdin: str | Body | Sequence[Body] | None = None) -> str:
        """Run a command that must fail, and return its complaint."""
        done = self._run(arguments, stdin)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} should have failed:\n{done.stdout}"
        return done.stderr

    def _run(self, arguments: Sequence[str], stdin: str | Body | Sequence[Body] | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *self._options, *arguments],
            input=_text(stdin),
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            env=self._environment,
        )


def write_kubeconfig(file: Path, *, url: str, ca: Path, user: Body, namespace: str = "default") -> Path:
    """Write a kubeconfig that needs no other file, and return its path.

    Args:
        file: To be written.
        url: Of the API server.
        ca: The certificate to trust.
        user: As a kubeconfig has it, such as {"token": …}.
        namespace: Of commands that name none.
    """
    cluster = {"server": url, "certificate-authority-data": encoded(ca)}
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rig",
        "clusters": [{"name": "rig", "cluster": cluster}],
        "users": [{"name": "rig", "user": user}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig", "namespace": namespace}}],
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(told))  # JSON is YAML
    return file


def encoded(file: Path) -> str:
    """Return a file as a kubeconfig holds it."""
    return base64.b64encode(file.read_bytes()).decode()


def wait_established(api: Api, crd: str, *, timeout: float = 20.0) -> None:
    """Wait until the API server serves a custom resource, and then lists it in discovery and in OpenAPI, which come later."""

    def served() -> bool:
        found = api.get("customresourcedefinitions", crd)
        assert found is not None, f"there is no CRD {crd}"
        conditions = {one["type"]: one for one in found.get("status", {}).get("conditions") or ()}
        assert conditions.get("Established", {}).get("status") == "True", conditions
        group, version = found["spec"]["group"], found["spec"]["versions"][0]["name"]
        api.ask("GET", f"/apis/{group}/{version}/{found['spec']['names']['plural']}")
        resources = api.ask("GET", f"/apis/{group}/{version}")["resources"]
        listed = any(one["name"] == found["spec"]["names"]["plural"] for one in resources)
        return listed and f"apis/{group}/{version}" in api.ask("GET", "/openapi/v3")["paths"]

    eventually(served, timeout, what=f"CRD {crd}")


def _text(stdin: str | Body | Sequence[Body] | None) -> str | None:
    if stdin is None or isinstance(stdin, str):
        return stdin
    if isinstance(stdin, dict):
        return json.dumps(stdin)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(stdin)})
