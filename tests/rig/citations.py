"""Who cites an id, and the table of it in tests/README.md: what `pitfalls` and `cases` have alike.

They differ in what an id looks like and in which part of a test may cite one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

TESTS = Path(__file__).parents[1]
README = TESTS / "README.md"


def cited_in(texts: Callable[[Path], Iterable[tuple[str, str]]], ident: re.Pattern[str]) -> dict[str, list[str]]:
    """Return for each cited id the tests that cite it, as `folder/test_file.py::test_name`, sorted.

    Args:
        texts: Gives the places of a test file and what stands there.
        ident: What an id looks like.
    """
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for place, text in texts(path):
            for cited in ident.findall(text):
                found.setdefault(cited, set()).add(place)
    return {cited: sorted(places) for cited, places in found.items()}


def put_between(readme: str, start: str, table: str, end: str) -> str:
    """Return the text of the README with a table in place of what stands from `start` to `end`.

    Args:
        readme: The text now.
        start: The first line of the table.
        table: The table, both lines included.
        end: Its last line.
    """
    before, _, rest = readme.partition(start)
    _, _, after = rest.partition(end)
    return before + table + after
