"""Clients in interleaved transactions over one model: who is paused, who waits for whom, and what a commit makes true.

A statement's effect is checked when it answers, against what its own transaction sees, and becomes true with the commit.
The rules of machine.py say what happens; this module says in which order it becomes true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import note
from psycopg import errors
from psycopg.types.json import Jsonb

from tailrace.db.statements import Blocks
from tailrace_worker.work import PINNED
from tests.machine.clients import Client, Observer
from tests.machine.model import Effect, Model
from tests.machine.order import Order
from tests.machine.process import Process
from tests.machine.records import must
from tests.machine.witness import Witness
from tests.rig.servers import Connection, RigDatabase

PRODUCER = "app"
HANDLER = "handler"
WORKERS = ("w1", "w2")
_SESSION = {name: value for name, value in PINNED.items() if not name.endswith("_timeout")}
"""The worker's plans, but none of its patience: a statement that waits shall be seen to wait."""
_OTHERS = {"deadlock_timeout": "1ms"}
"""Who closes a circle of waits is refused before anybody looks."""


class Arena:
    """One database, its clients and the model of it; one for all examples of a test.

    Args:
        database: A fresh one.
        blocks: SQL blocks that replace the real ones, by name.
    """

    def __init__(self, database: RigDatabase, blocks: dict[str, str] | None = None) -> None:
        self.database = database
        self.blocks = {**Blocks("tailrace"), **(blocks or {})}
        self.observer = Observer(database)
        self.witness = Witness(self.observer.conn)
        self.witness.install()
        self.clients = {name: Client(name, database, False, {**_SESSION}) for name in WORKERS}
        self.clients |= {name: Client(name, database, True, {**_OTHERS}) for name in (PRODUCER, HANDLER)}
        self.upkeep = Client("upkeep", database, False)
        self.model = Model()
        self.processes: dict[str, Process] = {}
        self._dirty = True

    def reset(self) -> None:
        """Begin an example: nothing stored, nobody in a transaction, two new processes."""
        self._end_sessions([c for c in self.all() if not c.idle])
        for client in self.all():
            if client.open:
                client.rollback()
        self.witness.empty()
        self.model = Model()
        self.processes = {name: Process(name, self.blocks) for name in WORKERS}
        for name in WORKERS:
            self.beat(name)

    def close(self) -> None:
        """End all sessions."""
        self._end_sessions([c for c in self.all() if not c.idle])
        for client in self.all():
            client.close()
        self.observer.close()

    def all(self) -> list[Client]:
        """Every client."""
        return [*self.clients.values(), self.upkeep]

    # ---- statements --------------------------------------------------------------------------------------------------
    def do(
        self,
        client: Client,
        told: str,
        what: Callable[[Connection], Any],
        effect: Callable[[Any], Effect | None],
        *,
        commit: bool,
    ) -> Any:
        """Send a statement; it answers now, or later if it waits for another client.

        Args:
            client: Who sends it; must be idle.
            told: What it is, in words.
            what: Sends it, in the client's thread.
            effect: Makes from its result what it does to the model; None for nothing.
            commit: Commit once it has answered.
        """

        def done(result: Any) -> None:
            made = effect(result)
            if made is not None:
                made(client.view(self.model))
                client.effects.append(made)

        client.send(told, what, done, commit=commit)
        return self._answer(client)

    def _answer(self, client: Client) -> Any:
        pending = client.pending
        assert pending is not None
        blockers = self.observer.settle(client)
        if blockers is not None:
            names = [c.name for c in self.all() if c.pid in blockers] or blockers
            note(f"    {client.name} waits for {names}")
            must(client.waits, f"{client.name} waits for a lock of {names}: {pending.told}")
            client.waited = True
            return None
        client.pending = None
        try:
            result = pending.future.result()
        except errors.DeadlockDetected:
            must(client.waits, f"{client.name} closed a circle of waits: {pending.told}")
            note(f"    {client.name} is refused, since it closed a circle of waits: {pending.told}")
            self.rollback(client)
            return None
        pending.done(result)
        if pending.commit:
            self.commit(client)
        return result

    def commit(self, client: Client) -> None:
        """Commit; whoever waited for it goes on. The commit may have to wait itself, if the client's statements may."""
        if client.doomed:
            self.rollback(client)
            return
        client.send("commit", lambda conn: conn.execute("commit"), lambda _: self._committed(client), commit=False)
        self._answer(client)

    def _committed(self, client: Client) -> None:
        for effect in client.ended():
            effect(self.model)
        self.model.follow()
        self._dirty = True
        self.resume()

    def rollback(self, client: Client) -> None:
        """Roll back; whoever waited for it goes on."""
        client.rollback()
        self.resume()

    def resume(self) -> None:
        """Take the answers of statements that waited and do so no longer."""
        for client in self.all():
            if not client.idle and client.open:
                told = client.pending.told if client.pending else ""
                self._answer(client)
                if client.idle:
                    note(f"    {client.name} goes on: {told}")

    def others_open(self, client: Client | None = None) -> bool:
        """Whether anybody else is inside a transaction and may hold locks."""
        return any(c.open for c in self.all() if c is not client)

    # ---- workers -----------------------------------------------------------------------------------------------------
    def exchange(self, name: str, order: Order, *, commit: bool) -> None:
        """One exchange of a worker: its outcomes, then its claims; with `commit`, confirmed at once."""
        process, client = self.processes[name], self.clients[name]
        if order.ask.turn is not None:
            order.scene.locked = self.witness.held({job.id for job in self.model.jobs.values() if job.serial_group})
            limited = order.ask.limited is not None or process.desk.limits.version != self.model.version
            order.scene.hindered = limited or any(self.clients[other].open for other in WORKERS if other != name)

        def effect(answers: list[Any]) -> Effect:
            order.answers = answers
            self._busy_for_a_reason(client, order)
            return process.effect(order)

        self.do(client, f"exchange: {order.said}", lambda conn: process.exchange(conn, order), effect, commit=commit)
        if commit:
            process.answered()

    def _busy_for_a_reason(self, client: Client, order: Order) -> None:
        """An outcome may only be put off while an application holds something that must change with it."""
        if not order.busy:
            return
        held: set[int] = set()
        letters: set[int] = set()
        for other in (self.clients[PRODUCER], self.clients[HANDLER]):
            seen, known = other.view(self.model).letters, self.model.letters
            letters |= other.notes | {i for i in seen.keys() | known.keys() if seen.get(i) != known.get(i)}
            held |= other.rows
        for ident in order.busy:
            job = self.model.jobs[ident]
            successor = self.model.holder(job.task, job.key, 1)
            same_key = {
                x.id for x in self.model.letters.values() if job.key is not None and (x.task, x.key) == (job.task, job.key)
            }
            must(
                letters & (same_key | {ident}) or held & {ident, successor.id if successor else ident},
                f"{client.name}: the outcome of {job} was put off though nobody holds what must change with it",
            )

    def beat(self, name: str, *, draining: bool = False) -> None:
        """A heartbeat, on its own connection, and what the process makes of it."""
        process = self.processes[name]
        known, held = process.outbox.known(), set(process.outbox.held)
        row: dict[str, Any] = {"lease_seconds": 60, "version": "1", "queues": ["q"], "tasks": ["t1", "t2"], "slots": 2}
        row |= {"state": "draining"} if draining else {}
        told = self.ask("lease.beat", {"worker": process.name, "known": known, "changes": Jsonb(row)})
        self.model.silent.discard(process.name)
        if draining:
            self.model.draining.add(process.name)
        mine = {t: lease for t, lease in self.model.leases.items() if lease.worker == process.name}
        unknown = {int(lease["token"]) for lease in told["unknown"]}
        must(unknown == mine.keys() - set(known), f"beat of {process.name}: unknown leases {unknown}, its leases {list(mine)}")
        missing = {int(t) for t in told["missing"]}
        must(missing == set(known) - self.model.leases.keys(), f"beat of {process.name}: missing {missing}, known {known}")
        cancel = {i for t, lease in mine.items() for i in lease.ids if i in self.model.requested and self.model.owned(i, t)}
        must(set(told["cancel"]) == cancel, f"beat of {process.name}: cancel {told['cancel']}, requested {cancel}")
        process.beaten(told, held)

    def ask(self, block: str, params: dict[str, Any]) -> Any:
        """A routine's or heartbeat's statement, committed by itself; it may wait for nobody."""
        text = self.blocks[block]
        got: list[Any] = []

        def what(conn: Connection) -> Any:
            rows = conn.execute(text, params).fetchall()
            got.append(rows[0][0] if rows and len(rows[0]) == 1 else rows)
            return None

        self.do(self.upkeep, block, what, lambda _: None, commit=True)
        return got[0]

    def settle_limits(self, name: str) -> None:
        """A worker's statement about limits that are not sure."""
        limits, text = self.processes[name].desk.limits, self.blocks["limits.settle_limits"]
        rows = self.apart(name, text, {"queue": "q", "waiting": limits.waiting})
        limits.waiting = rows[0][0] or None

    def apart(self, name: str, text: str, params: Any) -> list[Any]:
        """A statement of a worker beside its exchanges, committed by itself; it may wait for nobody."""
        got: list[list[Any]] = []
        what = " ".join(text.split())[:40]
        self.do(self.clients[name], what, lambda conn: conn.execute(text, params).fetchall(), got.append, commit=True)
        self._dirty = True
        return got[0]

    def worker_died(self, worker: str) -> None:
        """A proof of death, as the controller has it."""
        self.blocks["machine.worker_died"] = "select tailrace.worker_died_v1(%(worker)s, 'killed')"
        self.ask("machine.worker_died", {"worker": worker})

    def touched(self) -> None:
        """Something was committed behind the model's back."""
        self._dirty = True

    def surgery(self, text: str, params: Any = None) -> list[tuple[Any, ...]]:
        """Change what only time or an accident changes, passing over rows that somebody has locked."""
        self._dirty = True
        return self.observer.conn.execute(text, params).fetchall()

    # ---- accidents ---------------------------------------------------------------------------------------------------
    def break_sessions(self, clients: Iterable[Client]) -> None:
        """Their sessions end on the server: what was not committed never happened, and each process knows nothing of it."""
        broken = list(clients)
        self._end_sessions(broken)
        for client in broken:
            process = self.processes.get(client.name)
            if process is not None and process.order is not None:
                process.unanswered()
        self.resume()

    def _end_sessions(self, clients: list[Client]) -> None:
        if clients:
            self.observer.terminate(clients)
        for client in clients:
            client.broken()

    def compare(self) -> None:
        """Compare the tables with the model, if anything was committed since the last time; nobody may hold what runs."""
        if self.clients[PRODUCER].open:
            mine = {i for p in self.processes.values() if p.order is not None for i in p.order.jobs_written}
            running = {job.id for job in self.model.jobs.values() if job.token is not None}
            held = self.witness.held(running - mine - self.clients[HANDLER].rows)
            must(not held, f"an open transaction of the application holds {held}, which run")
        if self._dirty:
            self.model.check()
            self.witness.compare(self.model)
            self._dirty = False
