"""Which test shows what the controller does instead of each limitation of kopf: the third table in tests/README.md.

Numbers stand in docstrings of tests and of their modules, what holds in notes.toml. `python -m tests.rig.notes` writes the
table; a test of the house checks that it is current and complete. `cases` is alike.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.rig.cases import docstrings
from tests.rig.citations import README, TESTS, cited_in, put_between

_LIST = re.compile(r"\boperator-notes 3\.2((?:,? (?:and )?#\d+)+)")
_NUMBER = re.compile(r"#(\d+)")
_START, _END = "<!-- notes: written by python -m tests.rig.notes -->", "<!-- end of notes -->"


def notes() -> dict[str, Mapping[str, str]]:
    """Return each limitation's `limit`, `ours` and perhaps `left`, by its number."""
    with (TESTS / "notes.toml").open("rb") as file:
        return tomllib.load(file)


def citations() -> dict[str, list[str]]:
    """Return for each cited number the tests that cite it, as `folder/test_file.py::test_name`, sorted."""
    return cited_in(_numbers, re.compile(r"\d+"))


def missing() -> list[str]:
    """Return the limitations that have neither a test nor a reason."""
    cited = citations()
    return [number for number, note in notes().items() if number not in cited and not note.get("left")]


def unknown() -> list[str]:
    """Return cited numbers that notes.toml does not have."""
    return sorted(set(citations()) - set(notes()))


def table() -> str:
    """Return the table between its markers."""
    cited = citations()
    lines = [_START, "", "| # | kopf | here | tests | left out |", "|---|---|---|---|---|"]
    for number, note in notes().items():
        places = "<br>".join(f"`{place}`" for place in cited.get(number, ["none"]))
        lines.append(f"| {number} | {note['limit']} | {note['ours']} | {places} | {note.get('left', '')} |")
    return "\n".join([*lines, "", _END])


def with_table(readme: str) -> str:
    """Return the text of the README with the current table."""
    return put_between(readme, _START, table(), _END)


def _numbers(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each place with the numbers that its docstring cites, as text: "operator-notes 3.2 #4, #5" has two."""
    for place, text in docstrings(path):
        numbers = [number for cited in _LIST.findall(text) for number in _NUMBER.findall(cited)]
        yield place, " ".join(numbers)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
