"""What worker processes do: exchanges, handlers, heartbeats, and the ways in which a process or its connection dies."""

from __future__ import annotations

from typing import Any

from hypothesis import note
from hypothesis import strategies as st

from tailrace_worker.claim import ID, TOKEN
from tests.machine.actions import action
from tests.machine.arena import WORKERS, Arena
from tests.machine.model import must
from tests.machine.process import Process, Run

WORKER = st.sampled_from(WORKERS)
KINDS = st.sampled_from(
    [
        *["success"] * 3,
        *["error"] * 3,
        "timeout",
        "retry_after",
        "permanent",
        "corrupt",
        "snooze",
        *["interrupted"] * 2,
        "given back",
    ]
)
"""How a handler ends; or it never starts."""
JOBS = st.sampled_from([5, 2, 1, 0])
STARTS = st.sampled_from([3, 1, 0])
ACCIDENTS = st.sampled_from(["drains", "is killed", "breaks", "all break", "app breaks"])
WAYS = st.sampled_from(["confirmed", "confirmed", "confirmed", "paused", "answer lost"])
"""What becomes of an exchange's commit: confirmed, not yet sent, or done with its answer lost."""


class Hands:
    """The rules of the clients `w1` and `w2`."""

    arena: Arena
    crashes: int

    def process(self, name: str) -> Process:
        return self.arena.processes[name]

    def claimed(self) -> bool:
        """Whether some process has jobs that have not ended there."""
        return any(p.lanes.buffer or p.lanes.slots for p in self.arena.processes.values())

    def has_work(self) -> bool:
        """Whether an exchange could do something."""
        waiting = any(job.token is None for job in self.arena.model.jobs.values())
        return waiting or any(not p.outbox.empty or p.order for p in self.arena.processes.values())

    # ---- exchanges ---------------------------------------------------------------------------------------------------
    @action(
        7, when=lambda self: self.has_work(), name=WORKER, jobs=JOBS, suspect=st.booleans(), by_id=st.integers(0, 3), way=WAYS
    )
    def exchange(self, name: str, jobs: int, suspect: bool, by_id: int, way: str) -> None:
        client, process = self.arena.clients[name], self.process(name)
        if client.open:
            self.finish_exchange(name, "confirmed" if way == "paused" else way)
            return
        ids = sorted(self.arena.model.jobs)[:6] if by_id == 0 else []
        if process.name in self.arena.model.draining:
            jobs, suspect, ids = 0, False, []
        order = process.prepare(jobs=jobs, suspect=suspect, ids=ids)
        note(f"{name}: {order.said} ({way})")
        self.arena.exchange(name, order, commit=way == "confirmed")
        if way == "answer lost":
            self.finish_exchange(name, way)

    def finish_exchange(self, name: str, way: str) -> None:
        """Commit what was paused; the worker learns of it, or not."""
        client, process = self.arena.clients[name], self.process(name)
        answer = self.arena.answers[name]
        if way != "paused":
            note(f"{name}: commits{', but the answer is lost' * (way == 'answer lost')}")
            self.arena.commit(client)
            if way == "answer lost":
                self.arena.break_sessions([client])
            else:
                process.answered(answer)

    # ---- handlers ----------------------------------------------------------------------------------------------------
    @action(
        6, when=lambda self: self.claimed(), name=WORKER, starts=STARTS, n=st.integers(0, 2), kinds=st.lists(KINDS, max_size=3)
    )
    def handle(self, name: str, starts: int, n: int, kinds: list[str]) -> None:
        """Some handlers start, some end; what a worker does not start it may give back."""
        process = self.process(name)
        if not (process.lanes.buffer or process.lanes.slots):
            name = next(other for other in WORKERS if other != name)
            process = self.process(name)
        for _ in range(min(starts, len(process.lanes.buffer))):
            self.start(name, n)
        for kind in kinds:
            if kind == "given back" and process.lanes.buffer:
                note(f"{name}: gives back {process.give_back(n)}, which it has not started")
            elif kind != "given back" and process.lanes.slots:
                self.end(name, n, kind)

    def start(self, name: str, n: int) -> None:
        """A handler is called."""
        run = self.process(name).start(n)
        ident, token = run.row[ID], run.row[TOKEN]  # type: ignore[index]
        note(f"{name}: starts {ident}")
        model, worker = self.arena.model, self.process(name).name
        must(model.owned(ident, token) or worker in self.bereft, f"{name} starts {ident} under a token that is not the job's")
        for other, was in self.runs:
            if was.row is not None and was.row[ID] == ident:
                must(not model.owned(ident, was.row[TOKEN]), f"{name} starts {ident} while {other} runs it under a live lease")
        self.runs.append((name, run))
        self.arena.witness.started(ident, token)

    runs: list[tuple[str, Run]]
    """Handlers that run anywhere, also in processes that lost their lease."""

    bereft: set[str]
    """Workers from which something was taken over: they may not know yet that a job is not theirs any more."""

    def end(self, name: str, n: int, kind: str) -> None:
        """A handler ends."""
        process = self.process(name)
        run = process.lanes.slots[n % len(process.lanes.slots)]
        ident, token = run.row[ID], run.row[TOKEN]
        self.runs = [(other, was) for other, was in self.runs if was is not run]
        self.arena.witness.returned(ident, token)
        note(f"{name}: handler of {ident} ends by {kind}: {process.end(run, kind)}")

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
        self.runs = [(other, run) for other, run in self.runs if other != name]
        self.process(name).order = None
        self.arena.break_sessions([self.arena.clients[name]])
        self.arena.processes[name] = Process(f"{name}.{self.crashes}", self.arena.blocks)
        self.arena.beat(name)


def drained(machine: Any) -> Any:
    """Bring everything to its end: what is open is committed, what waits is run, what was lost is taken over."""
    arena = machine.arena
    for client in arena.clients.values():
        if client.open and client.idle:
            arena.commit(client)
            process = arena.processes.get(client.name)
            if process is not None:
                process.answered(arena.answers[client.name])
    for _ in range(60):
        if not arena.model.jobs and not arena.model.leases:
            return
        machine.make_due()
        for name in WORKERS:
            _one_round(machine, name)
        machine.reap_the_dead()
        arena.compare()
    raise AssertionError(f"some jobs do not end: {arena.model.jobs} {arena.model.leases}")


def _one_round(machine: Any, name: str) -> None:
    arena, process = machine.arena, machine.process(name)
    arena.beat(name)
    while process.lanes.buffer:
        machine.start(name, 0)
    while process.lanes.slots:
        machine.end(name, 0, "success")
    arena.model.draining.discard(process.name)
    order = process.prepare(jobs=20, suspect=True, ids=sorted(arena.model.jobs)[:20])
    note(f"{name}: {order.said}")
    arena.exchange(name, order, commit=True)
