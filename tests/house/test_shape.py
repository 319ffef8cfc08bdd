"""Modules and functions stay small, and names say what a thing is."""

from __future__ import annotations

import ast

from tests.house.tree import files, python_files, shown, syntax

MODULE_LINES = 300
FUNCTION_LINES = 40
GRAB_BAGS = frozenset({"utils", "util", "common", "helpers", "helper", "misc", "manager", "managers"})


def test_modules_are_short() -> None:
    long = {}
    for path in python_files():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MODULE_LINES:
            long[shown(path)] = lines
    assert not long, f"modules over {MODULE_LINES} lines: {long}"


def test_functions_are_short() -> None:
    long = {}
    for path in python_files():
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _lines(node) > FUNCTION_LINES:
                long[f"{shown(path)}::{node.name}"] = _lines(node)
    assert not long, f"functions over {FUNCTION_LINES} lines without their docstring: {long}"


def test_nothing_is_a_grab_bag() -> None:
    modules = [shown(path) for path in files() if GRAB_BAGS & {part.split(".")[0] for part in path.parts}]
    classes = [
        f"{shown(path)}::{node.name}"
        for path in python_files()
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.ClassDef) and node.name.lower().endswith(tuple(GRAB_BAGS))
    ]
    assert not modules + classes


def test_modules_say_what_they_are() -> None:
    silent = [shown(path) for path in python_files() if path.stat().st_size and not ast.get_docstring(syntax(path))]
    assert not silent, f"modules without a docstring: {silent}"


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    docstring = node.body[0] if ast.get_docstring(node) is not None else None
    inside = docstring.end_lineno - docstring.lineno + 1 if docstring is not None and docstring.end_lineno else 0
    return node.end_lineno - node.lineno + 1 - inside
