"""How long a failed job waits: the function of the database beside the one of the library."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tailrace.policy import STRATEGIES, RetryPolicy, Strategy
from tests.engine.rows import Rows


def waits(rows: Rows, policy: dict[str, Any] | None, n: int, times: int = 1) -> list[float]:
    """Ask the database."""
    found = rows.conn.execute(
        "select tailrace.backoff_v1(%s, %s) from generate_series(1, %s)", [None if policy is None else Jsonb(policy), n, times]
    )
    return [wait for (wait,) in found.fetchall()]


@pytest.mark.parametrize(("strategy", "base", "cap"), list(itertools.product(STRATEGIES, (0.1, 5, 60), (30, 900))))
def test_database_and_library_agree(rows: Rows, strategy: Strategy, base: float, cap: float) -> None:
    """FQ-22: one policy for all. Without jitter the waits are equal; with it they have the same bounds."""
    plain = RetryPolicy(base=base, cap=cap, strategy=strategy, jitter=0)
    for n in (1, 2, 3, 7, 40, 10_000):
        low, high = plain.delay(n, random=lambda: 0.0), plain.delay(n, random=lambda: 1.0)
        assert all(low - 1e-9 <= wait <= high + 1e-9 for wait in waits(rows, plain.as_json(), n, 20))


def test_the_default_doubles_from_five_seconds_to_fifteen_minutes(rows: Rows) -> None:
    """CJ-08, CJ-23: 5 s x 2^(n-1), capped, 20 % either way; attempt 10,000 keeps the cap."""
    for n, wait in [(1, 5), (2, 10), (3, 20), (8, 640), (9, 900), (60, 900), (10_000, 900), (2_147_483_647, 900), (0, 5)]:
        policies: tuple[dict[str, Any] | None, ...] = (None, {})
        for policy in policies:
            assert wait * 0.8 <= waits(rows, policy, n)[0] <= wait * 1.2


def test_jobs_that_fail_together_do_not_return_together(rows: Rows) -> None:
    """CJ-09: the waits are spread over the whole range."""
    found = waits(rows, None, 4, times=1000)
    assert len(set(found)) > 990
    assert 32 <= min(found) < 33
    assert 47 < max(found) <= 48


def test_full_jitter_has_a_floor(rows: Rows) -> None:
    """FQ-22: never 0 s."""
    assert min(waits(rows, {"strategy": "full_jitter", "base": 0.5, "cap": 900}, 1, times=100)) == 1


@pytest.mark.parametrize(
    "policy",
    [
        {"strategy": "Fixed", "baseSeconds": 7, "maxSeconds": 900, "jitterPercent": 0},
        {"strategy": "fixed", "base": 7, "cap": 900, "jitter": 0},
    ],
)
def test_both_spellings_are_read(rows: Rows, policy: dict[str, Any]) -> None:
    """BF-39: the resource's form and a job's own; every field has an effect."""
    assert waits(rows, policy, 5) == [7]


@pytest.mark.parametrize("policy", [{"strategy": 3, "base": "x"}, {"base": None}, [], "text", {"cap": {}}, {"jitter": "much"}])
def test_a_broken_policy_is_the_default(rows: Rows, policy: Any) -> None:
    """A hand-edited row must not stop the reaper."""
    assert 4 <= waits(rows, policy, 1)[0] <= 6


def test_the_policy_of_a_job_then_its_task_then_its_queue(rows: Rows) -> None:
    """BF-39: jobs without a policy of their own take the queue's, looked up at the failure."""

    def fixed(base: float) -> dict[str, Any]:
        return {"strategy": "Fixed", "baseSeconds": base, "jitterPercent": 0}

    settings = {"jobDefaults": {"backoff": fixed(30)}, "tasks": [{"name": "special", "backoff": fixed(40)}, {"name": "plain"}]}
    rows.conn.execute("insert into tailrace.queue (name, settings) values ('q', %s)", [Jsonb(settings)])
    expected = {"own": 50, "special": 40, "plain": 30}
    for task, wait in expected.items():
        token, [ident] = rows.running(task=task)
        if task == "own":
            rows.conn.execute("update tailrace.job set backoff = %s", [Jsonb({"strategy": "fixed", "base": 50, "jitter": 0})])
        assert rows.settle({"id": ident, "token": token, "kind": "error"})[ident] == "retried"
        row = rows.row(ident)
        assert row is not None
        assert wait - 5 < row["wait"] <= wait
