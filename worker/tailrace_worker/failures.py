"""What a failed run means: from an exception to an outcome, and to a label for metrics.

Pure. The kind decides in the database (settle_v1) whether the job is tried again; words in a message never matter,
only the class.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tailrace.errors import NoRetry, RetryAfter, Snooze
from tailrace_worker.finish import Outcome

MESSAGE_BYTES: Final = 2048
TRACEBACK_BYTES: Final = 8192
_CAUSES: Final = 10
"""How far back a chain of NoRetry is followed; it may be a circle."""

_BY_STATUS: Final = {401: "unauthorized", 403: "forbidden", 404: "not_found", 410: "not_found", 408: "timeout", 429: "rate_limit",
                     400: "validation", 422: "validation", 502: "unavailable", 503: "unavailable", 504: "timeout"}  # fmt: skip


def _read(source: object, name: str) -> Any:
    try:
        return getattr(source, name, None)
    except Exception:  # noqa: BLE001 - properties of foreign exceptions raise what they like
        return None


def _status(error: BaseException) -> int | None:
    response = _read(error, "response")
    for status in (_read(response, "status_code"), _read(error, "status_code"), _read(error, "status")):
        if isinstance(status, int):
            return status
    code = _read(error, "code")
    return code if isinstance(code, int) and 400 <= code < 600 and not isinstance(error, SystemExit) else None


def error_type(error: BaseException) -> str:
    """The label of an exception, one of the fixed set that metrics and automatic requeue know.

    Args:
        error: What a handler raised.

    Returns:
        timeout, network, not_found, unauthorized, forbidden, validation, rate_limit, unavailable or unknown; from the
        class, or from the HTTP status that the exception carries. A NoRetry says what to do and not what was wrong, so
        what it was raised from counts.
    """
    for _ in range(_CAUSES):
        label = _label(error)
        cause = _cause(error)
        if label != "unknown" or not isinstance(error, NoRetry) or cause is None:
            return label
        error = cause
    return "unknown"


def _cause(error: BaseException) -> BaseException | None:
    """What an exception was raised from, or while."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _label(error: BaseException) -> str:
    if isinstance(error, RetryAfter):
        return "rate_limit"
    status = _status(error)
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is not None and status >= 500:
        return "unavailable"
    names = {c.__name__ for c in type(error).__mro__}
    if isinstance(error, TimeoutError) or names & {"TimeoutException", "Timeout"}:
        return "timeout"
    if isinstance(error, PermissionError):
        return "forbidden"
    if isinstance(error, (FileNotFoundError, LookupError)):
        return "not_found"
    if isinstance(error, (ConnectionError, OSError)) or names & {"TransportError", "NetworkError", "RequestException"}:
        return "network"
    if isinstance(error, (ValueError, TypeError)) or "ValidationError" in names:
        return "validation"
    return "unknown"


def clean(text: str, limit: int) -> str:
    """Text that PostgreSQL takes: without NUL and lone surrogates, cut to `limit` bytes between characters."""
    raw = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    return raw.decode() if len(raw) <= limit else raw[:limit].decode("utf-8", "ignore")


def describe(error: BaseException, *, attempt: int, worker: str) -> dict[str, Any]:
    """The JSON object that is kept of an error: type, message, traceback (its end), attempt, worker, time.

    Args:
        error: What was raised.
        attempt: The run's number.
        worker: This worker's id.
    """
    kind = type(error)
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not lose the outcome
        message = f"<{kind.__name__} without a readable message>"
    lines = "".join(traceback.format_exception(kind, error, error.__traceback__))
    tail = lines.encode("utf-8", "replace")[-TRACEBACK_BYTES:].decode("utf-8", "ignore")
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__,
        "message": clean(message, MESSAGE_BYTES),
        "traceback": clean(tail, TRACEBACK_BYTES),
        "attempt": attempt,
        "worker": worker,
        "time": datetime.now(UTC).isoformat(),
    }


def fingerprint(task: str, error: BaseException) -> str:
    """What groups failures: the task, the exception's class and the place that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].name}" if frames else ""
    return hashlib.sha256(f"{task}\n{type(error).__qualname__}\n{place}".encode("utf-8", "replace")).hexdigest()[:16]


def kind_of(error: BaseException, *, no_retry: tuple[type[BaseException], ...]) -> tuple[str, float | None]:
    """How a run ended that raised.

    Args:
        error: What the handler raised, or what the task's `on_error` returned for it.
        no_retry: The task's permanent classes.

    Returns:
        The kind for settle_v1 and the delay in seconds where the exception names one.
    """
    if isinstance(error, Snooze):
        return "snooze", float(error.seconds)
    if isinstance(error, RetryAfter):
        return "retry_after", float(error.seconds)
    if isinstance(error, (NoRetry, *no_retry)):
        return "permanent", None
    return "error", None


def outcome(ident: int, token: int, kind: str, **more: Any) -> Outcome:
    """One element of settle_v1."""
    return {"id": ident, "token": token, "kind": kind, **{k: v for k, v in more.items() if v is not None}}


def policy_of(extra: Mapping[str, Any] | None, chosen: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The job's own backoff, else the one that the queue and the task give."""
    own = (extra or {}).get("backoff")
    return own if own is not None else chosen
