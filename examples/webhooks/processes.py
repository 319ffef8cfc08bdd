"""The processes of the demo: started here, and ended here by their own id.

Each runs in a session of its own, so Ctrl-C at the terminal reaches the demo only, which then ends them in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from examples.webhooks.receiver import READY
from tailrace_cli.held_signals import held_signals

ROOT = Path(__file__).resolve().parents[2]
"""The folder from which `examples` can be imported."""

_PAUSE = 0.1
_CLI_SECONDS = 60.0
_FOREIGN = ("TAILRACE_", "PG")
_SHOWN_BYTES = 3_000

T = TypeVar("T")


class DemoError(Exception):
    """The demo cannot go on; the message says why and where to look."""


class Child:
    """A process that the demo started."""

    def __init__(
        self, name: str, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], stack: ExitStack
    ) -> None:
        """Start it.

        Args:
            name: For messages, and the name of its log file.
            arguments: Arguments for this Python, such as ("-m", "tailrace_cli", "worker").
            folder: Where the log goes.
            environment: Variables to add to ours.
            stack: Ends it; no signal comes between its start and that.
        """
        self.name = name
        self.log_file = folder / f"{name}.log"
        with self.log_file.open("wb") as log, held_signals():
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=child_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(self.end)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def output(self) -> str:
        """All it has written so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def require_alive(self) -> None:
        """Check that it still runs.

        Raises:
            DemoError: It ended; the message has the end of its log.
        """
        status = self._process.poll()
        if status is not None:
            raise DemoError(f"{self.name} ended with status {status}. Its log ends:\n{self.output[-_SHOWN_BYTES:]}")

    def freeze(self) -> None:
        """Stop it where it stands (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, without a chance to clean up (SIGKILL)."""
        self._process.kill()
        self._process.wait(10)

    def end(self, *, timeout: float = 15.0) -> int:
        """Ask it to end (SIGTERM), and kill it when it does not.

        Args:
            timeout: Seconds it gets.

        Returns:
            Its exit status; negative: the signal that ended it.
        """
        if self._process.poll() is None:
            self._process.terminate()
            self.thaw()  # a frozen process hears nothing
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait(10)


def child_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without settings that would lead elsewhere, plus what is given.

    Args:
        more: Variables to add.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    loopback = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    return {**kept, **loopback, "PYTHONUNBUFFERED": "1", **more}


def start_receiver(folder: Path, *, latency: float, stack: ExitStack) -> tuple[Child, Path, str]:
    """Start the receiver and wait until it listens.

    Args:
        folder: Where its record and log go.
        latency: Seconds that a delivery takes.
        stack: Ends it.

    Returns:
        The process, the file of its record and its address.
    """
    record = folder / "deliveries.sqlite"
    arguments = ["-m", "examples.webhooks.receiver", "--record", str(record), "--latency", str(latency)]
    child = Child("receiver", arguments, folder=folder, environment={}, stack=stack)
    port = wait_for(lambda: _announced_port(child), seconds=20, what="the receiver to listen", watched=[child])
    return child, record, f"http://127.0.0.1:{port}"


def start_worker(name: str, folder: Path, *, slots: int, environment: Mapping[str, str], stack: ExitStack) -> Child:
    """Start a worker; it is ready when its row is in the database.

    Args:
        name: The beginning of its id in the database.
        folder: Where its log goes.
        slots: How many jobs it runs at a time.
        environment: Its settings.
        stack: Ends it.
    """
    arguments = ["-m", "tailrace_cli", "worker", "examples.webhooks.app:app", "--queue", "webhooks", "--slots", str(slots)]
    return Child(name, arguments, folder=folder, environment={**environment, "TAILRACE_WORKER_ID": name}, stack=stack)


def run_cli(*arguments: str, environment: Mapping[str, str], columns: int = 120) -> str:
    """Run a command of `tailrace` and return what it printed.

    Args:
        *arguments: The command and its options.
        environment: Its settings.
        columns: How wide a table may be.

    Raises:
        DemoError: It failed; the message has what it said.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tailrace_cli", *arguments],
            cwd=ROOT,
            env=child_environment({**environment, "COLUMNS": str(columns)}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            timeout=_CLI_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise DemoError(f"`tailrace {' '.join(arguments)}` did not end within {_CLI_SECONDS:g} s") from None
    if done.returncode != 0:
        raise DemoError(f"`tailrace {' '.join(arguments)}` ended with status {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout.rstrip("\n")


def wait_for(condition: Callable[[], T | None], *, seconds: float, what: str, watched: Sequence[Child] = ()) -> T:
    """Ask until there is an answer.

    Args:
        condition: Returns None (or False) while there is none.
        seconds: The longest wait.
        what: For the message.
        watched: Processes that must not end meanwhile.

    Raises:
        DemoError: The time is over, or a watched process ended.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer is not None and answer is not False:
            return answer
        for child in watched:
            child.require_alive()
        if time.monotonic() > deadline:
            logs = "".join(f"\n--- {child.name}\n{child.output[-_SHOWN_BYTES:]}" for child in watched)
            raise DemoError(f"waited {seconds:g} s in vain for {what}{logs}")
        time.sleep(_PAUSE)


def _announced_port(child: Child) -> int | None:
    for line in child.output.splitlines():
        if line.startswith(READY):
            return int(line.removeprefix(READY))
    return None
