"""SQL stands in .sql files, and each block says what it is for."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

from tailrace.db import Blocks
from tests.house.tree import ROOT, python_files, shown, sql_files, syntax

_STATEMENT = re.compile(
    r"\s*(?:select\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s|with\s+\w+\s+as\b|merge\s+into\s|copy\s+\S+\s|truncate\s|"
    r"(?:create|alter|drop)\s+(?:table|index|schema|function|view|role|type|or\s+replace)\b)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"%\((\w+)\)s")
_BLOCK = re.compile(r"^-- name: *(\S+)", re.MULTILINE)


def test_python_has_no_statements() -> None:
    found = [
        f"{shown(path)}:{node.lineno}: {node.value.strip()[:60]}"
        for path in python_files("core", "worker", "controller", "cli")
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _STATEMENT.match(node.value)
        and not _is_allowed(path, node.value)
    ]
    assert not found, f"SQL belongs into a named block of a .sql file: {found}"


@pytest.mark.parametrize("path", [path for path in sql_files() if path.parent.name == "sql"], ids=shown)
def test_blocks_say_purpose_locks_and_index(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    starts = [match.start() for match in _BLOCK.finditer(text)] + [len(text)]
    assert len(starts) > 1, f"{shown(path)} has no block"
    for start, end in itertools.pairwise(starts):
        block = text[start:end]
        name = block.splitlines()[0]
        silent = [word for word in ("purpose", "locks", "index") if not re.search(rf"^-- {word}: *\S", block, re.MULTILINE)]
        assert not silent, f"{shown(path)}: {name} does not say {silent}"


@pytest.mark.parametrize("path", [path for path in sql_files() if path.parent.name == "migrations"], ids=shown)
def test_migrations_begin_with_what_they_do(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("--")
    assert re.fullmatch(r"\d{4}_[a-z_]+\.sql", path.name)


def _is_allowed(path: Path, text: str) -> bool:
    """Allow prose (it ends like a sentence), the ping, and what is composed around a quoted identifier, in the database package.

    A block cannot name a schema or an index that is known at run time only.
    """
    composed = "{}" in text and path.is_relative_to(ROOT / "core" / "tailrace" / "db")
    return composed or text == "select 1" or text.rstrip().endswith((".", ":", "?"))


def test_the_state_machine_gives_each_statement_its_parameters() -> None:
    """A block got a parameter twice and the state machine did not; its test runs for minutes before it comes there."""
    blocks, checked = Blocks("tailrace"), 0
    for path in python_files("tests"):
        for node in ast.walk(syntax(path)) if path.parent.name == "machine" else ():
            match node:
                case ast.Call(func=ast.Attribute(attr="ask"), args=[ast.Constant(value=str(name)), ast.Dict(keys=keys)]) if (
                    name in blocks
                ):
                    given = {key.value for key in keys if isinstance(key, ast.Constant)}
                    assert given == set(_PARAMETER.findall(blocks[name])), f"{shown(path)}:{node.lineno}: {name}"
                    checked += 1
    assert checked > 5
