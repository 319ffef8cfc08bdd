"""Where the API server is and who we are there: from a kubeconfig, or from the pod's own service account.

The official client reads both, with tokens that are renewed. `client` and `watch` take the result.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from tailrace.errors import InvalidOption

__all__ = ["Place"]

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HINT: Final = "Run it in a pod with a service account, or name a kubeconfig by --kubeconfig or KUBECONFIG"
Configured = Any
"""A `Configuration` of the official client, which has no types that are worth having."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """An API server and our credentials there.

    Attributes:
        configuration: For the official client.
        namespace: Where we are: the pod's namespace, or the one of the kubeconfig's context, or default.
        in_cluster: Whether we run in a pod.
    """

    configuration: Configured
    namespace: str
    in_cluster: bool

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self.configuration.host)

    @classmethod
    def find(cls, *, kubeconfig: Path | None = None, context: str | None = None) -> Place:
        """Find the API server: the named kubeconfig, that of KUBECONFIG, the pod's service account, ~/.kube/config.

        Args:
            kubeconfig: A file; None looks for one.
            context: A context in it; None takes its current one.

        Raises:
            InvalidOption: There is none, or it cannot be read.
        """
        named = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG")
        if not named and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return cls._in_cluster()
        return cls._from_file(named or str(Path("~/.kube/config").expanduser()), context)

    @classmethod
    def _in_cluster(cls) -> Place:
        configuration = _plain()
        try:
            load_incluster_config(client_configuration=configuration)
            namespace = (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        except (ConfigException, OSError) as error:
            raise InvalidOption(f"the pod's service account cannot be used: {error}", field="kubeconfig", hint=_HINT) from None
        return cls(configuration=configuration, namespace=namespace, in_cluster=True)

    @classmethod
    def _from_file(cls, file: str, context: str | None) -> Place:
        configuration = _plain()
        try:
            load_kube_config(config_file=file, context=context, client_configuration=configuration, persist_config=False)
            namespace = _context_namespace(file, context)
        except (ConfigException, OSError, yaml.YAMLError) as error:
            raise InvalidOption(f"{file}: {error}", field="kubeconfig", hint=_HINT) from None
        return cls(configuration=configuration, namespace=namespace, in_cluster=False)


def _plain() -> Configured:
    """A configuration that never tries anything again by itself: who calls knows whether a write may be repeated."""
    configuration = Configuration()
    configuration.retries = False
    return configuration


def _context_namespace(files: str, context: str | None) -> str:
    """The namespace of the context that counts; of several files the first that has it."""
    current = context
    for file in files.split(os.pathsep):
        if not file or not Path(file).exists():
            continue
        told = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
        current = current or told.get("current-context")
        for entry in told.get("contexts") or []:
            if entry.get("name") == current:
                return str((entry.get("context") or {}).get("namespace") or "default")
    return "default"
