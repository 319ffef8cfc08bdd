"""`tailrace dev` as a real process: its files, what it said of its queues, and its workers.

With `-o json` each change of a queue is a line; logs stand between them. The application is that of the worker's tests.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.rig.processes import RealProcess, StartProcess
from tests.rig.waiting import eventually

APP = "tests.worker.apps:app"
PATIENCE = 40.0
"""Seconds to wait for what must come."""


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

        def found() -> dict[str, Any] | None:
            last = self.last(queue)
            assert self.process.running, f"it has ended:\n{self.process.output[-4000:]}"
            return last if last and holds(last) else None

        try:
            return eventually(found, PATIENCE, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.process.output[-6000:]}") from None

    def said(self, pattern: str) -> re.Match[str]:
        """Wait until it has said something."""
        return eventually(lambda: re.search(pattern, self.process.output), PATIENCE, what=f"{pattern!r} in its output")

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
