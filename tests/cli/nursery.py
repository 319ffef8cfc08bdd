"""Starts the command as a process for each call without importing it anew: one process imports it and forks.

Run as a program it reads one request a line: arguments, environment, and files for stdin, stdout and stderr; it answers with
the exit status. A test would wait a second for each start else.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.rig.processes import ROOT, clean_environment

_PRELOADED = (
    *(
        f"tailrace_cli.{name}"
        for name in ("dead_letters", "doctor", "enqueue", "jobs", "leases", "maintain", "migrate", "queues")
    ),
    *(f"tailrace_cli.{name}" for name in ("tasks", "worker", "workers")),
    "tailrace_worker.service",
)
_SECONDS = 60


class Nursery:
    """A process that forks the command."""

    def __init__(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            cwd=ROOT,
        )

    def run(self, arguments: Sequence[str], *, environment: Mapping[str, str], stdin: str, folder: Path) -> tuple[int, str, str]:
        """Run the command; returns status, stdout and stderr.

        Args:
            arguments: After `tailrace`.
            environment: All variables it sees.
            stdin: What it can read.
            folder: For its files.
        """
        files = {name: folder / f"cli-{name}" for name in ("stdin", "stdout", "stderr")}
        files["stdin"].write_text(stdin, encoding="utf-8")
        request = {
            "arguments": arguments,
            "environment": dict(environment),
            "files": {name: str(file) for name, file in files.items()},
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], _SECONDS)[0]:
            raise AssertionError(f"tailrace {arguments} still runs after {_SECONDS} s: {files['stderr'].read_text()[-2000:]}")
        status = int(self._process.stdout.readline())
        return status, files["stdout"].read_text(encoding="utf-8"), files["stderr"].read_text(encoding="utf-8")

    def close(self) -> None:
        """End it, and a command that still runs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def _serve() -> None:
    for name in _PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        _, ended = os.waitpid(child, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(ended)}\n".encode())


def _become(request: dict[str, Any]) -> NoReturn:
    files = request["files"]
    os.dup2(os.open(files["stdin"], os.O_RDONLY), 0)
    os.dup2(os.open(files["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(os.open(files["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8")
    os.environ.clear()
    os.environ.update(request["environment"])
    from tailrace_cli.main import run

    status = 70
    try:
        status = run(request["arguments"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
