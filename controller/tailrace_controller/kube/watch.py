"""The connection of the watches: an HTTP session for kopf that knows when each stream was heard last.

kopf keeps bookmarks to itself, so what arrives is noticed below it. The token is asked for at each request, since those of
service accounts are renewed. `triggers` acts on silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import weakref
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from kubernetes.client.rest import should_bypass_proxies

from tailrace.clock import boot
from tailrace_controller.kube.place import Place
from tailrace_controller.version import VERSION

__all__ = ["Heard", "Sockets", "watch_session"]

_CONNECT_SECONDS: Final = 10.0
_END_TURNS: Final = 100
_END_TURN_SECONDS: Final = 0.01


class Heard:
    """When each stream was heard last, by its path; written by the thread of the watches, read by others."""

    def __init__(self) -> None:
        """Begin with no stream."""
        self._at: dict[str, float] = {}

    def note(self, path: str) -> None:
        """Something arrived on a stream, or it was opened.

        Args:
            path: Of the request.
        """
        self._at[path] = boot()

    def by_resource(self) -> dict[str, float]:
        """When the quietest stream of each kind was heard last, by the plural of the kind."""
        found: dict[str, float] = {}
        for path, at in list(self._at.items()):
            plural = path.rsplit("/", 1)[-1]
            found[plural] = min(at, found.get(plural, at))
        return found

    def silence(self) -> float:
        """Seconds since the quietest stream was heard; 0 when there is none."""
        return max((boot() - at for at in list(self._at.values())), default=0.0)


class Sockets:
    """The sockets of a session, to end them with its loop.

    A TLS connection is closed politely: it waits for its peer's answer, which a silent network never brings, and nobody waits
    for it. So it would outlast the loop that has to close it.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._made = weakref.WeakSet[socket.socket]()

    def make(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Return a new one, as `aiohttp.TCPConnector` asks for it.

        Args:
            address: Where it will be connected to: family, kind and protocol count.
        """
        made = socket.socket(*address[:3])
        self.add(made)
        return made

    def add(self, made: socket.socket) -> None:
        """Take one that was made elsewhere.

        Args:
            made: The socket, connected or not.
        """
        self._made.add(made)

    async def end(self) -> None:
        """Break off what is still open and wait until its transports have closed it."""
        for one in self._open():
            with contextlib.suppress(OSError):  # not connected yet, or not any more
                one.shutdown(socket.SHUT_RDWR)
        for _ in range(_END_TURNS):
            if not self._open():
                return
            await asyncio.sleep(_END_TURN_SECONDS)

    def _open(self) -> list[socket.socket]:
        return [one for one in self._made if one.fileno() != -1]


class _Listened:
    """The content of a response, noticed as it is read."""

    def __init__(self, content: aiohttp.StreamReader, heard: Heard, path: str) -> None:
        self._content, self._heard, self._path = content, heard, path

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield what arrives."""
        async for data in self._content.iter_chunked(size):
            self._heard.note(self._path)
            yield data

    def __getattr__(self, name: str) -> Any:
        """Everything else is the content's own."""
        return getattr(self._content, name)


def watch_session(place: Place, heard: Heard, sockets: Sockets) -> aiohttp.ClientSession:
    """Return a session for the running loop; whoever asked closes it, and then ends the sockets.

    Args:
        place: Where the API server is.
        heard: Told of each piece that arrives on a stream.
        sockets: Makes its sockets.
    """

    class Response(aiohttp.ClientResponse):
        """One whose content is listened to."""

        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            """Receive the head."""
            await super().start(connection)
            if "watch" in self.url.query:
                heard.note(self.url.path)
                self.content = _Listened(self.content, heard, self.url.path)  # type: ignore[assignment]
            return self

    async def signed(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if (word := await asyncio.to_thread(_authorization, place)) is not None:
            request.headers["Authorization"] = word
        answer = await handler(request)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            # At a 401 kopf closes the session under all watches and logs in anew, at once and without end. The next
            # request has a new token anyway, so this is a failure like others, tried again after a pause.
            answer.close()
            raise aiohttp.ClientConnectionError("the API server refuses the credentials")
        return answer

    configuration = place.configuration
    proxy = configuration.proxy
    if proxy and should_bypass_proxies(configuration.host, configuration.no_proxy or ""):
        proxy = None
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=_ssl_context(place), socket_factory=sockets.make),
        # Compressed, a piece of a stream may wait inside the decompressor or a proxy for the next one.
        headers={"User-Agent": f"tailrace-controller/{VERSION} (watch)", "Accept-Encoding": "identity"},
        middlewares=(signed,),
        response_class=Response,
        timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS),
        proxy=proxy or None,
    )


def _authorization(place: Place) -> str | None:
    configuration = place.configuration
    token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    if token:
        return str(token)
    return str(configuration.get_basic_auth_token()) if configuration.username else None


def _ssl_context(place: Place) -> ssl.SSLContext:
    configuration = place.configuration
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
