"""Actions: what can happen in a step, how often, and when it makes sense.

They stand in for hypothesis' rules, of which it switches a random half off in each example: a machine without its worker finds
nothing. Here every action can happen in every example, those that matter more often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st


@dataclass(frozen=True)
class Action:
    """One thing that can happen.

    Attributes:
        name: The method's name.
        weight: How often, beside the others.
        when: Whether it makes sense now, told the machine.
        arguments: Strategies by parameter.
    """

    name: str
    weight: int
    when: Callable[[Any], Any]
    arguments: dict[str, st.SearchStrategy[Any]]


def action(weight: int = 1, *, when: Callable[[Any], Any] = bool, **arguments: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Make a method an action.

    Args:
        weight: How often it happens, beside the others.
        when: Whether it makes sense now, told the machine; always by default.
        arguments: Strategies for the method's parameters.
    """

    def mark(method: Any) -> Any:
        method.action = Action(method.__name__, weight, when, arguments)
        return method

    return mark


@st.composite
def choices(draw: st.DrawFn, machine: Any) -> tuple[str, dict[str, Any]]:
    """One of the actions that make sense now, with its arguments."""
    methods = [getattr(type(machine), name, None) for name in sorted(dir(type(machine)))]
    known = [one for method in methods if (one := getattr(method, "action", None)) is not None]
    chosen = draw(st.sampled_from([one for one in known if one.when(machine) for _ in range(one.weight)]))
    return chosen.name, {name: draw(strategy) for name, strategy in chosen.arguments.items()}
