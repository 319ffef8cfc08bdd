"""The filters of `tailrace dead-letters`, the same for lists, exports and changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tailrace.dead_letters import DEAD_LETTER_STATES, REASONS
from tailrace_cli.arguments import MOMENT, NAME

__all__ = ["filter_options", "json_or_text", "read_filter"]

F = TypeVar("F", bound=Callable[..., Any])

_NAMES = (
    "queue",
    "task",
    "key",
    "tenant",
    "reason",
    "error_type",
    "fingerprint",
    "state",
    "failed_after",
    "failed_before",
    "text",
    "meta",
)


_OPTIONS = (
    click.option("--queue", type=NAME, help="Of this queue only."),
    click.option("--task", type=NAME, help="Of this task only."),
    click.option("--key", type=NAME, help="With this key only."),
    click.option("--tenant", type=NAME, help="Of this tenant only; empty = of none."),
    click.option("--reason", type=click.Choice(REASONS), help="Here for this reason only."),
    click.option("--error-type", type=NAME, help="With this kind of last error only, such as network."),
    click.option("--fingerprint", type=NAME, help="Of this kind of failure only."),
    click.option("--state", type=click.Choice((*DEAD_LETTER_STATES, "all")), help="In this state only. [default: dead]"),
    click.option("--failed-after", type=MOMENT, help="Failed then or later: a time with its zone, or how long ago, such as 2h."),
    click.option("--failed-before", type=MOMENT, help="Failed then or earlier."),
    click.option("--text", type=NAME, help="With this text in errors or notes, in any case of letters."),
    click.option("--meta", type=NAME, multiple=True, metavar="NAME=VALUE", help="With this member of meta. Can be repeated."),
)


def filter_options(function: F) -> F:
    """Add the filters to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read_filter(given: dict[str, Any]) -> dict[str, Any]:
    """Return the filters among options, without those that were not given, and take them out.

    Args:
        given: The options of a command by name; the filters are removed from it.

    Raises:
        click.UsageError: A --meta has no name or value.
    """
    which = {name: given.pop(name) for name in _NAMES}
    which["meta"] = dict(_member(text) for text in which["meta"]) or None
    return {name: value for name, value in which.items() if value is not None}


def json_or_text(text: str) -> Any:
    """Return what JSON makes of a text, or the text itself if it is none.

    Args:
        text: As somebody typed it.
    """
    try:
        return json.loads(text, parse_constant=lambda _: text)
    except (ValueError, RecursionError):
        return text


def _member(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise click.UsageError(f"--meta {text!r}: write NAME=VALUE")
    return name, json_or_text(value)
