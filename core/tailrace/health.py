"""One small HTTP port: /metrics, /livez, /readyz, in a thread of its own. Workers and controllers serve it.

Whoever starts it says what live and ready mean for him; live should go on while a database is away, so that an outage
restarts nothing. Needs prometheus_client, an extra that both have.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from tailrace.errors import InvalidOption
from tailrace.names.events import Event

__all__ = ["Check", "Health", "MetricsPage"]

log = logging.getLogger("tailrace.health")

Check = Callable[[], tuple[bool, str]]
"""Tells whether it is well, and if not, why."""
MetricsPage = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]
"""Serves /metrics."""


class _Quiet(WSGIRequestHandler):
    """Requests are not logged: a probe every two seconds would fill the log."""

    timeout = 5  # seconds for a client to say what it wants

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers in a thread each: a client that connects and says nothing must not keep the probes waiting."""

    daemon_threads = True
    request_queue_size = 32


class Health:
    """The server thread."""

    def __init__(self, *, metrics: MetricsPage | CollectorRegistry, live: Check, ready: Check) -> None:
        """Prepare; nothing listens yet.

        Args:
            metrics: What /metrics shows.
            live: Whether the process should go on, and a word why not.
            ready: Whether it takes work, and a word why not.
        """
        page = make_wsgi_app(metrics) if isinstance(metrics, CollectorRegistry) else metrics
        self._metrics: MetricsPage = page
        self._checks = {"/livez": live, "/readyz": ready}
        self._server: WSGIServer | None = None

    def start(self, host: str, port: int) -> int:
        """Listen.

        Args:
            host: The address.
            port: 0 takes a free one.

        Returns:
            The port.

        Raises:
            InvalidOption: The port is taken or not allowed.
        """
        try:
            self._server = make_server(host, port, self._answer, server_class=_Server, handler_class=_Quiet)
        except OSError as error:
            raise InvalidOption(
                f"cannot listen on {host}:{port}: {error.strerror}", field="metrics_port", hint="Give a free port, or 0 for any"
            ) from error
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="tailrace-health", daemon=True).start()
        chosen = int(self._server.server_port)
        log.info("serving metrics and health", extra={"event": Event.METRICS_LISTENING, "host": host, "port": chosen})
        return chosen

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            return self._metrics(environ, start_response)
        check = self._checks.get(path)
        ok, why = check() if check is not None else (False, "try /metrics, /livez or /readyz")
        status = "404 Not Found" if check is None else "200 OK" if ok else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{'ok' if ok else why}\n".encode()]
