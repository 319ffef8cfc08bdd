"""A proxy between a client and the API server: slow, refusing, silent, cut, or with an outdated watch, as a test says.

It ends TLS with the API server's own certificate, so that a client needs only another port in its kubeconfig and a token
(a client certificate would stay behind). It runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import aiohttp
from aiohttp import web
from yarl import URL

from tailrace_controller.kube.watch import Sockets
from tests.rig.kube.cluster import Cluster
from tests.rig.kube.faults import Fault, Seen, refusal, status_of
from tests.rig.kube.listening import Listener

_LAST_SECONDS = 0.2
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"})
_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class FaultProxy:
    """The proxy; `url` is the address that goes through it."""

    def __init__(self, cluster: Cluster) -> None:
        """Listen on a free port of 127.0.0.1.

        Args:
            cluster: What lies behind it.
        """
        self.requests: list[Seen] = []
        self._target = cluster.url
        self._upstream_tls = ssl.create_default_context(cafile=str(cluster.ca))
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(cluster.folder / "pki" / "server.crt", cluster.folder / "pki" / "server.key")
        self._faults: list[Fault] = []
        self._refusing = False
        self._silent = False
        self._open: dict[int, web.Request] = {}
        self._watches: set[_Watch] = set()
        self._listener = Listener()
        self.url = f"https://127.0.0.1:{self._listener.port}"
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._thread.start()
        assert self._ready.wait(10), "the fault proxy does not start"

    # ---- for tests ---------------------------------------------------------------------------------------------------
    def fault(self, fault: Fault) -> Fault:
        """Let a fault happen from now on; of several that fit the oldest counts. Returns it, with its count."""
        self._do(lambda: self._faults.append(fault))
        return fault

    def clear(self) -> None:
        """End all faults, `silence` and `refuse`. Watches that were silenced stay silent: nobody tells their client."""

        def change() -> None:
            self._faults.clear()
            self._refusing = self._silent = False

        self._do(change)

    def silence(self) -> None:
        """Carry no byte of any watch, old or new, and keep them open, as a load balancer that forgot the connection."""

        def change() -> None:
            self._silent = True
            for watch in self._watches:
                watch.silent = True

        self._do(change)

    def cut(self) -> None:
        """Break all requests and watches that are under way; new ones are taken."""
        self._do(self._cut)

    def refuse(self) -> None:
        """Break everything and let nothing through until `clear`."""

        def change() -> None:
            self._refusing = True
            self._cut()

        self._do(change)

    def expire_watches(self) -> int:
        """Tell every open watch that its version is gone (410) and end it; returns how many there were."""
        number = len(self._watches)

        def change() -> None:
            for watch in self._watches:
                watch.expired.set()

        self._do(change)
        return number

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    def close(self) -> None:
        """Break everything and stop listening."""
        self._do(self._cut)
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        self._listener.close()

    # ---- inside, on the proxy's thread -------------------------------------------------------------------------------
    def _do(self, change: Callable[[], Any]) -> None:
        done = threading.Event()

        def run() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10), "the fault proxy does not answer"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve_until_stopped())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _serve_until_stopped(self) -> None:
        upstream = Sockets()
        connector = aiohttp.TCPConnector(ssl=self._upstream_tls, limit=0, socket_factory=upstream.make)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=timeout) as self._session:
            app = web.Application(client_max_size=64 * 2**20)
            app.router.add_route("*", "/{path:.*}", self._serve)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            await web.SockSite(runner, self._listener, ssl_context=self._tls).start()
            self._ready.set()
            try:
                await self._stopped.wait()
            finally:
                for connection in list(runner.server.connections if runner.server is not None else ()):
                    if connection.transport is not None:
                        connection.transport.abort()  # while it does not read, it would not notice that its socket ends
                await self._listener.end()
                await runner.cleanup()
        await upstream.end()
        await asyncio.sleep(_LAST_SECONDS)  # transports that were broken off close in later turns of the loop

    def _cut(self) -> None:
        for request in list(self._open.values()):
            if request.transport is not None:
                request.transport.abort()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(method=request.method, path=request.path_qs, watch=_is_watch(request))
        self.requests.append(seen)
        self._open[id(request)] = request
        try:
            if self._refusing:
                _break(request)
            return await self._with_faults(request, seen)
        except aiohttp.ClientError:  # the API server is away, or went while it answered
            _break(request)
        finally:
            del self._open[id(request)]

    async def _with_faults(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        fault = next((one for one in self._faults if one.fits(request)), None)
        if fault is not None:
            fault.met += 1
            await asyncio.sleep(fault.delay)
            if fault.cut == "before":
                _break(request)
            if fault.status:
                seen.status = fault.status
                return refusal(fault)
        return await self._forward(request, seen, lose=fault is not None and fault.cut == "after")

    async def _forward(self, request: web.Request, seen: Seen, *, lose: bool) -> web.StreamResponse:
        sent = self._session.request(
            request.method,
            URL(self._target + request.raw_path, encoded=True),
            headers=[
                (name, text) for name, text in request.headers.items() if name.lower() not in {*_HOP_BY_HOP, "content-length"}
            ],
            data=await request.read() or None,
            skip_auto_headers=_ADDED,
            allow_redirects=False,
        )
        async with sent as answer:
            if lose:
                await answer.read()
                _break(request)
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            for name, text in answer.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    response.headers.add(name, text)
            await response.prepare(request)
            seen.status = answer.status
            if seen.watch:
                await self._carry_watch(answer, response)
            else:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            await response.write_eof()
            return response

    async def _carry_watch(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        watch = _Watch(silent=self._silent)
        self._watches.add(watch)
        carrying = asyncio.ensure_future(watch.carry(answer, response))
        expiring = asyncio.ensure_future(watch.expired.wait())
        try:
            await asyncio.wait({carrying, expiring}, return_when=asyncio.FIRST_COMPLETED)
            if carrying.done():
                carrying.result()
            else:
                await response.write(json.dumps({"type": "ERROR", "object": status_of(410)}).encode() + b"\n")
        finally:
            self._watches.discard(watch)
            for task in (carrying, expiring):
                task.cancel()
            await asyncio.gather(carrying, expiring, return_exceptions=True)


class _Watch:
    """One open watch. Its lines are whole when it expires, since events are carried line by line."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self.expired = asyncio.Event()

    async def carry(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        held = b""
        async for chunk in answer.content.iter_any():
            whole, found, rest = (held + chunk).rpartition(b"\n")
            held = rest
            if found and not self.silent:
                await response.write(whole + found)
        if self.silent:
            await asyncio.Event().wait()  # the client does not hear of the end either


def _break(request: web.Request) -> NoReturn:
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError  # which aiohttp takes for the client's going


def _is_watch(request: web.Request) -> bool:
    return request.query.get("watch") in {"1", "true", "True"}


@contextlib.contextmanager
def fault_proxy_to(cluster: Cluster) -> Iterator[FaultProxy]:
    """Give a proxy to a control plane, and close it."""
    proxy = FaultProxy(cluster)
    try:
        yield proxy
    finally:
        proxy.close()
