"""What the Kubernetes API may answer, as types: try later, read again, or give up.

Callers tell cases apart by class. `str()` is the API server's own sentence, which status and events show to people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tailrace.errors import TailraceError

__all__ = ["KubeConflict", "KubeError", "KubeMissing", "KubeRefused", "KubeUnavailable", "NotLeading", "from_answer"]

_LONGEST: Final = 1000
"""Characters of a sentence that are kept."""
_TRANSIENT: Final = frozenset({401, 408, 410, 425, 429})
_OURS: Final = "failed to create typed patch object"
"""An API server says 500 when what is applied has a field that it does not know; it is no trouble of its own."""


class KubeError(TailraceError):
    """The Kubernetes API did not do what was asked.

    Attributes:
        status: The HTTP status; None when there was no answer.
        sentence: What the API server said, or what went wrong on the way.
        word: The API server's reason in one word, such as AlreadyExists; empty when it gave none.
        retry_after: Seconds that the server asked to wait; None when it did not.
    """

    def __init__(self, sentence: str, *, status: int | None = None, word: str = "", retry_after: float | None = None) -> None:
        """Keep what was said.

        Args:
            sentence: For people.
            status: The HTTP status.
            word: The API server's reason in one word.
            retry_after: Seconds.
        """
        self.status, self.sentence, self.word, self.retry_after = status, sentence, word, retry_after
        super().__init__(sentence)


class KubeUnavailable(KubeError):
    """No answer, too many requests, a server error, or credentials that ran out: the same call may succeed later.

    Whether a write that ended so was done is unknown.
    """

    retryable = True


class KubeConflict(KubeError):
    """The object is another one than the call took it for: read again, then decide again."""

    retryable = True


class KubeRefused(KubeError):
    """The call is wrong or not allowed: it is refused again until somebody changes something."""


class KubeMissing(KubeRefused):
    """There is no such object, kind or namespace."""


class NotLeading(KubeError):
    """This process does not hold the Lease, so it writes nothing."""

    retryable = True


def from_answer(status: int, headers: Mapping[str, str], body: bytes) -> KubeError:
    """Return the error that an answer means.

    Args:
        status: The HTTP status, 300 or more.
        headers: Of the answer.
        body: A Status object, or whatever a proxy on the way sent.
    """
    told = _status_object(body)
    sentence = str(told.get("message") or "").strip() or f"the API server answered {status}"
    kind: type[KubeError] = KubeRefused
    if sentence.startswith(_OURS):
        kind = KubeRefused
    elif status in _TRANSIENT or status >= 500:
        kind = KubeUnavailable
    elif status == 409:
        kind = KubeConflict
    elif status == 404:
        kind = KubeMissing
    word, later = str(told.get("reason") or ""), _retry_after(headers, told)
    return kind(sentence[:_LONGEST], status=status, word=word, retry_after=later)


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(body)
    except ValueError:
        return {"message": body.decode("utf-8", "replace").strip()}
    return told if isinstance(told, dict) else {}


def _retry_after(headers: Mapping[str, str], told: Mapping[str, Any]) -> float | None:
    details = told.get("details")
    for value in (headers.get("Retry-After"), details.get("retryAfterSeconds") if isinstance(details, dict) else None):
        try:
            return max(0.0, float(value)) if value is not None else None
        except (TypeError, ValueError):
            continue
    return None
