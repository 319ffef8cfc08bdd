"""Numbers of workers as words, for the sentences of conditions and events."""

from __future__ import annotations

__all__ = ["workers"]


def workers(count: int) -> str:
    """Return "1 worker" or "3 workers".

    Args:
        count: How many.
    """
    return f"{count} worker{'' if count == 1 else 's'}"
