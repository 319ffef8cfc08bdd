"""Going idle: which transactions may have missed the waiter row."""

from __future__ import annotations

import pytest

from tailrace_worker.wake import in_progress


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        ("10:10:", set()),
        ("10:20:10,14,19", {10, 14, 19}),
        ("775:776:775", {775}),
        ("4294967299:4294967301:4294967299", {4294967299}),
    ],
)
def test_the_transactions_in_progress_of_a_snapshot(snapshot: str, expected: set[int]) -> None:
    assert in_progress(snapshot) == expected
