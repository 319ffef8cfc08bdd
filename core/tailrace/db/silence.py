"""A server that says nothing: how long we listen, and how we hang up.

A link that is dead or a server that hangs sends no error, and the driver's own cancellation waits for the same link. So
the socket is shut down instead: whoever waits on the connection gets an ordinary lost connection and does what he does
then. Used by the worker's event loop and heartbeat, and by the controller.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from psycopg import errors

__all__ = ["Wired", "bounded", "hang_up"]

T = TypeVar("T")


class Wired(Protocol):
    """A connection, sync or async."""

    @property
    def closed(self) -> bool:
        """Whether it is closed."""

    def fileno(self) -> int:
        """The number of its socket."""


def hang_up(conn: Wired | None) -> None:
    """Shut a connection's socket down, from any thread that keeps others from closing it meanwhile.

    Args:
        conn: The connection; None, a closed or a broken one is left as it is.
    """
    if conn is None or conn.closed:
        return
    with suppress(OSError, errors.Error), socket.socket(fileno=os.dup(conn.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


async def bounded(conn: Wired | None, work: Coroutine[Any, Any, T], seconds: float) -> T:
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
