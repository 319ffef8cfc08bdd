"""Runs the code blocks of a page in order: Python in one namespace, SQL on one connection, console lines in a shell.

All see the same fresh database and the same folder, in which the blocks marked as files lie. Used by `test_code_blocks`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tests.docs.blocks import ROOT, RUNNABLE, Block
from tests.rig.processes import clean_environment
from tests.rig.servers import RigDatabase

_CONSOLE_SECONDS = 60


class Runner:
    """Runs blocks; one for each page."""

    def __init__(self, database: RigDatabase, folder: Path) -> None:
        """Prepare folder and environment.

        Args:
            database: What the page's code works on.
            folder: An empty folder; the current one for the page's code.
        """
        self._database = database
        self._folder = folder / "project"
        self._folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        for name, module in (("tailrace", "-m tailrace_cli"), ("python", "")):
            script = programs / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            script.chmod(0o755)
        self._environment = clean_environment(
            {
                "TAILRACE_DATABASE_URL": database.dsn,
                "TAILRACE_METRICS_HOST": "127.0.0.1",
                "TAILRACE_METRICS_PORT": "0",
                "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join((str(self._folder), str(ROOT))),
                "NO_COLOR": "1",
            }
        )
        self._module = types.ModuleType("docs_page")
        self._module.__dict__["dsn"] = database.dsn

    def run(self, blocks: list[Block]) -> None:
        """Run the blocks of a page.

        Args:
            blocks: In the order of the page.

        Raises:
            AssertionError: One failed; the message names its place.
        """
        with self._surroundings():
            for block in blocks:
                try:
                    self._do(block)
                except Exception as error:
                    raise AssertionError(f"{block.place}: {type(error).__name__}: {error}\n{block.code}") from error

    def _do(self, block: Block) -> None:
        run = {"python": self._run_python, "sql": self._run_sql, "console": self._run_console}
        if block.file is not None:
            self._write(block)
        elif block.reason is None and block.language in RUNNABLE:
            run[block.language](block)

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        """Let the page's Python find its files and its database, and forget all of it afterwards."""
        before = set(sys.modules)
        here = Path.cwd()
        sys.modules["docs_page"] = self._module
        sys.path.insert(0, str(self._folder))
        os.chdir(self._folder)
        try:
            with mock.patch.dict(os.environ, self._environment, clear=True):
                yield
        finally:
            os.chdir(here)
            sys.path.remove(str(self._folder))
            for name in set(sys.modules) - before:
                origin = getattr(sys.modules[name], "__file__", None) or ""
                if name == "docs_page" or origin.startswith(str(self._folder)):
                    del sys.modules[name]

    def _write(self, block: Block) -> None:
        assert block.file is not None
        path = self._folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")

    def _run_python(self, block: Block) -> None:
        # The empty lines before make the line numbers of a traceback those of the page.
        source = "\n" * (block.line - 1) + block.code
        code = compile(source, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, self._module.__dict__))
        else:
            exec(code, self._module.__dict__)

    def _run_sql(self, block: Block) -> None:
        with self._database.connect() as conn:
            conn.execute(block.code.encode())

    def _run_console(self, block: Block) -> None:
        done = subprocess.run(
            ["/bin/sh", "-e"],
            input=_commands(block.code),
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_CONSOLE_SECONDS,
        )
        assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"


def _commands(text: str) -> str:
    """Return the lines after `$ `, with their continuations; all else is output."""
    commands: list[str] = []
    continued = False
    for line in text.splitlines():
        if line.startswith("$ ") or continued:
            commands.append(line.removeprefix("$ ") if not continued else line)
            continued = line.endswith("\\")
    assert commands, "a console block without a line that begins with '$ '"
    return "\n".join(commands) + "\n"
