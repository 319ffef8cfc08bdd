"""What an exception means: its kind by class only, its label from a fixed set, its record always readable."""

from __future__ import annotations

import json

import pytest

from tailrace import NoRetry, RetryAfter, Snooze
from tailrace_worker.failures import MESSAGE_BYTES, TRACEBACK_BYTES, clean, describe, error_type, fingerprint, kind_of, outcome

LABELS = {"timeout", "network", "not_found", "unauthorized", "forbidden", "validation", "rate_limit", "unavailable", "unknown"}


class HTTPStatusError(Exception):
    """As HTTP libraries make them."""

    def __init__(self, status: int) -> None:
        super().__init__("status")
        self.response = type("Response", (), {"status_code": status})()


class ConnectTimeoutError(Exception):
    """Of a library that does not use TimeoutError."""


ConnectTimeoutError.__name__ = "Timeout"


@pytest.mark.parametrize(
    ("error", "kind", "delay"),
    [
        (NoRetry("gone"), "permanent", None),
        (RetryAfter(60), "retry_after", 60.0),
        (Snooze(5), "snooze", 5.0),
        (KeyError("listed"), "permanent", None),
        (ValueError("permanent fatal NoRetry do not retry 410"), "error", None),
        (ConnectionError("Gone"), "error", None),
        (SystemExit(1), "error", None),
        (MemoryError(), "error", None),
    ],
)
def test_permanent_is_decided_by_class_never_by_words(error: BaseException, kind: str, delay: float | None) -> None:
    """BF-37."""
    assert kind_of(error, no_retry=(KeyError,)) == (kind, delay)


def chained(
    instead: BaseException, *, cause: BaseException | None = None, while_handling: BaseException | None = None
) -> BaseException:
    """An exception as `raise instead from cause`, or as raised inside an `except`, leaves it."""
    instead.__context__ = while_handling
    if cause is not None:
        instead.__cause__ = cause
    return instead


def circle() -> BaseException:
    first, second = NoRetry("a"), NoRetry("b")
    first.__cause__, second.__cause__ = second, first
    return first


@pytest.mark.parametrize(
    ("error", "label"),
    [
        (NoRetry("gone"), "unknown"),
        (chained(NoRetry("gone"), cause=HTTPStatusError(404)), "not_found"),
        (chained(NoRetry("gone"), while_handling=ConnectionResetError()), "network"),
        (chained(NoRetry("a"), cause=chained(NoRetry("b"), cause=PermissionError())), "forbidden"),
        (chained(RuntimeError("x"), cause=ConnectionResetError()), "unknown"),
        (circle(), "unknown"),
    ],
)
def test_the_label_of_a_permanent_error_is_that_of_its_cause(error: BaseException, label: str) -> None:
    """BF-33: NoRetry says what to do; what was wrong is what it was raised from. Other errors speak for themselves."""
    assert error_type(error) == label


def test_a_cause_that_was_suppressed_is_not_looked_at() -> None:
    error = chained(NoRetry("gone"), while_handling=ConnectionResetError())
    error.__suppress_context__ = True
    assert error_type(error) == "unknown"


@pytest.mark.parametrize(
    ("error", "label"),
    [
        (TimeoutError(), "timeout"),
        (ConnectTimeoutError(), "timeout"),
        (ConnectionResetError(), "network"),
        (PermissionError(), "forbidden"),
        (FileNotFoundError(), "not_found"),
        (KeyError("x"), "not_found"),
        (ValueError(), "validation"),
        (RetryAfter(1), "rate_limit"),
        (HTTPStatusError(401), "unauthorized"),
        (HTTPStatusError(403), "forbidden"),
        (HTTPStatusError(404), "not_found"),
        (HTTPStatusError(429), "rate_limit"),
        (HTTPStatusError(500), "unavailable"),
        (HTTPStatusError(503), "unavailable"),
        (HTTPStatusError(418), "unknown"),
        (RuntimeError("404 not found"), "unknown"),
        (SystemExit(404), "unknown"),
        (MemoryError(), "unknown"),
    ],
)
def test_labels_come_from_a_fixed_set(error: BaseException, label: str) -> None:
    """BF-33: never the message."""
    assert error_type(error) == label
    assert label in LABELS


def raised(error: BaseException) -> BaseException:
    """The error with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any of them
        return caught


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_the_record_of_an_error_can_be_kept_as_json() -> None:
    """e1, e2, FQ-22: the traceback is kept. NUL and halves of surrogate pairs, which jsonb refuses, are replaced."""
    told = describe(raised(ValueError("a\0b\ud800c")), attempt=3, worker="w/1")
    text = json.dumps(told)
    assert "\\u0000" not in text
    assert "\\ud800" not in text
    assert told["type"] == "ValueError"
    assert told["attempt"] == 3
    assert told["worker"] == "w/1"
    assert "in raised" in str(told["traceback"])


def test_an_error_that_cannot_be_printed_is_kept_all_the_same() -> None:
    told = describe(raised(Mute()), attempt=1, worker="w")
    assert "Mute" in str(told["type"])
    assert "without a readable message" in str(told["message"])


def test_long_messages_and_tracebacks_are_cut_between_characters() -> None:
    """e2."""
    told = describe(raised(ValueError("ä" * 100_000)), attempt=1, worker="w")
    assert len(str(told["message"]).encode()) <= MESSAGE_BYTES
    assert len(str(told["traceback"]).encode()) <= TRACEBACK_BYTES
    assert clean("äää", 3) == "ä"


def test_failures_of_one_place_are_grouped() -> None:
    same = {fingerprint("t", raised(ValueError(str(n)))) for n in range(3)}
    assert len(same) == 1
    assert fingerprint("other", raised(ValueError())) not in same
    assert fingerprint("t", raised(KeyError())) not in same


def test_an_outcome_leaves_out_what_is_not_known() -> None:
    assert outcome(1, 2, "error", delay=None, task="t") == {"id": 1, "token": 2, "kind": "error", "task": "t"}
    assert outcome(1, 2, "snooze", delay=0.0)["delay"] == 0.0
