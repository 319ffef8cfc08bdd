"""Which cluster this is: the uid by which a queue's row tells the owners of several clusters apart.

It is that of the namespace kube-system. A controller with rights in some namespaces only cannot read that; then each of
those namespaces stands for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace_controller.kube import Kube, KubeRefused, KubeUnavailable
from tailrace_controller.kube.kinds import NAMESPACE

__all__ = ["Identity"]

_SYSTEM: Final = "kube-system"


class Identity:
    """The identities of the namespaces that this controller serves."""

    def __init__(self, kube: Kube, *, namespaces: Sequence[str] = ()) -> None:
        """Read nothing yet.

        Args:
            kube: The API server.
            namespaces: Those that are served; none means all.
        """
        self._kube, self._namespaces = kube, tuple(namespaces)
        self._each_for_itself = bool(namespaces)
        self._known: dict[str, str] = {}

    async def of(self, namespace: str) -> str:
        """Return the identity of the cluster that a namespace belongs to.

        Args:
            namespace: A namespace that is served.

        Raises:
            KubeError: It could not be read.
        """
        if not self._each_for_itself:
            try:
                return await self._uid(_SYSTEM)
            except KubeRefused:
                self._each_for_itself = True
        return await self._uid(namespace)

    async def all(self) -> set[str]:
        """Return every identity that resources of this controller have had.

        Raises:
            KubeError: One could not be read.
        """
        for namespace in self._namespaces or (() if self._each_for_itself else (_SYSTEM,)):
            await self.of(namespace)
        return set(self._known.values())

    async def _uid(self, namespace: str) -> str:
        if namespace not in self._known:
            found = await self._kube.get(NAMESPACE, name=namespace)
            if found is None:
                raise KubeUnavailable(f"there is no namespace {namespace}")
            self._known[namespace] = str(found["metadata"]["uid"])
        return self._known[namespace]
