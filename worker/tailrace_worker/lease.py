"""The lease: a heartbeat on a thread and a connection of its own.

It beats also while the event loop is blocked, knows until when the lease is certain, and is the last resort when a
handler cannot be stopped: then it writes the outcomes itself and ends the process. Everything it learns is handed to
the event loop.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tailrace.db import Connection, Database, Jsonb, OperationalError, errors
from tailrace.errors import TailraceError
from tailrace.names.events import Event
from tailrace_worker.clock import boot

log = logging.getLogger("tailrace.worker")

RETRY_SECONDS = 1.0
WATCH_SECONDS = 0.5
PAUSE_SECONDS = 5.0
"""After a gap this long the process was frozen: it beats before anything starts (engine rule 7)."""

_FAULTS = (OperationalError, TailraceError, errors.InterfaceError, errors.DatabaseError, OSError)


def margin(lease_seconds: float) -> float:
    """How long before its end a lease stops being certain: min(5 s, a sixth)."""
    return min(5.0, lease_seconds / 6)


@dataclass
class Beat:
    """What one confirmed heartbeat told.

    Attributes:
        certain_until: Until when the lease is certain, by the boot clock.
        unknown: Leases of this worker that it does not know: {"token", "queue", "ids"}.
        missing: Tokens that it knew and that have no lease any more.
        cancel: Jobs of this worker that somebody wants cancelled.
        state: working, cordoned or draining.
        queues: Per queue its settings, whether it is held, and how many live workers serve it.
    """

    certain_until: float
    unknown: list[dict[str, Any]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    cancel: list[int] = field(default_factory=list)
    state: str = "working"
    queues: dict[str, dict[str, Any]] = field(default_factory=dict)


class Heartbeat(threading.Thread):
    """Renews the lease of one worker.

    Args:
        database: Where to connect; the direct URL when there is one.
        worker: This worker's id.
        row: Columns of the worker row: version, queues, tasks, slots, pod, lease_seconds.
        known: Gives the tokens that this worker holds or expects.
        told: Takes each confirmed beat, in this thread.
        watch: Called about twice a second, in this thread: looks for handlers that cannot be stopped.
        failed: Called when a beat failed, in this thread.
    """

    def __init__(
        self,
        *,
        database: Database,
        worker: str,
        row: dict[str, Any],
        known: Callable[[], list[int]],
        told: Callable[[Beat], None],
        watch: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        super().__init__(name="tailrace-heartbeat", daemon=True)
        self._database, self._worker, self._known, self._told, self._watch, self._failed = (
            database,
            worker,
            known,
            told,
            watch,
            failed,
        )
        self.row = row
        self.lease_seconds = float(row["lease_seconds"])
        self.certain_until = 0.0
        self.failures = 0
        self._conn: Connection | None = None
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._turn = threading.Condition()
        self._beats = 0

    # ---- asked from other threads ------------------------------------------------------------------------------------
    def beat_soon(self, **changes: Any) -> None:
        """Beat now, with changed columns of the worker row."""
        self.row.update(changes)
        self._wanted.set()

    def beat_and_wait(self, timeout: float, **changes: Any) -> bool:
        """Beat now and wait until a beat that began after this call was confirmed.

        Args:
            timeout: The longest wait in seconds.
            changes: Changed columns of the worker row.

        Returns:
            Whether one was confirmed in time.
        """
        with self._turn:
            wanted = self._beats + 1
            self.beat_soon(**changes)
            return self._turn.wait_for(lambda: self._beats >= wanted or self._stopped.is_set(), timeout) and self._beats >= wanted

    @property
    def beaten(self) -> bool:
        """Whether a beat was confirmed."""
        return self._beats > 0

    def wait_first(self, timeout: float) -> bool:
        """Wait for the first confirmed beat, at most `timeout` seconds."""
        with self._turn:
            return self._turn.wait_for(lambda: self.beaten or self._stopped.is_set(), timeout) and self.beaten

    def stop(self) -> None:
        """End the thread; does not wait."""
        self._stopped.set()
        self._wanted.set()

    # ---- the thread --------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Beat every third of the lease, at once when asked, and after each failure or long pause again."""
        due = last = boot()
        while not self._stopped.is_set():
            now = boot()
            if now - last > PAUSE_SECONDS or now >= due or self._wanted.is_set():
                self._wanted.clear()
                ok = self._beat()
                every = self.lease_seconds / 3
                due = boot() + (
                    every * random.uniform(0.9, 1.0) if ok else min(RETRY_SECONDS, every / 4) * random.uniform(0.8, 1.2)
                )
            last = boot()
            self._watch()
            self._wanted.wait(max(0.02, min(WATCH_SECONDS, due - boot())))
        self._close()

    def _beat(self) -> bool:
        known, changes, sent = self._known(), dict(self.row), boot()
        try:
            told = self._ask(known, changes)
        except _FAULTS as error:
            self.failures += 1
            log.warning("heartbeat failed: %s", type(error).__name__, extra={"event": Event.BEAT_FAILED})
            self._close()
            self._failed()
            return False
        lease = float(changes["lease_seconds"])
        self.certain_until = sent + lease - margin(lease)
        beat = Beat(
            certain_until=self.certain_until,
            unknown=told.get("unknown") or [],
            missing=[int(t) for t in told.get("missing") or []],
            cancel=[int(j) for j in told.get("cancel") or []],
            state=told.get("state") or "working",
            queues=told.get("queues") or {},
        )
        self._told(beat)
        with self._turn:
            self._beats += 1
            self._turn.notify_all()
        return True

    def _ask(self, known: list[int], changes: dict[str, Any]) -> dict[str, Any]:
        if self._conn is None or self._conn.closed:
            timeout = f"{max(1.0, self.lease_seconds / 4):.0f}s"
            self._conn = self._database.connect(
                direct=True,
                role="heartbeat",
                options={"statement_timeout": timeout, "lock_timeout": timeout, "tcp_user_timeout": "10000"},
            )
        params = {"worker": self._worker, "known": known, "changes": Jsonb(changes)}
        row = self._conn.execute(self._database.blocks["lease.beat"], params).fetchone()
        answer = row[0] if row else {}
        return json.loads(answer) if isinstance(answer, str) else dict(answer or {})

    def settle(self, outcomes: list[dict[str, Any]]) -> bool:
        """Write outcomes from this thread: the last act of a process whose event loop is blocked.

        Returns:
            Whether the database took them.
        """
        try:
            if self._conn is None or self._conn.closed:
                self._conn = self._database.connect(direct=True, role="heartbeat")
            params = {"worker": self._worker, "outcomes": Jsonb(outcomes)}
            self._conn.execute(self._database.blocks["finish.settle"], params)
        except _FAULTS:
            return False
        return True

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            try:
                conn.close()
            except _FAULTS:
                log.debug("closing a broken connection failed", extra={"event": Event.BEAT_FAILED})
