"""How the fault suite adds up: what it must call an overlap, and what it must not."""

from __future__ import annotations

from math import inf

import pytest

from tests.chaos.ledger import Run, overlaps


def run(pid: int, began: float, ended: float, job: int = 1) -> Run:
    return Run(job, "work", 1, pid, began, ended)


@pytest.mark.parametrize(
    ("runs", "deaths", "found"),
    [
        ([run(1, 0, 2), run(2, 1, 3)], {}, 1),
        ([run(2, 1, 3), run(1, 0, 2)], {}, 1),
        ([run(1, 0, 1), run(2, 1, 3)], {}, 0),
        ([run(1, 0, 9), run(2, 1, 2), run(3, 3, 4)], {}, 2),
        ([run(1, 0, 9), run(2, 1, 2, job=2)], {}, 0),
        ([run(1, 0, inf), run(2, 5, 6)], {}, 1),
        ([run(1, 0, inf), run(2, 5, 6)], {1: 4.0}, 0),
        ([run(1, 0, inf), run(2, 5, 6)], {1: 5.5}, 1),
        ([run(1, 0, inf), run(1, 5, 6)], {}, 1),
    ],
)
def test_overlaps(runs: list[Run], deaths: dict[int, float], found: int) -> None:
    """A run without an end lasts as long as its process; one at the same place counts as well."""
    assert len(overlaps(runs, deaths)) == found
