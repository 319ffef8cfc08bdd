"""Tests wait for conditions: a sleep is too short on a slow machine and too long on a fast one."""

from __future__ import annotations

import ast
from typing import TypeGuard

from tests.house.tree import ROOT, python_files, shown, syntax


def test_tests_do_not_sleep() -> None:
    found = [
        f"{shown(path)}:{node.lineno}"
        for path in python_files("tests")
        if path.name.startswith("test_") and path.parent != ROOT / "tests" / "rig"
        for node in ast.walk(syntax(path))
        if _is_call(node, "time", "sleep")
    ]
    assert not found, f"use tests.rig.waiting.eventually instead of time.sleep: {found}"


def test_async_tests_do_not_sleep_themselves() -> None:
    """A handler inside a test may sleep, since that is its work."""
    found = [
        f"{shown(path)}:{inner.lineno}"
        for path in python_files("tests")
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")
        for inner in _own_nodes(node)
        if _is_call(inner, "asyncio", "sleep")
    ]
    assert not found, f"use tests.rig.waiting.aeventually instead of asyncio.sleep: {found}"


def _own_nodes(node: ast.AST) -> list[ast.AST]:
    """Return the nodes of a function without those of the functions in it."""
    own: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            own += [child, *_own_nodes(child)]
    return own


def _is_call(node: ast.AST, module: str, name: str) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == module
    )
