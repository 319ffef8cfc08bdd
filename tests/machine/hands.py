"""What worker processes do: exchanges, handlers, heartbeats, and the ways in which a process or its connection dies."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import note

from tailrace_worker.rows import GROUP, GROUPED, ID, MARK, TOKEN, Row
from tailrace_worker.slots import Slot
from tests.machine.actions import action, fields, number, one_of, some
from tests.machine.arena import HANDLER, WORKERS, Arena
from tests.machine.process import Process
from tests.machine.records import must

WORKER = one_of(*WORKERS)
KINDS = one_of(
    *["success"] * 3,
    *["error"] * 3,
    *["interrupted"] * 2,
    *["timeout", "retry_after", "permanent", "corrupt", "snooze", "given back", "saves"],
)
"""How a handler ends; or it never starts, or saves a state and goes on."""
JOBS = one_of(5, 2, 1, 0)
TURNS = fields(n=one_of(5, 5, 1, 0), k=one_of(10, 2, 1), suspect=one_of(False, False, True))
"""The turn at the groups that goes with an exchange."""
STARTS = one_of(3, 1, 0)
ACCIDENTS = one_of("drains", "is killed", "breaks", "all break", "app breaks")
WAYS = one_of("confirmed", "confirmed", "confirmed", "paused", "answer lost")
"""What becomes of an exchange's commit: confirmed, not yet sent, or done with its answer lost."""


class Hands:
    """The rules of the clients `w1` and `w2`."""

    arena: Arena
    crashes: int

    def process(self, name: str) -> Process:
        return self.arena.processes[name]

    def claimed(self) -> bool:
        """Whether some process has jobs that have not ended there."""
        return any(p.lanes.buffer or p.running for p in self.arena.processes.values())

    def has_work(self) -> bool:
        """Whether an exchange could do something."""
        waiting = any(job.token is None for job in self.arena.model.jobs.values())
        return waiting or any(not p.outbox.empty or p.order for p in self.arena.processes.values())

    # ---- exchanges ---------------------------------------------------------------------------------------------------
    @action(
        10,
        when=lambda self: self.has_work(),
        name=WORKER,
        jobs=JOBS,
        suspect=one_of(False, True),
        by_id=number(0, 3),
        turn=TURNS,
        way=WAYS,
    )
    def exchange(self, name: str, jobs: int, suspect: bool, by_id: int, turn: dict[str, Any], way: str) -> None:
        client, process = self.arena.clients[name], self.process(name)
        if client.open:
            self.finish_exchange(name, "confirmed" if way == "paused" else way)
            return
        ids = sorted(self.arena.model.jobs)[:6] if by_id == 0 else []
        if process.name in self.arena.model.draining:
            jobs, suspect, ids, turn = 0, False, [], {**turn, "n": 0}
        if not any(job.serial_group for job in self.arena.model.jobs.values()):
            turn = {**turn, "n": 0}
        send = partial(self.arena.apart, name)
        order = process.prepare(jobs=jobs, suspect=suspect, ids=ids, turn=turn, send=send)
        note(f"{name}: {order.said} ({way})")
        self.arena.exchange(name, order, commit=way == "confirmed")
        if way == "answer lost":
            self.finish_exchange(name, way)

    def finish_exchange(self, name: str, way: str) -> None:
        """Commit what was paused; the worker learns of it, or not."""
        client, process = self.arena.clients[name], self.process(name)
        if way != "paused":
            note(f"{name}: commits{', but the answer is lost' * (way == 'answer lost')}")
            self.arena.commit(client)
            if way == "answer lost":
                self.arena.break_sessions([client])
            else:
                process.answered()

    # ---- handlers ----------------------------------------------------------------------------------------------------
    @action(9, when=lambda self: self.claimed(), name=WORKER, starts=STARTS, n=number(0, 2), kinds=some(KINDS, 0, 2))
    def handle(self, name: str, starts: int, n: int, kinds: list[str]) -> None:
        """Some handlers start, some end; what a worker does not start it may give back."""
        process = self.process(name)
        if not (process.lanes.buffer or process.running):
            name = next(other for other in WORKERS if other != name)
            process = self.process(name)
        for _ in range(min(starts, len(process.lanes.buffer))):
            self.start(name, n)
        for kind in kinds:
            if kind == "given back" and process.lanes.buffer:
                note(f"{name}: gives back {process.give_back(n)}, which it has not started")
            elif kind != "given back" and (running := self.answering(name)):
                self.end(name, running[n % len(running)], kind)

    def start(self, name: str, n: int) -> None:
        """A handler is called."""
        slot = self.process(name).start(n)
        if slot is None or slot.row is None:
            return
        ident, token = slot.row[ID], slot.row[TOKEN]
        note(f"{name}: starts {ident}")
        model, worker = self.arena.model, self.process(name).name
        must(model.owned(ident, token) or worker in self.bereft, f"{name} starts {ident} under a token that is not the job's")
        for other, row in self.runs:
            if row[ID] == ident:
                must(not model.owned(ident, row[TOKEN]), f"{name} starts {ident} while {other} runs it under a live lease")
            elif slot.row[MARK] & row[MARK] & GROUPED and slot.row[GROUP] == row[GROUP] and model.owned(ident, token):
                must(not model.owned(row[ID], row[TOKEN]), f"{name} starts {ident} while {other} runs {row[ID]} of its group")
        self.runs.append((name, slot.row))
        model.starts += (ident, token) in self.process(name).rated
        self.arena.witness.started(ident, token)

    runs: list[tuple[str, Row]]
    """Jobs whose handlers run anywhere, also in processes that lost their lease."""

    bereft: set[str]
    """Workers from which something was taken over: they may not know yet that a job is not theirs any more."""

    completing: tuple[str, Slot, int] | None
    """Whose handler has sent the completion of which job last."""

    def answering(self, name: str) -> list[Slot]:
        """Slots of a process whose handlers wait for no statement."""
        waits = self.completing[1] if self.completing and not self.arena.clients[HANDLER].idle else None
        return [slot for slot in self.process(name).running if slot is not waits]

    def end(self, name: str, slot: Slot, kind: str) -> None:
        """A handler ends, or saves a state and goes on."""
        process, row = self.process(name), slot.row
        assert row is not None
        ident, token = row[ID], row[TOKEN]
        if kind == "saves":
            note(f"{name}: handler of {ident} saves a state")
            process.outbox.save(ident, token, '{"so": "far"}')
            return
        self.runs = [(other, was) for other, was in self.runs if was is not row]
        self.arena.witness.returned(ident, token)
        note(f"{name}: handler of {ident} ends by {kind}: {process.end(slot, kind)}")

    # ---- heartbeats and deaths ---------------------------------------------------------------------------------------
    @action(2, when=lambda self: self.arena.model.leases, name=WORKER)
    def beat(self, name: str) -> None:
        note(f"{name}: beats")
        self.arena.beat(name)

    @action(1, when=lambda self: self.arena.model.leases, name=WORKER, what=ACCIDENTS)
    def accident(self, name: str, what: str) -> None:
        """A process is killed or told to end, a link breaks, or an outage ends all sessions."""
        if what == "drains":
            note(f"{name}: says that it drains")
            self.arena.beat(name, draining=True)
        elif what == "is killed":
            self._crash(name)
        else:
            names = {"breaks": [name], "app breaks": ["app"]}.get(what, [c.name for c in self.arena.all()])
            note(f"the connections of {names} break")
            self.arena.break_sessions([c for c in self.arena.all() if c.name in names])

    def _crash(self, name: str) -> None:
        """SIGKILL: nothing of the process is left but its leases; another one starts."""
        self.crashes += 1
        note(f"{name}: is killed, and started again as {name}.{self.crashes}")
        self.runs = [(other, row) for other, row in self.runs if other != name]
        self.process(name).order = None
        mine = [HANDLER] if self.completing and self.completing[0] == name and self.arena.clients[HANDLER].open else []
        self.arena.break_sessions([self.arena.clients[each] for each in (name, *mine)])
        self.arena.processes[name] = Process(f"{name}.{self.crashes}", self.arena.blocks)
        self.arena.beat(name)


