"""One worker process: started in a group of its own, its output handed on line by line, ended by signals.

Ctrl-C at the terminal reaches only us, since the group is another one; `fleet` decides what becomes of it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tailrace.errors import InvalidOption

__all__ = ["Worker"]

_LINE_BYTES = 1 << 20
_LAST_WORDS_SECONDS = 1.0
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Worker:
    """One process.

    Args:
        name: What people call it, such as webhooks-1.
        command: Program and arguments.
        variables: All its environment.
        on_line: Told each line that it writes.
        on_end: Told when it has ended, after its last line.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        on_line: Callable[[Worker, str], None],
        on_end: Callable[[Worker], None],
    ) -> None:
        self.name = name
        self.id = f"{name}.{secrets.token_hex(3)}"  # the first part of its id in the database
        self.ready = False
        self.jobs = 0
        self.draining_since: float | None = None
        self.started = time.monotonic()
        self._command, self._variables = tuple(command), {**variables, "TAILRACE_WORKER_ID": self.id}
        self._on_line, self._on_end = on_line, on_end
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it.

        Raises:
            InvalidOption: The program cannot be started.
        """
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._variables,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=None if _LIBC is None else _end_with_parent,
                limit=_LINE_BYTES,
            )
        except OSError as error:
            raise InvalidOption(
                f"{self._command[0]!r} cannot be started: {error.strerror}",
                field="spec.template.spec.containers.command",
                hint="name a program of this machine, or leave command out for `tailrace`",
            ) from None
        self._watch = asyncio.create_task(self._until_end(self._process), name=f"worker {self.name}")

    @property
    def pid(self) -> int | None:
        """Its process id, once it was started."""
        return None if self._process is None else self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return None if self._process is None else self._process.returncode

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        status = self.status or 0
        if status < 0:
            with suppress(ValueError):
                return f"killed by {signal.Signals(-status).name}"
        return f"ended with status {status}"

    @property
    def draining(self) -> bool:
        """Whether it was told to end."""
        return self.draining_since is not None

    def drain(self) -> None:
        """Tell it to finish what runs and to end; told again, it does not wait for what runs."""
        self.draining_since = self.draining_since or time.monotonic()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and all it has started, at once."""
        self.draining_since = self.draining_since or time.monotonic()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    async def _until_end(self, process: asyncio.subprocess.Process) -> None:
        reading = asyncio.create_task(self._read(process), name=f"output of {self.name}")
        await process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has started must not go on without it
        await asyncio.wait({reading}, timeout=_LAST_WORDS_SECONDS)  # something that left the group may keep the pipe open
        reading.cancel()
        self._on_end(self)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        stream = process.stdout
        while stream is not None:
            try:
                line = await stream.readline()
            except ValueError:  # longer than a line may be: the rest of it comes as the next one
                continue
            if not line:
                return
            self._on_line(self, line.decode("utf-8", "replace").rstrip("\r\n"))


def _end_with_parent() -> None:
    """In the child: be told to end when we are killed, where the system can do that. Nobody else would stop it."""
    if _LIBC is not None:
        _LIBC.prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
