"""A server that says nothing: how long we listen, and how we hang up.

A link that is dead or a server that hangs sends no error, and the driver's own cancellation waits for the same link. So
the socket is shut down instead: whoever waits on the connection gets an ordinary lost connection and does what he does
then. Used by the event loop (work, ear), by the heartbeat and at the end of the process.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from tailrace.db import errors
from tailrace_worker.clock import boot

T = TypeVar("T")

TURN_SECONDS = 65.0
"""Longer than the statement_timeout of our sessions: a server that lives has answered or refused by then."""


class _Wired(Protocol):
    @property
    def closed(self) -> bool: ...

    def fileno(self) -> int: ...


def hang_up(conn: _Wired | None) -> None:
    """Shut a connection's socket down, from any thread that keeps others from closing it meanwhile.

    Args:
        conn: The connection; None, a closed or a broken one is left as it is.
    """
    if conn is None or conn.closed:
        return
    with suppress(OSError, errors.Error), socket.socket(fileno=os.dup(conn.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


async def bounded(conn: _Wired | None, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Await a statement for a while; then hang up, which makes it fail as on a lost connection.

    Args:
        conn: The connection it runs on.
        work: The statement.
        seconds: How long to listen.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        hang_up(conn)
        task.cancel()
        raise
    if not done:
        hang_up(conn)
    return await task


class Turns(asyncio.Lock):
    """A lock that tells how long its present holder has had it.

    Time is counted in calls of `tick`, so that a process that was stopped does not take its own sleep for the server's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._turn = self._seen = 0
        self._waited = 0.0
        self._ticked = boot()

    async def acquire(self) -> bool:  # type: ignore[override]  # a Literal[True] in the stubs
        """Wait for the turn."""
        await super().acquire()
        self._turn += 1
        return True

    def tick(self) -> float:
        """Count on. To be called about twice a second.

        Returns:
            For how many seconds the present turn has lasted, as far as this process was awake.
        """
        now = boot()
        passed, self._ticked = min(1.0, now - self._ticked), now
        if not self.locked() or self._turn != self._seen:
            self._seen, self._waited = self._turn, 0.0
        else:
            self._waited += passed
        return self._waited
