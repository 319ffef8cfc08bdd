"""Reads what the code says about itself: comments above SQL functions, docstrings of modules and of enum members.

`generate` makes the reference pages and the picture of the tree from it, so neither can go stale unnoticed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIGRATIONS = ROOT / "core" / "tailrace" / "db" / "migrations"

_FUNCTION = re.compile(r"^create (?:or replace )?function tailrace\.(\w+)\s*\(", re.MULTILINE)
_RETURNS = re.compile(r"\s*returns\s+(.*?)\s+(?:language|security|stable|volatile|immutable|set)\b", re.DOTALL)
_COMMENT_ON = re.compile(r"^comment on (?:function|view) tailrace\.(\w+)[^']*?\bis\s+'((?:[^']|'')*)'", re.MULTILINE)
_VIEW = re.compile(r"^create (?:or replace )?view tailrace\.(\w+)", re.MULTILINE)
_COMMENT_ON_RELATION = re.compile(
    r"^comment on (table|column|view) tailrace\.(\w+)(?:\.(\w+))?\s+is\s+'((?:[^']|'')*)'", re.MULTILINE
)
_FOLDERS_OF_SQL = {
    "migrations": "The steps that build the schema, in order.",
    "sql": "The statements of the programs, as named blocks.",
}
_INTERNAL = re.compile(r"_v\d+$")


@dataclass(frozen=True, slots=True)
class SqlObject:
    """A function or view that people may use.

    Attributes:
        name: Without the schema.
        signature: Parameters, in one line; empty for a view.
        returns: What a function returns; empty for a view.
        comment: The comment above it.
    """

    name: str
    signature: str
    returns: str
    comment: str


def functions() -> list[SqlObject]:
    """Return the public SQL functions: those without a version at the end of their name; the last definition wins."""
    found: dict[str, SqlObject] = {}
    said = _comments()
    for text in _migrations():
        for match in _FUNCTION.finditer(text):
            name, end = match[1], _closing(text, match.end())
            returned = _RETURNS.match(text, end + 1)
            returns = _one_line(returned[1]) if returned else ""
            if not _INTERNAL.search(name) and returns != "trigger":
                signature = _one_line(text[match.end() : end])
                comment = said.get(name) or _comment_above(text, match.start())
                found[f"{name}({signature})"] = SqlObject(name, signature, returns, comment)
    return sorted(found.values(), key=lambda one: (one.name, one.signature))


def views() -> list[SqlObject]:
    """Return the views."""
    said = _comments()
    found = {
        match[1]: SqlObject(match[1], "", "", said.get(match[1]) or _comment_above(text, match.start()))
        for text in _migrations()
        for match in _VIEW.finditer(text)
    }
    return [found[name] for name in sorted(found)]


@dataclass(slots=True)
class Relation:
    """A table or view with what its columns mean.

    Attributes:
        name: Without the schema.
        comment: What one row is.
        columns: Name and meaning of those that have a comment.
    """

    name: str
    comment: str = ""
    columns: list[tuple[str, str]] = field(default_factory=list)


def relations() -> list[Relation]:
    """Return the tables and views in the order of the migrations' comments."""
    found: dict[str, Relation] = {}
    for text in _migrations():
        for _, name, column, said in _COMMENT_ON_RELATION.findall(text):
            relation = found.setdefault(name, Relation(name))
            meaning = _one_line(said.replace("''", "'"))
            if column:
                relation.columns.append((column, meaning))
            else:
                relation.comment = meaning
    return list(found.values())


def members(path: Path, class_name: str) -> list[tuple[str, str]]:
    """Return the values of an enum's members with the docstring under each.

    Args:
        path: The module.
        class_name: The enum.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    found: list[tuple[str, str]] = []
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            found.append((str(node.value.value), _docstring(below)))
    return found


def tree(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the folders and files of a package with the first sentence of each.

    Args:
        folder: A folder below the repository's root.
    """
    for path in sorted(folder.iterdir(), key=lambda entry: (entry.is_dir(), entry.name)):
        name = str(path.relative_to(ROOT))
        if path.name.startswith((".", "_")) or path.suffix not in (".py", ".sql", ""):
            continue
        if path.is_dir():
            if any(path.glob("*.py")) or any(path.glob("*.sql")):
                yield f"{name}/", first_sentence(path / "__init__.py") or _FOLDERS_OF_SQL.get(path.name, "")
                yield from tree(path)
        elif path.suffix:
            yield name, first_sentence(path)


def first_sentence(path: Path) -> str:
    """Return the first line that a module or SQL file says about itself; empty when it says nothing.

    Args:
        path: A file; it need not exist.
    """
    if not path.exists():
        return ""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        line = text.splitlines()[0] if text.startswith("--") else ""
        return "" if line.startswith("-- name:") else re.sub(r"^Tailrace \d+: ", "", line.removeprefix("-- "))
    said = ast.get_docstring(ast.parse(text))
    return said.splitlines()[0] if said else ""


def _migrations() -> Iterator[str]:
    for path in sorted(MIGRATIONS.glob("*.sql")):
        yield path.read_text(encoding="utf-8")


def _closing(text: str, start: int) -> int:
    """Find the parenthesis that closes the one before `start`."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise ValueError("a function without a closing parenthesis")


def _comments() -> dict[str, str]:
    """What `comment on` says, by name."""
    return {match[1]: _one_line(match[2].replace("''", "'")) for text in _migrations() for match in _COMMENT_ON.finditer(text)}


def _comment_above(text: str, start: int) -> str:
    lines: list[str] = []
    for line in reversed(text[:start].splitlines()):
        if not line.startswith("--") or set(line) == {"-", " "} or "----" in line:
            break
        lines.insert(0, line.removeprefix("--").strip())
    return " ".join(lines)


def _docstring(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"--.*", "", text).split())
