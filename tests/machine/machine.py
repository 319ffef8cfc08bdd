"""The state machine: producers, two workers, maintenance and time, in any order, with pauses before each commit.

Each group of rules is a class of its own; a feature adds its rules there or as one more class, its transitions to the model,
and its columns to witness.py. After every step the tables must be what the model says.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.machine.actions import SEEDS, choices, some
from tests.machine.arena import Arena
from tests.machine.completions import Completions
from tests.machine.hands import drained
from tests.machine.limits import Limits
from tests.machine.producers import NEW_JOB
from tests.machine.upkeep import Upkeep


class Machine(Completions, Limits, Upkeep, RuleBasedStateMachine):
    """All rules together."""

    shared: Arena
    """Set by the test: one database for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = self.shared
        self.crashes = 0
        self.runs = []
        self.bereft = set()
        self.completing = None
        self.drawn: Counter[int] = Counter()

    @initialize(jobs=SEEDS.map(lambda seed: some(NEW_JOB, 1, 4)(random.Random(seed))))
    def begin(self, jobs: list[dict[str, Any]]) -> None:
        """Two workers have said that they are there, and a producer stores some jobs."""
        self.arena.reset()
        self.enqueue(jobs, pause=False)

    @rule(action=st.runner().flatmap(choices))
    def step(self, action: tuple[str, dict[str, Any]]) -> None:
        """One action of those that make sense."""
        name, arguments = action
        getattr(self, name)(**arguments)

    @invariant()
    def the_tables_are_what_they_must_be(self) -> None:
        """Engine 2: guarantees 1 to 5, after every step."""
        self.arena.compare()

    def teardown(self) -> None:
        """After an example without a fault: everything must come to an end."""
        if sys.exc_info()[0] is None:
            drained(self)


def machine_on(arena: Arena) -> type[Machine]:
    """The machine for one database."""
    return type("Tailrace", (Machine,), {"shared": arena})
