"""Which word fits a connection: told by its `commit`, for the checker and at run time alike.

Protocols instead of imported classes: with an optional package missing, a union of classes would hold Any and the kinds would
no longer be told apart. Neighbours: `words`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import iscoroutinefunction
from typing import Protocol

from tailrace.errors import InvalidOption


class SyncConnection(Protocol):
    """A connection whose commit blocks."""

    def commit(self) -> None:
        """Commit."""


class AsyncConnection(Protocol):
    """A connection whose commit is awaited."""

    def commit(self) -> Awaitable[None]:
        """Commit."""
        ...


def is_async(conn: object) -> bool:
    """Return whether the words for this connection are awaited.

    Args:
        conn: A psycopg connection.

    Raises:
        InvalidOption: It is something else.
    """
    commit = getattr(conn, "commit", None)
    if not callable(commit) or not hasattr(conn, "pgconn"):
        kind = f"{type(conn).__module__}.{type(conn).__qualname__}"
        raise InvalidOption(f"{kind} is no connection that this release can use", field="using", hint="Give a psycopg connection")
    return iscoroutinefunction(commit)
