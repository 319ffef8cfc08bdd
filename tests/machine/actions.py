"""Actions: what can happen in a step, how often, and when it makes sense.

They stand in for hypothesis' rules, of which it switches a random half off in each example: a machine without its worker finds
nothing. Here every action can happen in every example, those that matter more often. A step is one number of hypothesis', which
seeds all choices of the step: its own choices repeat themselves, so that most examples would look for the same thing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Pick = Callable[[random.Random], Any]
"""Makes a value of random numbers."""

SEEDS = st.integers(0, 2**32 - 1)


def one_of(*values: Any) -> Pick:
    """One of these, those that stand there twice more often."""
    return lambda rng: rng.choice(values)


def number(lowest: int, highest: int) -> Pick:
    """A whole number."""
    return lambda rng: rng.randint(lowest, highest)


def some(item: Pick, fewest: int, most: int) -> Pick:
    """A list."""
    return lambda rng: [item(rng) for _ in range(rng.randint(fewest, most))]


def fields(**items: Pick) -> Pick:
    """A dict with a value for each."""
    return lambda rng: {name: item(rng) for name, item in items.items()}


@dataclass(frozen=True)
class Action:
    """One thing that can happen.

    Attributes:
        name: The method's name.
        weight: How often, beside the others.
        when: Whether it makes sense now, told the machine.
        arguments: What its parameters are made of.
    """

    name: str
    weight: int
    when: Callable[[Any], Any]
    arguments: dict[str, Pick]


def action(weight: int = 1, *, when: Callable[[Any], Any] = bool, **arguments: Pick) -> Callable[[Any], Any]:
    """Make a method an action.

    Args:
        weight: How often it happens, beside the others.
        when: Whether it makes sense now, told the machine; always by default.
        arguments: What the method's parameters are made of.
    """

    def mark(method: Any) -> Any:
        method.action = Action(method.__name__, weight, when, arguments)
        return method

    return mark


@st.composite
def choices(draw: st.DrawFn, machine: Any) -> tuple[str, dict[str, Any]]:
    """One of the actions that make sense now, with its arguments."""
    seed = draw(SEEDS)
    machine.drawn[seed] += 1
    rng = random.Random(f"{seed} {machine.drawn[seed]}")  # hypothesis likes to draw what it has drawn before
    methods = [getattr(type(machine), name, None) for name in sorted(dir(type(machine)))]
    known: list[Action] = [one for method in methods if (one := getattr(method, "action", None)) is not None]
    # Those that make no sense are passed over, not left out: a step stays what it is when steps before it are dropped.
    chosen = rng.choices(known, [one.weight for one in known])[0]
    while not chosen.when(machine):
        chosen = rng.choices(known, [one.weight for one in known])[0]
    return chosen.name, {name: made(rng) for name, made in chosen.arguments.items()}
