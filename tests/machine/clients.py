"""Database clients that can be stopped between two statements, and that show for whom they wait.

Each has a thread that only carries its statements; one driver (machine.py) decides whose turn it is, so an example runs the
same way each time. A statement that waits for a lock is found by asking the server, never by a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from tests.machine.model import Effect, Model
from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import eventually

DEADLINE_SECONDS = 20.0
_LOOK_SECONDS = 0.003
_BLOCKERS = """
select array(select b.pid from unnest(pg_blocking_pids(%s)) b(pid)
             join pg_stat_activity a on a.pid = b.pid and a.backend_type = 'client backend')"""
"""For whom a process waits; a vacuum that cuts off the empty end of a table holds it for a moment only."""


@dataclass
class Pending:
    """A statement that was sent and may wait.

    Attributes:
        told: What it is, in words.
        future: Its result.
        done: Takes the result once there is one.
        commit: Whether the transaction is to be committed right after it.
    """

    told: str
    future: Future[Any]
    done: Callable[[Any], None]
    commit: bool


@dataclass
class Client:
    """One session.

    Attributes:
        name: As the notes call it.
        waits: Whether its statements may wait for another client: producers may, workers and maintenance may not.
        effects: What its open transaction has done.
        notes: Dead letters that its open transaction holds without changing them.
        rows: Jobs that its open transaction has locked, or may lock when it commits.
        waited: Its last statement has waited for somebody.
        doomed: Its open transaction was refused something, and can only be rolled back.
        pending: The statement that waits just now.
        open: Whether it is inside a transaction.
    """

    name: str
    database: RigDatabase
    waits: bool
    options: dict[str, str] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    notes: set[int] = field(default_factory=set)
    rows: set[int] = field(default_factory=set)
    waited: bool = False
    doomed: bool = False
    pending: Pending | None = None
    open: bool = False

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self.name)
        self.connect()

    def connect(self) -> None:
        """Open a new session."""
        given = " ".join(f"-c {name}={value}" for name, value in self.options.items())
        self.conn: Connection = self.database.connect(application_name=f"machine {self.name}", options=given)
        self.pid = self.conn.info.backend_pid
        self._forget()

    def close(self) -> None:
        """End the session and the thread."""
        self.conn.close()
        self._thread.shutdown()

    @property
    def idle(self) -> bool:
        """Whether it could send a statement."""
        return self.pending is None

    def begin(self) -> None:
        """Open a transaction, unless one is open."""
        if not self.open:
            self.conn.execute("begin isolation level read committed, read write")
            self.open = True

    def send(self, told: str, what: Callable[[Connection], Any], done: Callable[[Any], None], *, commit: bool) -> Pending:
        """Begin a statement inside the transaction; `settle` waits for it."""
        self.begin()
        self.waited = False
        self.pending = Pending(told, self._thread.submit(what, self.conn), done, commit)
        return self.pending

    def view(self, model: Model) -> Model:
        """What this client sees: the committed truth and what its own transaction has done."""
        seen = model.copy()
        for effect in self.effects:
            effect(seen)
        return seen

    def ended(self) -> list[Effect]:
        """The transaction was committed; returns what thereby became true."""
        effects = self.effects
        self._forget()
        return effects

    def rollback(self) -> None:
        """Roll back."""
        self.conn.execute("rollback")
        self._forget()

    def broken(self) -> None:
        """The server has ended the session: what it had sent last fails, and a new one is opened."""
        if self.pending is not None:
            wait([self.pending.future], DEADLINE_SECONDS)
        self.conn.close()
        self.connect()

    def _forget(self) -> None:
        self.effects, self.notes, self.rows, self.pending = [], set(), set(), None
        self.open = self.doomed = False


class Observer:
    """The session that asks the server what the others do, and ends them."""

    def __init__(self, database: RigDatabase) -> None:
        self.conn = database.connect(application_name="machine observer")

    def settle(self, client: Client) -> list[int] | None:
        """Wait until a client's statement is done, or waits for somebody.

        Returns:
            The processes it waits for, or None when it is done.
        """
        pending = client.pending
        assert pending is not None
        seen = 0
        for _ in range(int(DEADLINE_SECONDS / _LOOK_SECONDS)):
            if wait([pending.future], _LOOK_SECONDS).done:
                return None
            row = self.conn.execute(_BLOCKERS, [client.pid]).fetchone()
            seen = seen + 1 if row and row[0] else 0
            if seen == 3 and row:  # a lock of a moment is none
                return list(row[0])
        raise AssertionError(f"{client.name}: neither done nor waiting after {DEADLINE_SECONDS} s: {pending.told}")

    def terminate(self, clients: Iterable[Client]) -> None:
        """End the sessions of some clients on the server, and wait until their processes are gone."""
        pids = [client.pid for client in clients]
        self.conn.execute("select pg_terminate_backend(pid) from unnest(%s::int[]) pid", [pids])
        query = "select count(*) from pg_stat_activity where pid = any(%s)"
        eventually(lambda: self.conn.execute(query, [pids]).fetchone() == (0,), what="the end of some sessions")

    def close(self) -> None:
        """End the session."""
        self.conn.close()