def drained(machine: Any) -> Any:
    """Bring everything to its end: what is open is committed, what waits is run, what was lost is taken over."""
    arena = machine.arena
    for _ in arena.clients:
        for client in arena.clients.values():
            if client.open and client.idle:
                arena.commit(client)
                process = arena.processes.get(client.name)
                if process is not None:
                    process.answered()
    if any(limit.startswith("rate") for limit in arena.model.limits):
        arena.surgery("update tailrace.queue set settings = settings - 'limits' - 'tasks' returning 1")
        arena.model.limits = {}
    for turn in range(60):
        if not arena.model.jobs and not arena.model.leases:
            return
        machine.make_due()
        for name in WORKERS:
            _one_round(machine, name, alone=bool(turn % 2))
        machine.reap_the_dead()
        arena.compare()
    raise AssertionError(f"some jobs do not end: {arena.model.jobs} {arena.model.leases}")


def _one_round(machine: Any, name: str, *, alone: bool) -> None:
    arena, process = machine.arena, machine.process(name)
    arena.beat(name)
    arena.settle_limits(name)
    while process.lanes.buffer or process.running:
        while process.lanes.buffer and len(process.running) < len(process.lanes.slots):
            machine.start(name, 0)
        for slot in process.running:
            machine.end(name, slot, "success")
    arena.model.draining.discard(process.name)
    lost = [job for job in arena.model.jobs.values() if job.lost]
    turn = {"n": 5, "k": 10, "suspect": alone and any(job.serial_group for job in lost)}
    suspect = alone and any(not job.serial_group for job in lost)  # it comes alone where there are limits
    send = partial(arena.apart, name)
    order = process.prepare(jobs=20, suspect=suspect, ids=sorted(arena.model.jobs)[:20], turn=turn, send=send)
    note(f"{name}: {order.said}")
    arena.exchange(name, order, commit=True)
