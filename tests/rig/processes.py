"""Workers and other programs as real processes, which a test may stop, continue and kill.

Each writes to a file and is killed and reaped when the test ends, whatever happens in it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

ROOT = Path(__file__).parents[2]
_FOREIGN = ("TAILRACE_", "PG", "PYTEST_", "COV_")


class RealProcess:
    """A program that runs beside the test."""

    def __init__(self, command: Sequence[str], *, output: Path, environment: Mapping[str, str], cwd: Path = ROOT) -> None:
        """Start it.

        Args:
            command: Program and arguments.
            output: The file that takes its standard output and error.
            environment: All variables it sees.
            cwd: Where it runs.
        """
        self.command = list(command)
        self.output_file = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=dict(environment), cwd=cwd
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it lives (also while stopped by a signal)."""
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """All it has written so far."""
        return self.output_file.read_text(encoding="utf-8", errors="replace")

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return its log records in JSON, or those of one event."""
        records = []
        for line in self.output.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and (name is None or record.get("event") == name):
                records.append(record)
        return records

    def wait_event(self, name: str, timeout: float = 40.0) -> dict[str, Any]:
        """Wait for the first record of an event and return it.

        Raises:
            AssertionError: It did not come, or the process ended before; the message has the output.
        """

        def found() -> list[dict[str, Any]]:
            ended = not self.running  # asked first: what it wrote before its end counts
            records = self.events(name)
            if ended and not records:
                raise EndedError(f"{self.command} ended with {self._process.returncode} before {name!r}:\n{self.output[-4000:]}")
            return records

        try:
            return eventually(found, timeout, what=f"event {name!r}")[0]
        except EndedError as error:
            raise AssertionError(str(error)) from None
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-4000:]}") from None

    def wait(self, timeout: float = 30.0) -> int:
        """Wait for its end and return the exit status (negative: the signal).

        Raises:
            AssertionError: It still runs when the time is over; the message has the output.
        """
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} still runs after {timeout:g} s:\n{self.output[-4000:]}") from None

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM: a worker drains."""
        self.signal(signal.SIGTERM)

    def stop(self) -> None:
        """Send SIGSTOP: it stands still until `cont`."""
        self.signal(signal.SIGSTOP)

    def cont(self) -> None:
        """Send SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill9(self) -> int:
        """Send SIGKILL, wait for the end and return the status."""
        self.signal(signal.SIGKILL)
        return self.wait(10.0)

    def reap(self) -> None:
        """Kill it if it still lives; the rig calls this."""
        if self.running:
            self._process.kill()  # SIGKILL also ends a stopped process
        self._process.wait(10.0)


class EndedError(Exception):
    """A process ended while a test waited for it."""


class WorkerProcess(RealProcess):
    """A `tailrace worker`, logging JSON."""

    def wait_ready(self, timeout: float = 40.0) -> WorkerProcess:
        """Wait until it claims; returns itself.

        Raises:
            AssertionError: It did not get there; the message has the output.
        """
        self.wait_event("worker_ready", timeout)
        return self

    @property
    def metrics_port(self) -> int:
        """The port of /metrics, /livez and /readyz on 127.0.0.1."""
        return int(self.wait_event("metrics_listening")["port"])

    def get(self, path: str, *, timeout: float = 5.0) -> tuple[int, str]:
        """Return status and body of one of its pages, such as "/readyz"."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels; 0 when there is none."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            if series.split("{")[0] == name and all(f'{label}="{text}"' in series for label, text in labels.items()):
                total += float(value)
        return total


class StartProcess(Protocol):
    """The fixture `process`."""

    def __call__(self, *command: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> RealProcess:
        """Start a program; a command that begins with "-" is for this Python."""


class StartWorker(Protocol):
    """The fixture `worker_process`."""

    def __call__(self, app: str, *arguments: str, env: Mapping[str, str] | None = None, dsn: str | None = None) -> WorkerProcess:
        """Start `tailrace worker APP ARGUMENTS…` on the test's database, or on another by `dsn`."""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[StartProcess]:
    """Start programs: `process("-m", "tailrace_cli", "doctor", env={…}).wait()`; killed and reaped after the test."""
    started: list[RealProcess] = []

    def start(*command: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> RealProcess:
        full = [sys.executable, *command] if command[0].startswith("-") else list(command)
        started.append(
            RealProcess(full, output=tmp_path / f"process-{len(started)}.log", environment=clean_environment(env), cwd=cwd)
        )
        return started[-1]

    yield start
    _reap(started)


@pytest.fixture
def worker_process(database: RigDatabase, tmp_path: Path) -> Iterator[StartWorker]:
    """Start workers: `worker_process("tests.worker.apps:app", "--slots", "2", env={…}).wait_ready()`; reaped after the test."""
    started: list[WorkerProcess] = []

    def start(app: str, *arguments: str, env: Mapping[str, str] | None = None, dsn: str | None = None) -> WorkerProcess:
        settings = {
            "TAILRACE_DATABASE_URL": dsn or database.dsn,
            "TAILRACE_LOG_FORMAT": "json",
            "TAILRACE_METRICS_HOST": "127.0.0.1",
            "TAILRACE_METRICS_PORT": "0",
            **(env or {}),
        }
        command = [sys.executable, "-m", "tailrace_cli", "worker", app, *arguments]
        output = tmp_path / f"worker-{len(started)}.log"
        started.append(WorkerProcess(command, output=output, environment=clean_environment(settings)))
        return started[-1]

    yield start
    _reap(started)


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return our environment without settings of ours and of PostgreSQL, plus what is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {**kept, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **(more or {})}


def _reap(started: Sequence[RealProcess]) -> None:
    failures: list[Exception] = []
    for one in started:
        try:
            one.reap()
        except Exception as error:  # noqa: BLE001 - the others must be reaped too
            failures.append(error)
    if failures:
        raise ExceptionGroup("processes that did not end", failures)
