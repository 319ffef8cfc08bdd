"""The kinds of object that the controller reads or writes, each with its place in the API.

`client` makes URLs of them, `triggers` watches some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

__all__ = [
    "CONFIGMAP",
    "DEPLOYMENT",
    "EVENT",
    "HPA",
    "JOBQUEUE",
    "LEASE",
    "NAMESPACE",
    "PDB",
    "POD",
    "REPLICASET",
    "SECRET",
    "Kind",
]


@dataclass(frozen=True)
class Kind:
    """One kind of object.

    Attributes:
        group: The API group; empty for the core.
        version: Its version.
        plural: The word in URLs.
        kind: The word in manifests.
        namespaced: Whether its objects live in namespaces.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_path(self) -> str:
        """The path of its group and version, where discovery lists what there is."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of an object, or of the list when no name is given.

        Args:
            namespace: None means all namespaces, or none when the kind has none.
            name: The object's name.
            subresource: Such as status or scale.
        """
        parts = [self.group_path]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part is not None]
        return "/".join(parts)


JOBQUEUE: Final = Kind("tailrace.dev", "v1alpha1", "jobqueues", "JobQueue")
DEPLOYMENT: Final = Kind("apps", "v1", "deployments", "Deployment")
REPLICASET: Final = Kind("apps", "v1", "replicasets", "ReplicaSet")
PDB: Final = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
HPA: Final = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
POD: Final = Kind("", "v1", "pods", "Pod")
SECRET: Final = Kind("", "v1", "secrets", "Secret")
CONFIGMAP: Final = Kind("", "v1", "configmaps", "ConfigMap")
NAMESPACE: Final = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
LEASE: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease")
EVENT: Final = Kind("events.k8s.io", "v1", "events", "Event")
