"""Four faults that another system's upsert and start-up cleanup were meant to cure: here they must not exist."""

from __future__ import annotations

import pytest

from tests.engine.letters import Letters
from tests.engine.rows import Rows


@pytest.fixture
def letters(rows: Rows) -> Letters:
    return Letters(rows)


@pytest.mark.parametrize("key", [None, "order-1"], ids=["no key", "key"])
def test_duplicates(letters: Letters, rows: Rows, key: str | None) -> None:
    """BF-23, BF-28: a job that dies five times has one dead letter, with and without a key."""
    ident = letters.bury(key=key)
    for _ in range(4):
        letters.change("requeue", ident)
        letters.kill(ident)
    assert rows.count("dead_letter") == 1
    assert letters.of(ident, "state, dead_count, total_attempts, requeued_count") == ("dead", 5, 5, 4)


@pytest.mark.parametrize("key", [None, "order-1"], ids=["no key", "key"])
def test_stale_failed_at(letters: Letters, key: str | None) -> None:
    """BF-11, BF-29: failed_at is the latest failure, the first one is kept beside it, so a cool-down can be counted from it."""
    ident = letters.bury(key=key)
    first, before = letters.of(ident, "first_failed_at, failed_at")
    letters.change("requeue", ident)
    letters.kill(ident)
    assert letters.of(ident, "first_failed_at") == first
    assert letters.of(ident, "failed_at") > before


def test_endless_requeue_loops(letters: Letters) -> None:
    """b1: 51 dead jobs whose handler always fails; one requeue of all ends, reports 51, and leaves 51 dead after 51 runs."""
    ids = [letters.bury() for _ in range(51)]
    operation, runs, report = letters.begin()["id"], 0, {"state": "running", "done": 0}
    while report["state"] == "running":
        report = letters.step(operation, 10)
        for ident in ids:
            if letters.rows.row(ident) is not None:
                letters.kill(ident)
                runs += 1
        assert runs <= 51, "what dies again is not requeued by the same call"
    assert (report["done"], runs, letters.states()) == (51, 51, {"dead": 51})


def test_exponential_growth(letters: Letters, rows: Rows) -> None:
    """BF-19, BF-23: ten rounds of two operators who requeue everything, and of jobs that die, make no row more."""
    ids = [letters.bury(key=f"k{n}" if n % 2 else None) for n in range(10)]
    for _ in range(10):
        letters.run()
        letters.run()
        assert rows.count("job") == rows.count("dead_letter") == 10
        for ident in ids:
            letters.kill(ident)
        assert (rows.count("job"), rows.count("dead_letter")) == (0, 10)
    assert {letters.of(ident, "dead_count") for ident in ids} == {11}
    assert all(len(letters.events(ident)) == 20 for ident in ids)
