"""What was asked of the API server, and by whom, read from its audit log.

A test marks the log, lets something happen, and looks at what came since: rights that were used, writes that were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, kw_only=True)
class Access:
    """One request that the API server has answered, or for a watch has begun to answer."""

    user: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    status: int
    uri: str
    at: str

    @property
    def right(self) -> tuple[str, str, str]:
        """What a rule of a role must allow for it: group, resource with subresource, verb."""
        return self.group, f"{self.resource}/{self.subresource}" if self.subresource else self.resource, self.verb

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.verb in WRITES

    @property
    def refused(self) -> bool:
        """Whether the user had no right to it."""
        return self.status == 403


class AuditLog:
    """The audit log of a running API server."""

    def __init__(self, file: Path) -> None:
        """Take its file."""
        self._file = file

    def mark(self) -> int:
        """Return where the log ends now, for `since`."""
        return self._file.stat().st_size

    def records(self, *, user: str | None = None, namespace: str | None = None, since: int = 0) -> list[Access]:
        """Return what was asked, oldest first; each request once.

        Args:
            user: Only of this user, such as `service_account("team-a", "tailrace")`.
            namespace: Only what concerns objects of this namespace.
            since: A mark.
        """
        return [
            access
            for access in self._since(since)
            if (user is None or access.user == user) and (namespace is None or access.namespace == namespace)
        ]

    def writes(self, *, user: str | None = None, namespace: str | None = None, since: int = 0) -> list[Access]:
        """Return the requests that change something."""
        return [access for access in self.records(user=user, namespace=namespace, since=since) if access.writes]

    def _since(self, mark: int) -> Iterator[Access]:
        seen: set[str] = set()  # a watch is recorded when it begins and when it ends
        with self._file.open("rb") as file:
            file.seek(mark)
            for line in file:
                if not line.endswith(b"\n"):  # in the making
                    return
                record = json.loads(line)
                if record["auditID"] not in seen:
                    seen.add(record["auditID"])
                    yield _access(record)


def service_account(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def _access(record: dict[str, Any]) -> Access:
    about = record.get("objectRef", {})
    return Access(
        user=record["user"]["username"],
        verb=record["verb"],
        group=about.get("apiGroup", ""),
        resource=about.get("resource", ""),
        subresource=about.get("subresource", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        status=record.get("responseStatus", {}).get("code", 0),
        uri=record["requestURI"],
        at=record["requestReceivedTimestamp"],
    )
