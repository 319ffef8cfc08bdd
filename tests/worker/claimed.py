"""Claimed rows made by hand, for tests of the worker's pure parts."""

from __future__ import annotations

from typing import Any

from tailrace_worker.rows import Row


def row(
    ident: int,
    *,
    token: int = 7,
    attempt: int = 1,
    task: str = "noop",
    payload: str = "{}",
    timeout: float | None = None,
    priority: int = 0,
    mark: int = 0,
    run_at: float = 0.0,
    extra: dict[str, Any] | None = None,
) -> Row:
    """A row as claim.sql returns it."""
    return (ident, token, attempt, task, payload, timeout, priority, mark, run_at, extra)
