"""Waits after failed runs, and numbers that are refused."""

from __future__ import annotations

import random
import statistics
from datetime import timedelta
from typing import Any

import pytest

from tailrace import InvalidOption, Priority, RetryPolicy, TailraceError


def test_the_default_doubles_from_five_seconds_to_a_quarter_of_an_hour() -> None:
    policy = RetryPolicy(jitter=0)
    assert [policy.delay(n) for n in range(1, 10)] == [5, 10, 20, 40, 80, 160, 320, 640, 900]


@pytest.mark.parametrize("n", [9, 43, 1000, 10_000, 10**9])
def test_attempt_ten_thousand_keeps_the_cap(n: int) -> None:
    """CJ-08."""
    assert RetryPolicy(jitter=0).delay(n) == 900


def test_jitter_spreads_jobs_that_fail_together() -> None:
    """CJ-09."""
    draw = random.Random(1).random
    delays = [RetryPolicy().delay(3, random=draw) for _ in range(1000)]
    assert 16 <= min(delays) < 16.5
    assert 23.5 < max(delays) <= 24
    assert statistics.stdev(delays) > 2


def test_full_jitter_has_a_floor() -> None:
    """FQ-22."""
    policy = RetryPolicy(strategy="full_jitter")
    assert policy.delay(1, random=lambda: 0.0) == 1
    assert policy.delay(5, random=lambda: 0.5) == 40
    assert RetryPolicy(strategy="fixed", base=7, jitter=0).delay(50) == 7


def test_a_policy_reads_what_it_writes() -> None:
    policy = RetryPolicy(max_attempts=3, base=timedelta(minutes=1), cap=120, strategy="fixed", jitter=0)  # type: ignore[arg-type]
    assert policy.base == 60
    assert RetryPolicy.from_json(policy.as_json(), max_attempts=3) == policy
    assert RetryPolicy.from_json(None) == RetryPolicy()
    assert {p.max_attempts for p in (RetryPolicy.fast(), RetryPolicy.aggressive(), RetryPolicy.conservative())} == {3, 12, 5}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", 2**31),
        ("max_attempts", True),
        ("max_attempts", 1.5),
        ("base", -1),
        ("base", float("nan")),
        ("cap", float("inf")),
        ("cap", 10**400),
        ("cap", "1 hour"),
        ("strategy", "linear"),
        ("jitter", 1.1),
        ("jitter", True),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    """FQ-15: max_attempts counts all runs, so at least 1."""
    with pytest.raises(InvalidOption) as refused:
        RetryPolicy(**{field: value})
    assert refused.value.field == f"retry.{field}"
    assert str(refused.value).startswith(f"retry.{field}: ")
    assert refused.value.hint
    assert isinstance(refused.value, ValueError | TailraceError)


def test_bands_are_high_first() -> None:
    assert list(Priority) == sorted(Priority, reverse=True)
    assert int(Priority.BULK_DEFAULT) == 0
