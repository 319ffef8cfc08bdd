"""Which test guards which known mistake: the table in tests/README.md.

Ids stand in docstrings and comments of tests, their meanings in pitfalls.toml. `python -m tests.rig.pitfalls` writes the
table; a test of the house checks that it is current and complete.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.rig.citations import README, TESTS, cited_in, put_between

BEYOND = "beyond"

_ID = re.compile(r"\b(?:BF|CJ|FQ|GW)-\d\d\b")
_START, _END = "<!-- pitfalls: written by python -m tests.rig.pitfalls -->", "<!-- end of pitfalls -->"


def suites() -> dict[str, dict[str, str]]:
    """Return the ids of each suite with what must hold."""
    with (TESTS / "pitfalls.toml").open("rb") as file:
        return tomllib.load(file)


def citations() -> dict[str, list[str]]:
    """Return for each cited id the tests that cite it, as `folder/test_file.py::test_name`, sorted."""
    return cited_in(_texts, _ID)


def missing() -> list[str]:
    """Return the ids of this release's suites that no test cites."""
    cited = citations()
    return [one for suite, ids in suites().items() if suite != BEYOND for one in ids if one not in cited]


def unknown() -> list[str]:
    """Return cited ids that have no meaning in pitfalls.toml."""
    known = {one for ids in suites().values() for one in ids}
    return sorted(set(citations()) - known)


def table() -> str:
    """Return the table between its markers."""
    cited = citations()
    lines = [_START, "", "| id | what must hold | tests |", "|---|---|---|"]
    for suite, ids in suites().items():
        shown = {one: text for one, text in ids.items() if suite != BEYOND or one in cited}
        if shown:
            lines.append(f"| | **{suite.replace('-', ' ')}** | |")
        for one, text in shown.items():
            places = "<br>".join(f"`{place}`" for place in cited.get(one, ["none"]))
            lines.append(f"| {one} | {text} | {places} |")
    return "\n".join([*lines, "", _END])


def with_table(readme: str) -> str:
    """Return the text of the README with the current table."""
    return put_between(readme, _START, table(), _END)


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the source of each test of a file, and of the file's own docstring."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    name = path.relative_to(TESTS).as_posix()
    yield name, ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield f"{name}::{node.name}", ast.get_source_segment(source, node) or ""
        elif isinstance(node, ast.ClassDef):
            yield name, ast.get_docstring(node) or ""


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
