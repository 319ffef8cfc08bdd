"""The connection that routines run on: one role, settings that let it hold nothing for long, and a stop that cancels.

`loop` keeps one open between two runs, `once` for one round; a stop is honoured within a second, also inside a statement.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.db import Connection, Database, errors
from tailrace.errors import TailraceError
from tailrace.maintenance.routine import SESSION
from tailrace.names.events import Event

__all__ = ["FAULTS", "cancelled_by", "connect"]

log: Final = logging.getLogger("tailrace.maintenance")

FAULTS: Final = (TailraceError, errors.Error, OSError)
"""What a run may fail with and be tried again."""

_CANCEL_SECONDS: Final = 1.0


def connect(database: Database) -> Connection:
    """Open a connection for routines.

    Args:
        database: Where.

    Raises:
        DatabaseUnavailable: It cannot be reached.
    """
    return database.connect(role="maintain", options=SESSION)


@contextmanager
def cancelled_by(stop: threading.Event, connection: Callable[[], Connection | None]) -> Iterator[None]:
    """While the block runs, let the event cancel the statement that is just at work.

    Args:
        stop: The wish to end.
        connection: Gives the connection in use, None for none.
    """
    over = threading.Event()

    def watch() -> None:
        stop.wait()
        conn = connection()
        if over.is_set() or conn is None or conn.closed:
            return
        try:
            conn.cancel_safe(timeout=_CANCEL_SECONDS)
        except FAULTS:
            log.debug("the running statement could not be cancelled", extra={"event": Event.ROUTINE_FAILED})

    threading.Thread(target=watch, name="tailrace-maintenance-stop", daemon=True).start()
    try:
        yield
    finally:
        over.set()
