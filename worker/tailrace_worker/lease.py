"""The lease: a heartbeat on a thread and a connection of its own.

It beats also while the event loop is blocked, and knows until when the lease is certain. Everything it learns is handed
to the event loop; watch.py looks after it, since a silent server can hold this thread.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tailrace.clock import boot
from tailrace.db import Connection, Database, Jsonb, OperationalError, errors, settled
from tailrace.errors import TailraceError
from tailrace.names.events import Event
from tailrace_worker.operations import Operations
from tailrace_worker.results import brief
from tailrace_worker.silence import hang_up

log = logging.getLogger("tailrace.worker")

RETRY_SECONDS = 1.0
LOOK_SECONDS = 0.5
SAY_AGAIN_SECONDS = 60.0
PAUSE_SECONDS = 5.0
"""After a gap this long the process was frozen: it beats before anything starts (engine rule 7)."""

_FAULTS = (OperationalError, TailraceError, errors.InterfaceError, errors.DatabaseError, OSError)


_SESSION = {"lock_timeout": "500ms", "idle_session_timeout": "0", "tcp_user_timeout": "10000"}


def patience(lease_seconds: float) -> float:
    """How many seconds one heartbeat may take: a quarter of the lease, so that there is time for another."""
    return max(1.0, lease_seconds / 4)


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
        measured: Gives what each beat publishes of run times.
        told: Takes each confirmed beat, in this thread.
        failed: Called when a beat failed, in this thread.
    """

    def __init__(
        self,
        *,
        database: Database,
        worker: str,
        row: dict[str, Any],
        known: Callable[[], list[int]],
        measured: Callable[[], dict[str, dict[str, float]]],
        told: Callable[[Beat], None],
        failed: Callable[[], None],
    ) -> None:
        super().__init__(name="tailrace-heartbeat", daemon=True)
        self._database, self._worker, self._known, self._told, self._failed = database, worker, known, told, failed
        self._measured = measured
        self.row = row
        self.lease_seconds = float(row["lease_seconds"])
        self.renew_seconds = self.lease_seconds / 3
        self.certain_until = 0.0
        self.failures = 0
        self._conn: Connection | None = None
        self._session: dict[str, str] = {}
        self._guard = threading.Lock()  # whoever hangs up keeps this thread from closing the connection meanwhile
        self._asked_at: float | None = None
        self._said, self._say_at = "", 0.0
        self.operations = Operations()
        self._wanted = threading.Event()
        self._may_begin = threading.Event()
        self._stopped = threading.Event()
        self._turn = threading.Condition()
        self._begun = self._confirmed = 0  # beats by number

    # ---- asked from other threads ------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Beat from now on: the schema fits. Until then the started thread only connects."""
        self._may_begin.set()

    def beat_soon(self, **changes: Any) -> None:
        """Beat now, with changed columns of the worker row."""
        self.row.update(changes)
        self._wanted.set()

    def use_lease(self, seconds: float, renew: float) -> None:
        """Change the lease and its renewal, in seconds; the next beat tells the database."""
        if (seconds, renew) != (self.lease_seconds, self.renew_seconds):
            self.lease_seconds, self.renew_seconds = seconds, renew
            self.beat_soon(lease_seconds=seconds)

    def beat_and_wait(self, timeout: float, **changes: Any) -> bool:
        """Beat now and wait until a beat that began after this call was confirmed.

        Args:
            timeout: The longest wait in seconds.
            changes: Changed columns of the worker row.

        Returns:
            Whether one was confirmed in time.
        """
        with self._turn:
            before = self._begun
            self.beat_soon(**changes)
            self._turn.wait_for(lambda: self._confirmed > before or self._stopped.is_set(), timeout)
            return self._confirmed > before

    @property
    def beaten(self) -> bool:
        """Whether a beat was confirmed."""
        return self._confirmed > 0

    def wait_first(self, timeout: float) -> bool:
        """Wait for the first confirmed beat, at most `timeout` seconds."""
        with self._turn:
            return self._turn.wait_for(lambda: self.beaten or self._stopped.is_set(), timeout) and self.beaten

    def stop(self) -> None:
        """End the thread; does not wait. Whoever waits for a beat waits no longer."""
        self._stopped.set()
        self._may_begin.set()
        self._wanted.set()
        with self._turn:
            self._turn.notify_all()

    def end_silence(self, after: float | None = None) -> None:
        """Hang up when the server has not answered a beat in time; the beat then fails and is tried again.

        Args:
            after: Seconds that a beat may take; None for a quarter of the lease.
        """
        with self._guard:
            asked = self._asked_at
            if asked is not None and boot() - asked > (patience(self.lease_seconds) + 0.5 if after is None else after):
                hang_up(self._conn)

    # ---- the thread --------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Beat every third of the lease, at once when asked, and after each failure or long pause again."""
        self._get_ready()
        due = last = boot()
        while not self._stopped.is_set():
            now = boot()
            if now - last > PAUSE_SECONDS or now >= due or self._wanted.is_set():
                self._wanted.clear()
                ok = self._beat()
                every = self.renew_seconds
                due = boot() + (
                    every * random.uniform(0.9, 1.0) if ok else min(RETRY_SECONDS, every / 4) * random.uniform(0.8, 1.2)
                )
            last = boot()
            self._wanted.wait(max(0.02, min(LOOK_SECONDS, due - boot())))
        self._close()

    def _get_ready(self) -> None:
        """Connect while the other connections are opened; what went wrong is met and told by the first beat."""
        since = boot()
        with suppress(*_FAULTS):
            self._connect()
        self._may_begin.wait()
        if boot() - since > PAUSE_SECONDS:  # the server may have gone away meanwhile
            self._close()

    def _connect(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._session = {**_SESSION, "statement_timeout": f"{patience(self.lease_seconds):.0f}s"}
            self._conn = self._database.connect(direct=True, role="heartbeat", options=self._session)
        return self._conn

    def _beat(self) -> bool:
        with self._turn:
            self._begun += 1
        known, changes, sent = self._known(), {**self.row, "measured": self._measured()}, boot()
        try:
            told = self._ask(known, changes)
        except _FAULTS as error:
            self._say(brief(error))
            return self._missed()
        except Exception:  # a thread that dies would lose the lease without a word
            log.exception("heartbeat failed", extra={"event": Event.BEAT_FAILED})
            return self._missed()
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
        self._said = ""
        with self._turn:
            self._confirmed = self._begun
            self._turn.notify_all()
        return True

    def _say(self, problem: str) -> None:
        """Why beats fail: when the reason changes, and each minute."""
        if not self._stopped.is_set() and (problem != self._said or boot() >= self._say_at):
            log.warning("heartbeat failed: %s", problem, extra={"event": Event.BEAT_FAILED})
            self._said, self._say_at = problem, boot() + SAY_AGAIN_SECONDS

    def _missed(self) -> bool:
        self.failures += 1
        self._close()
        self._failed()
        return False

    def _ask(self, known: list[int], changes: dict[str, Any]) -> dict[str, Any]:
        conn = self._connect()
        params = {"worker": self._worker, "known": known, "changes": Jsonb(changes)}
        self._asked_at = boot()
        try:
            with settled(conn, self._database.blocks, self._session):
                answer = conn.execute(self._database.blocks["lease.beat"], params)
            row = answer.fetchone()
        finally:
            self.operations.note(["beat"], boot() - self._asked_at, ok=sys.exception() is None)
            self._asked_at = None
        told = row[0] if row else {}
        return json.loads(told) if isinstance(told, str) else dict(told or {})

    def _close(self) -> None:
        with self._guard:
            conn, self._conn = self._conn, None
            if conn is not None:
                try:
                    conn.close()
                except _FAULTS:
                    log.debug("closing a broken connection failed", extra={"event": Event.BEAT_FAILED})
