"""`tailrace dev` as a real process: its files, what it said of its queues, and its workers.

With `-o json` each change of a queue is a line; logs stand between them. The application is that of the worker's tests.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.rig.processes import ROOT, EndedError, RealProcess, StartProcess, clean_environment
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.apps:app"
FIXED = "{mode: Operator, minReplicas: 1, maxReplicas: 1}"
"""Autoscaling that always wants one worker."""

PATIENCE = 40.0
"""Seconds to wait for what must come."""

_ON_TERMINAL = """import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"""
_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def resource(
    *,
    name: str = "work",
    mode: str = "{mode: Operator, minReplicas: 0, maxReplicas: 2}",
    slots: int | str = 1,
    more: str = "",
    container: str = f'{{name: worker, image: x, args: ["worker", "{APP}"]}}',
) -> str:
    """The text of one JobQueue that is gone to zero soon after its last job."""
    return (
        f"apiVersion: tailrace.dev/v1alpha1\nkind: JobQueue\nmetadata: {{name: {name}}}\nspec:\n"
        f"  latencyTargetSeconds: 1\n  worker: {{slots: {slots}, drainTimeoutSeconds: 20}}\n  autoscaling: {mode}\n{more}"
        f"  template: {{spec: {{containers: [{container}]}}}}\n"
    )


class Dev:
    """One run of the command."""

    def __init__(self, process: RealProcess) -> None:
        """Watch a process that runs with -o json."""
        self.process = process

    @property
    def statuses(self) -> list[dict[str, Any]]:
        """Every record of a queue so far."""
        return [record for record in self.process.events() if "wanted" in record]

    def last(self, queue: str = "work") -> dict[str, Any]:
        """The newest record of a queue; empty before the first."""
        return next((record for record in reversed(self.statuses) if record["queue"] == queue), {})

    def until(self, what: str, holds: Callable[[dict[str, Any]], bool], *, queue: str = "work") -> dict[str, Any]:
        """Wait until the newest record of a queue is as wanted, and return it."""

        def found() -> dict[str, Any]:
            last = self.last(queue)
            if not self.process.running:
                raise EndedError
            return last if last and holds(last) else {}

        try:
            return eventually(found, PATIENCE, what=what)
        except (AssertionError, EndedError) as error:
            raise AssertionError(f"{error!r}\n{self.process.output[-6000:]}") from None

    def said(self, pattern: str) -> re.Match[str]:
        """Wait until it has said something."""
        return _search(pattern, lambda: self.process.output)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.signal(signal.SIGINT)

    def end(self) -> int:
        """Press Ctrl-C and wait for the exit status."""
        self.interrupt()
        return self.process.wait(PATIENCE)


class DevStarter:
    """Starts runs, and ends them in order when the test is over, so that none leaves its workers behind."""

    def __init__(self, start: StartProcess, dsn: str | None, folder: Path) -> None:
        """Remember where.

        Args:
            start: Starts processes.
            dsn: The database; None for an embedded one.
            folder: For files.
        """
        self._start, self._dsn, self.folder = start, dsn, folder
        self._running: list[Dev] = []

    @property
    def file(self) -> Path:
        """The JobQueue file."""
        return self.folder / "queue.yaml"

    def __call__(self, text: str | None = None, *arguments: str, env: Mapping[str, str] | None = None, form: str = "json") -> Dev:
        """Write the file, if a text is given, and start."""
        if text is not None:
            self.file.write_text(text)
        place = {} if self._dsn is None else {"TAILRACE_DATABASE_URL": self._dsn}
        command = ("-m", "tailrace_cli", "dev", str(self.file), "-o", form, *arguments)
        self._running.append(Dev(self._start(*command, env={**place, **(env or {})})))
        return self._running[-1]

    def close(self) -> None:
        """End those that still run."""
        for dev in self._running:
            if dev.process.running:
                dev.process.terminate()
                dev.process.terminate()
        for dev in self._running:
            dev.process.wait(PATIENCE)


class Terminal:
    """The command on a terminal of its own, whose keys a test types; a context manager that ends it."""

    def __init__(self, *arguments: str, env: Mapping[str, str]) -> None:
        """Start it.

        Args:
            arguments: Of `tailrace`.
            env: Variables beside those of a clean environment.
        """
        self._outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, "-m", "tailrace_cli", *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=clean_environment({"TERM": "xterm-256color", **env}),
            cwd=ROOT,
            start_new_session=True,  # with the terminal as its own: typed signals reach it
        )
        os.close(inner)
        self.raw = ""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._outer)

    @property
    def text(self) -> str:
        """All it has written so far, without what steers the terminal."""
        while select.select([self._outer], [], [], 0)[0]:
            try:
                piece = os.read(self._outer, 65536)
            except OSError:  # the other end is closed: it has ended
                break
            self.raw += piece.decode("utf-8", "replace")
        return _STEERING.sub("", self.raw)

    def shows(self, pattern: str) -> re.Match[str]:
        """Wait until it has written something."""
        return _search(pattern, lambda: self.text)

    def type(self, keys: str) -> None:
        """Type keys; Ctrl-C is character 3."""
        os.write(self._outer, keys.encode())

    def wait(self) -> int:
        """Wait for its end, reading on so that it never waits for us, and return the exit status."""

        def ended() -> bool:
            assert self.text is not None
            return self._process.poll() is not None

        eventually(ended, PATIENCE, what="its end")
        return self._process.wait()


def _search(pattern: str, text: Callable[[], str]) -> re.Match[str]:
    def found() -> re.Match[str]:
        match = re.search(pattern, text())
        assert match is not None, text()[-6000:]
        return match

    return eventually(found, PATIENCE, what=repr(pattern))


def ready(status: dict[str, Any]) -> bool:
    """As many workers claim as are wanted, and there is one."""
    return status["workers"] == status["wanted"] and bool(status["workers"])


def workers(board: Board) -> list[str]:
    """The ids of the living workers."""
    return [name for (name,) in board.conn.execute("select id from tailrace.worker where until > clock_timestamp() order by id")]


def worker_pid(run: Dev) -> int:
    """The process id of the only worker."""
    children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    (pid,) = [int(child) for child in children if b"worker" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return pid
