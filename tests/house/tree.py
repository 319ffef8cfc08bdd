"""The files of the project, for the tests of the house rules."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("core", "worker", "controller", "cli")


@cache
def files() -> tuple[Path, ...]:
    """Return all files that are, or would be, tracked."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    )
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return tuple(path for path in paths if path.is_file())


def python_files(*folders: str) -> list[Path]:
    """Return the Python files below some folders of the root, or all."""
    return [path for path in files() if path.suffix == ".py" and (not folders or path.relative_to(ROOT).parts[0] in folders)]


def sql_files() -> list[Path]:
    """Return the SQL files of the sources."""
    return [path for path in files() if path.suffix == ".sql" and path.relative_to(ROOT).parts[0] in SOURCES]


@cache
def syntax(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def shown(path: Path) -> str:
    """Return a path as a message shows it."""
    return path.relative_to(ROOT).as_posix()
