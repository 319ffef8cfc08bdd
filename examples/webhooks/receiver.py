"""Plays the customers' systems: a small HTTP server on loopback that refuses some deliveries and records all.

`POST /hooks/NAME` takes a delivery, `POST /admin/heal` repairs the receiver. `deliveries` has the rules and the record.
Run by `demo`, or by hand: `python -m examples.webhooks.receiver --record deliveries.sqlite --port 8080`.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

from examples.webhooks.deliveries import Answer, DeliveryLog

READY = "receiver listens on port "
"""The start of the line that says which port was taken."""

_MAX_BODY_BYTES = 65_536


class Receiver(ThreadingHTTPServer):
    """The server; one thread for each open connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, log: DeliveryLog, *, port: int = 0, latency: float = 0.0) -> None:
        """Listen on 127.0.0.1.

        Args:
            log: Decides and records.
            port: 0 takes a free one.
            latency: Seconds of work that each delivery costs the customer.
        """
        super().__init__(("127.0.0.1", port), _Handler)
        self.log = log
        self.latency = latency

    @property
    def port(self) -> int:
        """The port in use."""
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Receiver
    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True  # else an answer in two writes waits for the other side's delayed ACK
    timeout = 60

    def do_POST(self) -> None:
        """Take a delivery or a command."""
        body = self._body()
        if body is None:
            self._answer(Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
        elif self.path == "/admin/heal":
            self.server.log.heal()
            self._answer(Answer(HTTPStatus.OK))
        elif self.path.startswith("/hooks/"):
            self._answer(self._deliver(body))
        else:
            self._answer(Answer(HTTPStatus.NOT_FOUND))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing: the record tells all."""

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            self.close_connection = True
            return None
        return self.rfile.read(int(length))

    def _deliver(self, body: bytes) -> Answer:
        try:
            message = json.loads(body)
            event_id, attempt = int(message["id"]), int(message["delivery"])
        except (ValueError, KeyError, TypeError):
            return Answer(HTTPStatus.BAD_REQUEST)
        given = self.server.log.receive(event_id, attempt)
        time.sleep(self.server.latency)
        return given

    def _answer(self, given: Answer) -> None:
        self.send_response(given.status)
        self.send_header("Content-Length", "0")
        if given.retry_after is not None:
            self.send_header("Retry-After", str(given.retry_after))
        self.end_headers()


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.webhooks.receiver", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--record", type=Path, required=True, help="SQLite file for the deliveries")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: 0, a free one)")
    parser.add_argument("--latency", type=float, default=0.02, help="seconds that a delivery takes (default: 0.02)")
    options = parser.parse_args()
    log = DeliveryLog(options.record)
    server = Receiver(log, port=options.port, latency=options.latency)

    def end(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown).start()  # it waits for serve_forever, which this handler interrupts

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    print(f"{READY}{server.port}", flush=True)
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        server.server_close()
        log.close()


if __name__ == "__main__":
    main()
