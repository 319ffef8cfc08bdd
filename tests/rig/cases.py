"""Which test tries which publicly reported fault: the second table in tests/README.md.

Ids stand in docstrings of tests and of their modules, what must hold in cases.toml. `python -m tests.rig.cases` writes the
table; a test of the house checks that it is current and that the groups which are due are complete. `pitfalls` is alike.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.rig.citations import README, TESTS, cited_in, put_between

_ID = re.compile(r"\b[a-l]\d\b")
_START, _END = "<!-- cases: written by python -m tests.rig.cases -->", "<!-- end of cases -->"


def _file() -> dict[str, Any]:
    with (TESTS / "cases.toml").open("rb") as file:
        return tomllib.load(file)


def due() -> list[str]:
    """Return the groups of which each case needs a test or a reason."""
    return list(_file()["due"])


def cases() -> dict[str, Mapping[str, str]]:
    """Return each case's `seen`, `holds` and perhaps `left`, by its id."""
    return {ident: case for group, told in _file().items() if group != "due" for ident, case in told.items()}


def citations() -> dict[str, list[str]]:
    """Return for each cited id the tests that cite it, as `folder/test_file.py::test_name`, sorted."""
    return cited_in(docstrings, _ID)


def missing() -> list[str]:
    """Return the cases of the groups that are due which have neither a test nor a reason."""
    cited, groups = citations(), due()
    return [ident for ident, case in cases().items() if ident[0] in groups and ident not in cited and not case.get("left")]


def unknown() -> list[str]:
    """Return cited ids that cases.toml does not have."""
    return sorted(set(citations()) - set(cases()))


def table() -> str:
    """Return the table between its markers: the groups that are due, and what is cited of the others."""
    cited, groups = citations(), due()
    lines = [_START, "", "| case | seen in | what must hold | tests | left out |", "|---|---|---|---|---|"]
    for ident, case in cases().items():
        if ident[0] in groups or ident in cited:
            places = "<br>".join(f"`{place}`" for place in cited.get(ident, ["none"]))
            lines.append(f"| {ident} | {case['seen']} | {case['holds']} | {places} | {case.get('left', '')} |")
    return "\n".join([*lines, "", _END])


def with_table(readme: str) -> str:
    """Return the text of the README with the current table."""
    return put_between(readme, _START, table(), _END)


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the docstring of each test of a file, and of the file itself.

    Args:
        path: The file.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = path.relative_to(TESTS).as_posix()
    yield name, ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield f"{name}::{node.name}", ast.get_docstring(node) or ""


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
