"""A TCP proxy between a client and PostgreSQL that can be cut, made silent, and made to lose an answer.

It understands just enough of the protocol to let a COMMIT happen and keep its answer from the client. Runs in a thread
of its own, so a test may use it from sync and async code.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.rig.servers import Server

_IDLE = b"I"
_MANY = 50
_KEPT_TAIL = 256  # a pattern may lie across two reads


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: TcpProxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.application = ""
        self.losing = False  # the server's answers are thrown away until the transaction is over
        self._marked = False  # the transaction whose last answer is to be lost
        self._in_transaction = False
        self._sent = b""
        self._answer = b""

    async def forward(self, reader: asyncio.StreamReader) -> None:
        """Carry the client's bytes to the server."""
        while data := await reader.read(65536):
            await self.proxy.open_gate.wait()
            self._notice(data)
            self.server.write(data)
            await self.server.drain()

    async def answer(self, reader: asyncio.StreamReader) -> None:
        """Carry the server's bytes to the client, unless they are to be lost."""
        while data := await reader.read(65536):
            await self.proxy.open_gate.wait()
            was_losing = self.losing
            finished = self._walk(data)
            if was_losing:
                if finished:
                    self.proxy.count_lost()
                    return
                continue
            self.client.write(data)
            await self.client.drain()

    def close(self) -> None:
        for writer in (self.client, self.server):
            with contextlib.suppress(Exception):
                writer.transport.abort()

    def _notice(self, data: bytes) -> None:
        """Look for the application's name at the start, then for the statement whose answer is to be lost."""
        if not self.application:
            _, found, rest = data.partition(b"application_name\0")
            self.application = rest.split(b"\0")[0].decode() if found else "?"
            return
        seen = self._sent + data
        self._sent = seen[-_KEPT_TAIL:]
        commits = b"COMMIT\0" in seen  # READ COMMITTED is another word
        self._in_transaction = self._in_transaction or b"BEGIN" in seen
        if not self._marked and self.proxy.wants_to_lose(self.application, seen):
            self._marked = True
        if self._marked and not self.losing and (commits or not self._in_transaction):
            self.losing = True
        if commits or not self._in_transaction:
            self._in_transaction = False
            self._sent = b""

    def _walk(self, data: bytes) -> bool:
        """Keep to the borders of messages; True when the server says that it is idle after what is being lost."""
        self._answer += data
        while len(self._answer) >= 5:
            kind, length = self._answer[:1], struct.unpack("!I", self._answer[1:5])[0]
            if len(self._answer) < length + 1:
                break
            message, self._answer = self._answer[5 : length + 1], self._answer[length + 1 :]
            if self.losing and kind == b"Z" and message == _IDLE:
                return True
        return False


class TcpProxy:
    """The proxy; `dsn` is the address that goes through it."""

    def __init__(self, dsn: str) -> None:
        """Listen on a free port of 127.0.0.1.

        Args:
            dsn: The address of the server behind it; host and port are read anew from it for each connection.
        """
        self._target = conninfo_to_dict(dsn)
        self._dsn = dsn
        self._links: set[_Link] = set()
        self._refusing = False
        self._rule: tuple[str, bytes] | None = None
        self._lost = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tcp-proxy", daemon=True)
        self._thread.start()
        self._ready.wait(10)

    # ---- for tests ---------------------------------------------------------------------------------------------------
    @property
    def dsn(self) -> str:
        """The connection string through the proxy, unencrypted so that the proxy can read it."""
        port = self._listener.getsockname()[1]
        return make_conninfo(self._dsn, host="127.0.0.1", hostaddr="", port=str(port), sslmode="disable", gssencmode="disable")

    @property
    def connections(self) -> int:
        """How many connections are open through it."""
        return len(self._links)

    @property
    def lost_answers(self) -> int:
        """How many answers were lost on demand; the statement has taken effect when it counts."""
        return self._lost

    def cut(self, application: str = "") -> None:
        """Break the open connections, of one application_name prefix or all; new ones are taken."""
        self._do(lambda: self._cut(application))

    def refuse(self) -> None:
        """Break the open connections and let no new one through, until `resume`."""

        def change() -> None:
            self._refusing = True
            self._cut("")

        self._do(change)

    def pause(self) -> None:
        """Swallow nothing and carry nothing: both sides wait, as behind a broken switch, until `resume`."""
        self._do(self.open_gate.clear)

    def resume(self) -> None:
        """End `pause` and `refuse`."""

        def change() -> None:
            self._refusing = False
            self.open_gate.set()

        self._do(change)

    def lose_answer(self, statement: bytes = b"COMMIT", application: str = "") -> None:
        """Let the next transaction with these bytes happen and break its connection before the client hears of its end.

        Args:
            statement: Bytes that the client sends, in the case it uses; what answers them before the COMMIT still arrives.
            application: Only connections whose application_name begins so.
        """
        self._do(lambda: setattr(self, "_rule", (application, statement)))

    def close(self) -> None:
        """Break everything and stop listening."""
        self._do(lambda: self._cut(""))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._listener.close()

    # ---- inside, on the proxy's thread -------------------------------------------------------------------------------
    def wants_to_lose(self, application: str, seen: bytes) -> bool:
        """Tell whether the bytes of a connection ask for the loss; it happens once."""
        if self._rule is None or not application.startswith(self._rule[0]) or self._rule[1] not in seen:
            return False
        self._rule = None
        return True

    def count_lost(self) -> None:
        """Note that an answer was lost."""
        self._lost += 1

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listener))
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end(server))
            self._loop.close()

    async def _end(self, server: asyncio.Server) -> None:
        """Let what was just accepted arrive, end everything, and let the sockets close."""
        self._refusing = True
        self._loop.remove_reader(self._listener.fileno())  # a server that closes in the middle of an accept leaks it
        await _turns()
        server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _turns()

    def _do(self, change: Callable[[], Any]) -> None:
        """Make a change on the proxy's thread and wait until it is made."""
        done = threading.Event()

        def run() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10), "the proxy does not answer"

    def _cut(self, application: str) -> None:
        for link in list(self._links):
            if link.application.startswith(application):
                link.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # the proxy closes; a cancelled server task would be logged
            try:
                if not self._refusing:
                    await self._link(reader, writer)
            except OSError:  # the server behind it is away
                pass
            finally:
                writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.open_gate.wait()
        target_reader, target = await asyncio.open_connection(str(self._target["host"]), int(str(self._target["port"])))
        link = _Link(self, writer, target)
        self._links.add(link)
        try:
            await _first_to_end(link.forward(reader), link.answer(target_reader))
        finally:
            link.close()
            self._links.discard(link)


async def _turns() -> None:
    """Let the event loop work off what is under way: an accepted connection takes it several turns."""
    for _ in range(_MANY):
        await asyncio.sleep(0)


async def _first_to_end(*directions: Awaitable[None]) -> None:
    """Wait until one direction has ended, and end the other."""
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


MakeProxy = Callable[[str], TcpProxy]


@pytest.fixture
def proxy_to() -> Iterator[MakeProxy]:
    """Make proxies to any address: `proxy_to(dsn)`; closed after the test."""
    made: list[TcpProxy] = []

    def make(dsn: str) -> TcpProxy:
        made.append(TcpProxy(dsn))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def tcp_proxy(dsn: str, server: Server, proxy_to: MakeProxy) -> TcpProxy:
    """A proxy to the test's database; give `tcp_proxy.dsn` to the client."""
    return proxy_to(dsn)
