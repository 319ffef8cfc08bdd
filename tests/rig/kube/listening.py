"""A listening socket that knows what it accepted, so that a proxy which closes leaves no connection behind.

aiohttp knows a connection from the end of its TLS handshake to the moment when they close it
politely. What is shaking hands, or waits for its client's farewell, is nobody's: it would outlast the loop, and a later test
would be blamed for it.
"""

from __future__ import annotations

import asyncio
import socket

from tailrace_controller.kube.watch import Sockets

_TURNS = 20
_BACKLOG = 256


class Listener(socket.socket):
    """Listens on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        """Listen from now on."""
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self._accepted = Sockets()
        self.bind(("127.0.0.1", 0))
        self.listen(_BACKLOG)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.getsockname()[1])

    def accept(self) -> tuple[socket.socket, object]:
        """Accept one, and remember it."""
        accepted, address = super().accept()
        self._accepted.add(accepted)
        return accepted, address

    async def end(self) -> None:
        """Accept no more, break off what is open, and wait until its transports have closed it; before its server closes."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.fileno())  # a server that closes in the middle of an accept leaks it
        for _ in range(_TURNS):  # an accepted connection takes several turns until it has a transport
            await asyncio.sleep(0)
        await self._accepted.end()
