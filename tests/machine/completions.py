"""What handlers do that complete their jobs themselves: a transaction of their own, kept open, committed, rolled back or cut.

The handler may end before its transaction does. Then its outcome meets a row that is locked, one that is gone, or one that is
its own again.
"""

from __future__ import annotations

from typing import Any

from hypothesis import note

from tailrace.completion import Completion
from tailrace.errors import LeaseLost
from tailrace_worker.rows import ID, TOKEN
from tests.machine.actions import action, number, one_of
from tests.machine.arena import HANDLER
from tests.machine.clients import Client
from tests.machine.hands import WORKER, Hands
from tests.machine.model import Effect, Model
from tests.machine.process import Process
from tests.machine.producers import MODES, Producers
from tests.machine.records import must
from tests.rig.servers import Connection

ENDS = one_of("open", "open", "committed", "committed", "rolled back", "cut", "answer lost")
"""What becomes of a handler's transaction."""


class Completions(Producers, Hands):
    """The rules of the client `handler`, the connection that handlers use; one at a time."""

    @property
    def handler(self) -> Client:
        return self.arena.clients[HANDLER]

    def may_complete(self) -> bool:
        """Whether some handler runs and the handlers' connection is free."""
        return not self.handler.open and any(p.running for p in self.arena.processes.values())

    @action(9, when=lambda self: self.may_complete(), name=WORKER, n=number(0, 2), way=ENDS)
    def complete(self, name: str, n: int, way: str) -> None:
        """A handler completes its job."""
        name = name if self.arena.processes[name].running else next(x for x, p in self.arena.processes.items() if p.running)
        process: Process = self.arena.processes[name]
        slot = process.running[n % len(process.running)]
        assert slot.row is not None
        ident, token = slot.row[ID], slot.row[TOKEN]
        blocks: Any = self.arena.blocks
        right = slot.completion = slot.completion or Completion(blocks, job=ident, token=token, worker=process.name)
        self.completing = name, slot, ident
        note(f"{name}: handler of {ident} completes it ({way})")
        self.handler.rows.add(ident)
        effect = self._completed(ident, token)
        self.arena.do(self.handler, f"complete {ident}", lambda conn: _tried(right, conn), effect, commit=False)
        if way != "open" and self.handler.idle:
            self.finish_completion(way)

    def _completed(self, ident: int, token: int) -> Any:
        def effect(lost: LeaseLost | None) -> Effect:
            seen: list[None] = []

            def happen(model: Model) -> None:
                if not seen:
                    seen.append(None)
                    owned = model.owned(ident, token)
                    must((lost is None) == (owned is not None), f"completion of {ident} was {lost or 'taken'}: {owned}")
                    successor = model.holder(owned.task, owned.key, 1) if owned else None
                    self.handler.rows |= {successor.id} if successor else set()
                if lost is None:
                    model.complete(ident, token)

            self.handler.doomed = lost is not None
            return happen

        return effect

    @action(3, when=lambda self: self.handler.open and self.handler.idle, way=ENDS)
    def finish_completion(self, way: str) -> None:
        """The handler's transaction ends, or stays open for longer."""
        if way == "open":
            return
        note(f"handler: its transaction is {way}")
        if way == "rolled back":
            self.arena.rollback(self.handler)
        elif way == "cut":
            self.arena.break_sessions([self.handler])
        else:
            self.arena.commit(self.handler)
            if way == "answer lost":
                self._raise_for_the_lost_answer()

    def _raise_for_the_lost_answer(self) -> None:
        """The handler does not know whether its transaction was committed, and raises."""
        assert self.completing is not None
        name, slot, ident = self.completing
        if slot in self.answering(name) and slot.row is not None and slot.row[ID] == ident:
            self.end(name, slot, "error")

    @action(2, when=lambda self: self.handler.idle and self.handler.effects, n=number(1, 3), mode=MODES)
    def enqueue_in_handler(self, n: int, mode: str) -> None:
        """A handler that has completed its job enqueues the next one under the same key in the same transaction."""
        assert self.completing is not None
        job = self.arena.model.jobs.get(self.completing[2])
        if job is not None and not self.handler.doomed:
            new = {"task": job.task, "key": job.key, "on_duplicate": mode, "n": n, "max_attempts": 2, "priority": 0}
            new["serial_group"] = job.serial_group
            self.enqueue_one(self.handler, new, pause=True)


def _tried(right: Completion, conn: Connection) -> LeaseLost | None:
    try:
        right.complete(conn, None)
    except LeaseLost as lost:
        return lost
    return None
