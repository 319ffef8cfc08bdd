"""The engine's guarantees under every order of what can happen, on a real server.

Short by default; `make machine` (TAILRACE_MACHINE=long) looks longer and elsewhere each time. A failure prints the steps in
words, and a blob that repeats it.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.arena import Arena
from tests.machine.machine import machine_on
from tests.rig.servers import RigDatabase

LONG = os.environ.get("TAILRACE_MACHINE") == "long"
_COMMON = settings(
    deadline=None,
    print_blob=True,
    database=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
SHORT = settings(_COMMON, max_examples=30, stateful_step_count=50, derandomize=True)
THOROUGH = settings(_COMMON, max_examples=2000, stateful_step_count=80, derandomize=False)


@pytest.mark.slow
@pytest.mark.timeout(3600 if LONG else 300)
def test_whatever_happens_in_whatever_order(database: RigDatabase) -> None:
    """Engine 2.1 to 2.5 and the locks of engine 8.

    GW-01, GW-03, CJ-03, CJ-04, CJ-06, CJ-13, FQ-03, FQ-09, FQ-27, BF-01, BF-02, BF-05, BF-06,
    BF-09, BF-11, BF-12, BF-19, BF-20, BF-21, BF-23.
    """
    arena = Arena(database)
    try:
        run_state_machine_as_test(machine_on(arena), settings=THOROUGH if LONG else SHORT)
    finally:
        arena.close()
