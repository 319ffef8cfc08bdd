"""The receiver's own record: one SQLite row for each delivery that arrived, with what was answered.

`receiver` writes it, `records` reads it for the ledger. Nothing of Tailrace is in it, so it can bear witness.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OK = 200
GONE = 410
TOO_MANY = 429
BROKEN = 500
UNAVAILABLE = 503

_SCHEMA = """
create table if not exists delivery (
  n integer primary key, event_id integer not null, attempt integer not null, status integer not null, healed integer not null,
  at real not null
);
create index if not exists delivery_event on delivery (event_id);
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver says to one delivery.

    Attributes:
        status: The HTTP status.
        retry_after: Seconds for the header of that name, or None.
    """

    status: int
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery as it was recorded.

    Attributes:
        event_id: Which event.
        attempt: Which run of the job, as the sender says.
        status: The HTTP status that was answered.
        healed: Whether the receiver was healed by then.
    """

    event_id: int
    attempt: int
    status: int
    healed: bool


def answer(event_id: int, *, earlier: int, healed: bool) -> Answer:
    """Decide an answer: one event in ten is refused once or twice, one in a hundred until the receiver is healed.

    Args:
        event_id: Which event.
        earlier: How many deliveries of it arrived before.
        healed: Whether somebody repaired the receiver.
    """
    if healed:
        return Answer(OK)
    if event_id % 100 == 50:
        return Answer(GONE if event_id % 500 == 50 else BROKEN)
    if event_id % 10 == 7 and earlier < 1 + event_id // 10 % 2:
        return Answer(TOO_MANY, retry_after=1) if event_id % 50 == 7 else Answer(UNAVAILABLE)
    return Answer(OK)


class DeliveryLog:
    """The record, for one process with many threads."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open the record, or begin it.

        Args:
            path: The SQLite file.
            clock: Tells the time in seconds since 1970.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("pragma journal_mode = wal").close()
        self._connection.execute("pragma synchronous = off").close()
        self._connection.executescript(_SCHEMA).close()
        self._healed = False

    def receive(self, event_id: int, attempt: int) -> Answer:
        """Decide the answer to a delivery and record both, before anything is sent back.

        Args:
            event_id: Which event.
            attempt: Which run of the job.
        """
        with self._lock:
            (earlier,) = self._connection.execute("select count(*) from delivery where event_id = ?", (event_id,)).fetchone()
            given = answer(event_id, earlier=earlier, healed=self._healed)
            self._connection.execute(
                "insert into delivery (event_id, attempt, status, healed, at) values (?, ?, ?, ?, ?)",
                (event_id, attempt, given.status, self._healed, self._clock()),
            ).close()
        return given

    def heal(self) -> None:
        """Accept everything from now on."""
        with self._lock:
            self._healed = True

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def read_deliveries(path: Path) -> list[Delivery]:
    """Read the whole record, in the order of arrival.

    Args:
        path: The SQLite file; it may be in use.
    """
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        rows = connection.execute("select event_id, attempt, status, healed from delivery order by n").fetchall()
    finally:
        connection.close()
    return [Delivery(event_id, attempt, status, bool(healed)) for event_id, attempt, status, healed in rows]


def count_accepted(path: Path) -> int:
    """Count the events that were accepted at least once; cheap enough for a progress bar.

    Args:
        path: The SQLite file; it may be in use.
    """
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        (count,) = connection.execute("select count(distinct event_id) from delivery where status = ?", (OK,)).fetchone()
    finally:
        connection.close()
    return int(count)
