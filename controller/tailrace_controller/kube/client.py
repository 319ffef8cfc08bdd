"""Reads and writes objects as plain dictionaries, asynchronously, through a small pool of threads of the official client.

It tries nothing again by itself, so that whoever asked may read before he writes anew. `transport` sends one request, with
a deadline and the fence of the Lease; `errors` says what an answer means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from tailrace_controller.kube.errors import KubeError, KubeMissing
from tailrace_controller.kube.kinds import Kind
from tailrace_controller.kube.place import Place
from tailrace_controller.kube.transport import Transport

__all__ = ["Kube"]

Object = dict[str, Any]
Objects = list[Object]  # in the class below `list` is a method
_PAGE: Final = 250
"""Objects of one page of a list; a page of pods takes some 20 MB while it is decoded."""
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
_JSON: Final = "application/json"


class Kube:
    """One API server, with threads and connections of its own.

    Attributes:
        place: Where the API server is.
    """

    def __init__(
        self,
        place: Place,
        *,
        threads: int = 8,
        timeout: float = 15.0,
        write_timeout: float = 5.0,
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            place: Where the API server is.
            threads: Requests at a time.
            timeout: Seconds for one request that reads.
            write_timeout: Seconds for one that writes; shorter than what is left of the Lease when the fence closes.
            may_write: Asked right before each write; None allows all.
        """
        self.place = place
        self._transport = Transport(place, threads=threads, timeout=timeout, write_timeout=write_timeout, may_write=may_write)

    @property
    def requests(self) -> Counter[tuple[str, int]]:
        """Requests by (verb, status); status 0 = no answer."""
        return self._transport.requests

    def close(self) -> None:
        """Close the connections; requests under way end by themselves."""
        self._transport.close()

    async def settle(self, seconds: float) -> None:
        """Wait until no request is under way, as before the Lease is given to another.

        Args:
            seconds: How long at most.
        """
        await self._transport.settle(seconds)

    # ---- reading -----------------------------------------------------------------------------------------------------
    async def get(self, kind: Kind, *, namespace: str | None = None, name: str) -> Object | None:
        """Return an object, or None when there is none.

        Args:
            kind: Its kind.
            namespace: Its namespace; None where the kind has none.
            name: Its name.

        Raises:
            KubeError: It could not be read.
        """
        return await self.read(kind.path(namespace=namespace, name=name))

    async def read(self, path: str) -> Object | None:
        """Return what the API serves at a path, or None when there is nothing.

        Args:
            path: Such as /version.

        Raises:
            KubeError: It could not be read.
        """
        try:
            return await self._transport.call("GET", path)
        except KubeMissing:
            return None

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        keep: Callable[[Object], Object] | None = None,
    ) -> Objects:
        """Return all objects of a kind, page by page.

        Args:
            kind: Which.
            namespace: None means all namespaces.
            labels: A label selector.
            keep: What to keep of each as it comes: thousands of whole ones take a hundred megabytes. None keeps all.

        Raises:
            KubeMissing: The API server does not know the kind.
            KubeError: They could not be read.
        """
        try:
            return await self._pages(kind, namespace, labels, keep, size=_PAGE)
        except KubeError as error:
            if error.status != 410:
                raise
        return await self._pages(kind, namespace, labels, keep, size=None)  # the list changed faster than we read its pages

    async def _pages(
        self,
        kind: Kind,
        namespace: str | None,
        labels: str | None,
        keep: Callable[[Object], Object] | None,
        *,
        size: int | None,
    ) -> Objects:
        path = kind.path(namespace=namespace)
        found: Objects = []
        going_on: str | None = None
        while True:
            query = {"labelSelector": labels, "limit": None if size is None else str(size), "continue": going_on}
            answer = await self._transport.call("GET", path, query=query)
            for item in answer.get("items") or []:
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
                found.append(item if keep is None else keep(item))
            going_on = (answer.get("metadata") or {}).get("continue")
            if not going_on:
                return found

    # ---- writing -----------------------------------------------------------------------------------------------------
    async def apply(
        self,
        kind: Kind,
        body: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Apply a configuration on the server's side.

        A dry run also refuses fields that the API server does not know, so that a mistyped one is told.

        Args:
            kind: Its kind.
            body: The fields that are ours; with metadata.resourceVersion only if the object still is that version.
            manager: Who owns these fields.
            force: Take fields that others own.
            subresource: Such as status.
            dry_run: Only say what would be.

        Raises:
            KubeConflict: Others own some of the fields, or it is another version.
            KubeError: It was not done.
        """
        query = {
            "fieldManager": manager,
            "force": "true" if force else None,
            "dryRun": "All" if dry_run else None,
            "fieldValidation": "Strict" if dry_run else "Ignore",
        }
        metadata = body["metadata"]
        path = kind.path(namespace=metadata.get("namespace"), name=metadata["name"], subresource=subresource)
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return await self._transport.call("PATCH", path, query=query, body=whole, content=_APPLY)

    async def patch(
        self,
        kind: Kind,
        *,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        subresource: str | None = None,
        manager: str | None = None,
    ) -> Object:
        """Merge some fields into an object.

        Args:
            kind: Its kind.
            namespace: Its namespace.
            name: Its name.
            body: The fields; null takes one away.
            subresource: Such as scale.
            manager: Who is said to own them.

        Raises:
            KubeError: It was not done.
        """
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        return await self._transport.call("PATCH", path, query={"fieldManager": manager}, body=dict(body), content=_MERGE)

    async def create(self, kind: Kind, body: Mapping[str, Any], *, manager: str | None = None) -> Object:
        """Create an object.

        Args:
            kind: Its kind.
            body: The whole object.
            manager: Who is said to own its fields.

        Raises:
            KubeConflict: There is one of this name.
            KubeError: It was not done.
        """
        path = kind.path(namespace=body["metadata"].get("namespace"))
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return await self._transport.call("POST", path, query={"fieldManager": manager}, body=whole, content=_JSON)

    async def replace(self, kind: Kind, body: Mapping[str, Any], *, manager: str | None = None) -> Object:
        """Replace an object by a whole one; with its resourceVersion only if it still is that version.

        Args:
            kind: Its kind.
            body: The whole object.
            manager: Who is said to own its fields.

        Raises:
            KubeConflict: It is another version.
            KubeError: It was not done.
        """
        metadata = body["metadata"]
        path = kind.path(namespace=metadata.get("namespace"), name=metadata["name"])
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return await self._transport.call("PUT", path, query={"fieldManager": manager}, body=whole, content=_JSON)

    async def delete(
        self, kind: Kind, *, namespace: str | None, name: str, uid: str | None = None, resource_version: str | None = None
    ) -> None:
        """Delete an object; one that is gone is a success.

        Args:
            kind: Its kind.
            namespace: Its namespace.
            name: Its name.
            uid: Only if it is this one.
            resource_version: Only if it still is this version.

        Raises:
            KubeConflict: It is another one.
            KubeError: It was not done.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        body: Object = {"propagationPolicy": "Background"}
        if conditions := {name: value for name, value in wanted.items() if value is not None}:
            body["preconditions"] = conditions
        try:
            await self._transport.call("DELETE", kind.path(namespace=namespace, name=name), body=body, content=_JSON)
        except KubeMissing:
            return
