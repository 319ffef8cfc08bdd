"""A small client of the API server for the rig and for tests: objects are plain dicts, answers are checked.

The controller has its own client; a test that looked through that one would see what the controller believes.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

Body = dict[str, Any]

# resource → where the API server has it
PLACES: Mapping[str, str] = {
    **dict.fromkeys(
        ("namespaces", "nodes", "pods", "secrets", "configmaps", "services", "serviceaccounts", "events", "resourcequotas"),
        "api/v1",
    ),
    **dict.fromkeys(("deployments", "replicasets"), "apis/apps/v1"),
    "poddisruptionbudgets": "apis/policy/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "horizontalpodautoscalers": "apis/autoscaling/v2",
    "jobqueues": "apis/tailrace.dev/v1alpha1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
    "apiservices": "apis/apiregistration.k8s.io/v1",
    **dict.fromkeys(("roles", "rolebindings", "clusterroles", "clusterrolebindings"), "apis/rbac.authorization.k8s.io/v1"),
}


class ApiError(AssertionError):
    """The API server said no; `status` is its HTTP status and the message its own sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        """Keep both."""
        super().__init__(f"{status}: {sentence}")
        self.status = status
        self.sentence = sentence


class Api:
    """The API server as one user sees it."""

    def __init__(self, url: str, tls: ssl.SSLContext, *, token: str | None = None) -> None:
        """Make the client; nothing is sent yet.

        Args:
            url: Address of the API server.
            tls: Trusts it, and holds the client's certificate if it has one.
            token: Of a service account.
        """
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url, verify=tls, headers=headers, timeout=20.0, trust_env=False)

    def get(self, resource: str, name: str, *, namespace: str | None = None) -> Body | None:
        """Return an object, or None if there is none."""
        try:
            return self.ask("GET", path(resource, name, namespace=namespace))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, resource: str, *, namespace: str | None = None, labels: str | None = None) -> list[Body]:
        """Return all objects of a resource, those of one namespace, or those with these labels."""
        found = self.ask("GET", path(resource, namespace=namespace), query={"labelSelector": labels} if labels else None)
        return list(found["items"])

    def create(self, resource: str, body: Body, *, namespace: str | None = None) -> Body:
        """Create an object and return it."""
        return self.ask("POST", path(resource, namespace=namespace), body=body)

    def patch(self, resource: str, name: str, body: Body, *, namespace: str | None = None, subresource: str = "") -> Body:
        """Merge a patch into an object or a subresource and return the object."""
        where = path(resource, name, subresource, namespace=namespace)
        return self.ask("PATCH", where, body=body, content="application/merge-patch+json")

    def apply(
        self, resource: str, body: Body, *, namespace: str | None = None, manager: str = "test", force: bool = True
    ) -> Body:
        """Apply on the server's side, as `kubectl apply --server-side`, and return the object."""
        where = path(resource, body["metadata"]["name"], namespace=namespace)
        query = {"fieldManager": manager, "force": str(force).lower()}
        return self.ask("PATCH", where, body=body, query=query, content="application/apply-patch+yaml")

    def delete(self, resource: str, name: str, *, namespace: str | None = None, grace: int | None = None) -> None:
        """Delete an object; one that is gone already is fine.

        Args:
            resource: Plural name.
            name: Of the object.
            namespace: Where it is, unless it is cluster-wide.
            grace: Seconds; the object's own when left out, and 0 removes a pod at once.
        """
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.ask("DELETE", path(resource, name, namespace=namespace), body=body)
        except ApiError as error:
            if error.status != 404:
                raise

    def ask(
        self,
        method: str,
        where: str,
        *,
        body: Body | None = None,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> Body:
        """Send one request and return its answer.

        Raises:
            ApiError: The status is 400 or more.
        """
        sent = None if body is None else json.dumps(body).encode()
        return dict(json.loads(self._ask(method, where, sent, query, content)))

    def text(self, where: str) -> str:
        """Return a page that is not JSON, such as /readyz; raises like `ask`."""
        return self._ask("GET", where, None, None, "application/json")

    @contextmanager
    def watch(self, resource: str, *, namespace: str | None = None, version: str, seconds: int) -> Iterator[Iterator[Body]]:
        """Open a watch and give its events; the server ends it after some seconds."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(seconds)}
        where = path(resource, namespace=namespace)
        with self._http.stream("GET", where, params=query, timeout=httpx.Timeout(20.0, read=seconds + 20.0)) as answer:
            if answer.is_error:
                answer.read()
                raise ApiError(answer.status_code, _sentence(answer))
            yield (json.loads(line) for line in answer.iter_lines() if line)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, method: str, where: str, sent: bytes | None, query: Mapping[str, str] | None, content: str) -> str:
        answer = self._http.request(method, where, content=sent, params=query, headers={"Content-Type": content})
        if answer.is_error:
            raise ApiError(answer.status_code, _sentence(answer))
        return answer.text


def path(resource: str, name: str = "", subresource: str = "", *, namespace: str | None = None) -> str:
    """Return the path of a resource, an object or a subresource."""
    parts = [PLACES[resource], f"namespaces/{namespace}" if namespace else "", resource, name, subresource]
    return "/" + "/".join(part for part in parts if part)


def _sentence(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:500]
