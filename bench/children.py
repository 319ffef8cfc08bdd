"""Worker and producer processes, seen from the benchmark: start, GO, counts, stamps, end.

The other end is `protocol`. Used by `runs`.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

READY_SECONDS = 60.0


class ChildError(RuntimeError):
    """A child process ended early or never became ready; its last words are in the message."""


class Child:
    """One process that speaks the line protocol; killed at the end of the `with` block."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        """Start the process.

        Args:
            command: program and arguments.
            environment: variables added to ours.
            log: file that receives its stderr.
        """
        self.count = 0
        self.first_ns: int | None = None
        self.started: dict[int, int] = {}
        self.sent: dict[int, tuple[int, int]] = {}
        self.result: dict[str, Any] | None = None
        self._log = log
        self._ready = threading.Event()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                text=True,
                bufsize=1,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name=f"reader-{self._process.pid}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            if line.startswith("@"):
                self._take(line[1:])

    def _take(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word.strip():
            case "count":
                count, at = rest.split()
                self.first_ns = self.first_ns or int(at)
                self.count = int(count)
            case "start":
                seq, at = rest.split()
                self.started.setdefault(int(seq), int(at))
            case "sent":
                seq, before, after = rest.split()
                self.sent[int(seq)] = (int(before), int(after))
            case "ready":
                self._ready.set()
            case "done":
                self.result = json.loads(rest)

    def wait_ready(self) -> None:
        """Wait until its imports are done.

        Raises:
            ChildError: it ended, or was not ready within a minute.
        """
        for _ in range(int(READY_SECONDS * 10)):
            if self._ready.wait(0.1):
                return
            self.check()
        raise ChildError(f"process {self.pid} was not ready within {READY_SECONDS:.0f} s: {self._last_words()}")

    def check(self) -> None:
        """Raise `ChildError` if the process has ended."""
        if (status := self._process.poll()) is not None:
            self._reader.join(5)
            raise ChildError(f"process {self.pid} ended with status {status}: {self._last_words()}")

    def go(self) -> None:
        """Let it begin."""
        if self._process.stdin is not None:
            self._process.stdin.write("GO\n")
            self._process.stdin.flush()

    def finish(self, *, seconds: float = 600.0) -> dict[str, Any]:
        """Wait for a producer's end and return what it reported.

        Raises:
            ChildError: it ended with an error or without a result.
        """
        status = self._process.wait(seconds)
        self._reader.join(5)
        if status or self.result is None:
            raise ChildError(f"producer {self.pid} ended with status {status}: {self._last_words()}")
        return self.result

    def _last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])

    def kill(self) -> None:
        """End the process and its children with SIGKILL, and close the pipes."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
