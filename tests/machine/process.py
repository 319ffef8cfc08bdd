"""A worker process without its event loop: the real exchange, outbox, lanes and endings, the real news of a heartbeat.

Only the loop, the handlers and the wires are played here: the machine decides when a handler starts, how it ends, what is sent
together, and what the process gets to know of it. What is sent, and in which order, is the worker's own code.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tailrace_worker import endings, results
from tailrace_worker.ask import Ask, Got
from tailrace_worker.beats import News
from tailrace_worker.bound import BoundTask
from tailrace_worker.claim import Exchange, Step
from tailrace_worker.clock import boot
from tailrace_worker.failures import outcome
from tailrace_worker.finish import BUSY_SECONDS, Outbox
from tailrace_worker.floors import Floors
from tailrace_worker.lease import Beat
from tailrace_worker.pace import Pace
from tailrace_worker.rows import ID, MARK, PAYLOAD, TASK, TOKEN, Row
from tailrace_worker.run import Lanes
from tailrace_worker.slots import Gate, Slot
from tests.machine.handlers import QUEUE, RAISES, app
from tests.machine.model import Effect, Model
from tests.machine.records import must
from tests.rig.servers import Connection

PRIORITIES = (0, 5)
SLOTS = 16
_tokens = itertools.count(9_000_000_000_000_000_001)


@dataclass
class Order:
    """An exchange that was begun.

    Attributes:
        ask: What it is to do.
        got: Filled once its commit is confirmed.
        steps: What it sends.
        answers: The rows of each step, once it has answered.
    """

    ask: Ask
    got: Got
    steps: list[Step]
    answers: list[list[Row]] = field(default_factory=list)

    @property
    def jobs_written(self) -> set[int]:
        """Jobs whose outcome it writes."""
        flush = self.ask.flush
        return {i for ids in flush.done.values() for i in ids} | {o["id"] for o in flush.outcomes}

    @property
    def busy(self) -> set[int]:
        """Jobs whose outcome was put off."""
        told = [row for step, rows in zip(self.steps, self.answers, strict=True) for row in rows if step.into is self.got.settled]
        return {int(ident) for ident, result in told if result == "busy"}

    @property
    def said(self) -> str:
        """In words."""
        ask, flush = self.ask, self.ask.flush
        done = [f"success of {ident}" for ids in flush.done.values() for ident in ids]
        other = [f"{o['kind']} of {o['id']}" for o in flush.outcomes]
        asks = ["claims a suspect"] * ask.suspect + [f"claims {ask.jobs}{f' of {list(ask.ids)}' * bool(ask.ids)}"] * bool(
            ask.jobs
        )
        return ", ".join(["again:"] * flush.doubtful + done + other + asks) or "nothing"


class Process:
    """One worker process.

    Args:
        name: Its worker id.
        blocks: The SQL blocks; a test may spoil some of them.
    """

    def __init__(self, name: str, blocks: dict[str, str]) -> None:
        self.name = name
        self.outbox = Outbox()
        self.order: Order | None = None
        self.tasks = {name: BoundTask(task) for name, task in app.tasks.items()}
        pace, gate, want = Pace(SLOTS, boot()), Gate(), asyncio.Event()
        known: Any = blocks
        more: dict[str, Any] = {"pace": pace, "gate": gate, "want": want, "blocks": known}
        self.lanes = Lanes(queue=QUEUE, tasks=self.tasks, slots=SLOTS, outbox=self.outbox, worker=name, **more)
        work: Any = SimpleNamespace(database=SimpleNamespace(blocks=blocks))
        floors = Floors()
        for priority in PRIORITIES:
            floors.add(priority)
        self._exchange = Exchange(
            work,
            queue=QUEUE,
            worker=name,
            tasks=list(self.tasks),
            context_tasks=[t.name for t in self.tasks.values() if t.wants_context],
            strict_tasks=[],
            floors=floors,
            outbox=self.outbox,
            draw=lambda: next(_tokens),  # in order, so that an example can be repeated
        )
        desk: Any = SimpleNamespace(
            queue=QUEUE, outbox=self.outbox, lanes=self.lanes, rescan=SimpleNamespace(workers=1), pace=pace, want=want,
            turns=SimpleNamespace(workers=1),
            limits=SimpleNamespace(version=0, ahead=True), claiming=True, max_interruptions=None, discard=False,
        )  # fmt: skip
        self.desk = desk
        self.news = News([desk], gate, lambda lease: None)

    # ---- an exchange -------------------------------------------------------------------------------------------------
    def prepare(self, *, jobs: int, suspect: bool, ids: list[int]) -> Order:
        """Take what is to be written, and draw the tokens of the claims."""
        flush = self.outbox.take(boot() + 2 * BUSY_SECONDS)  # later than any outcome waits that was put off
        results.ruled(self.desk, flush.outcomes)
        ask, got = Ask(flush, jobs=jobs, ids=ids if jobs else (), suspect=suspect), Got()
        self.order = Order(ask, got, self._exchange.steps(ask, boot(), got))
        return self.order

    def exchange(self, conn: Connection, order: Order) -> list[list[Row]]:
        """Send the statements; runs in the client's thread."""
        answers: list[list[Row]] = []
        for step in order.steps:
            with conn.cursor(binary=step.token is not None) as cursor:
                cursor.execute(self._exchange.sql[step.block], step.params, prepare=True)
                answers.append(cursor.fetchall() if step.into is not None else [])
        return answers

    def effect(self, order: Order) -> Effect:
        """What an exchange makes true with its commit."""
        dropped: dict[int, set[int]] = {}  # leases by step: those that were empty when the statement looked, not at the commit

        def happen(model: Model) -> None:
            first = not dropped
            for number, (step, rows) in enumerate(zip(order.steps, order.answers, strict=True)):
                tokens = self._carry_out(model, order, step, rows, first=first)
                if first:
                    used = {j.token for j in model.jobs.values()}
                    dropped[number] = tokens if step.block == "drop_leases" else {t for t in tokens if t not in used}
                model.drop(dropped[number])

        return happen

    def _carry_out(self, model: Model, order: Order, step: Step, rows: list[Row], *, first: bool) -> set[int]:
        """One statement; returns the tokens whose leases it removes if they are empty."""
        params = step.params
        if step.token is not None:
            made = [(r[ID], r[2], int(json.loads(r[PAYLOAD])["n"]), r[MARK]) for r in rows]
            model.claim(step.token, self.name, made, suspect=step.block == "claim_suspect")
        elif step.block == "drop_leases":
            return set(params["tokens"])
        elif step.into is order.got.finished:
            tokens = params["tokens"] if "tokens" in params else [params["token"]] * len(params["ids"])
            model.finish(zip(params["ids"], tokens, strict=True), sum(n for _, n in rows))
        elif step.into is order.got.settled:
            keyed = step.block == "finish_keyed"
            sent = [o for o in order.ask.flush.outcomes if ("keyed" in o) == keyed]
            _settle(model, sent, rows, first=first)
            alone = keyed and all(result != "busy" for _, result in rows)  # else it went through settle_v1 after all
            return set(params["emptied"]) if alone else {o["token"] for o in sent}
        return set()

    # ---- what the process gets to know -------------------------------------------------------------------------------
    def answered(self) -> None:
        """The commit was confirmed."""
        order, self.order = self._sent(), None
        for step, rows in zip(order.steps, order.answers, strict=True):
            self._exchange.read(step, rows)
            if step.token is not None:
                self.outbox.took(step.token, len(rows))
                for row in rows:
                    self._take(row)
        results.take(self.lanes, self.outbox, order.ask.flush, order.got)

    def unanswered(self) -> None:
        """The connection broke: everything or nothing has happened (mend.py)."""
        order, self.order = self._sent(), None
        for step in order.steps:
            if step.token is not None:
                self.outbox.took(step.token, 0)
        self.outbox.restore(order.ask.flush, doubtful=True)

    def _sent(self) -> Order:
        assert self.order is not None
        return self.order

    def _take(self, row: Row) -> None:
        ended = endings.unrun(row)
        if ended is None:
            self.lanes.buffer.append(row)
        else:
            self.outbox.add(ended, urgent=True)

    def beaten(self, told: dict[str, Any], held: set[int]) -> None:
        """A heartbeat was answered; `held` are the tokens that were held when it was sent."""
        missing, cancel = [int(t) for t in told["missing"]], [int(j) for j in told["cancel"]]
        beat = Beat(0, unknown=told["unknown"], missing=missing, cancel=cancel, state=told["state"], queues=told["queues"])
        self.news.apply(beat, held)

    # ---- handlers ----------------------------------------------------------------------------------------------------
    @property
    def running(self) -> list[Slot]:
        """Slots whose handler runs."""
        return [slot for slot in self.lanes.slots if slot.row is not None]

    def start(self, n: int) -> Slot | None:
        """Call the handler of a buffered job; None when no slot is free."""
        free = next((slot for slot in self.lanes.slots if slot.row is None), None)
        if free is not None:
            free.row = self.lanes.buffer[n % len(self.lanes.buffer)]
            self.lanes.buffer.remove(free.row)
            free.calling, free.since, free.deadline = True, boot(), math.inf
        return free

    def end(self, slot: Slot, kind: str) -> str:
        """A handler has ended in some way; returns what the worker makes of it."""
        row = slot.row
        assert row is not None
        task, before = self.tasks[row[TASK]], self.outbox.count
        if kind == "success":
            self.lanes._succeeded(slot, task, row, slot.since)
        elif kind == "corrupt":  # no enqueue stores a payload that is no object
            self.outbox.add(outcome(row[ID], row[TOKEN], kind, task=row[TASK]))
        else:
            if kind == "timeout":
                slot.tell("timeout")
            elif kind == "interrupted" and slot.reason is None:
                slot.interrupt("shutdown")
            endings.failed(self.lanes, slot, task, RAISES[kind]())
        slot.row, slot.calling = None, False
        slot.clear()
        written = self.outbox.outcomes[-1] if self.outbox.outcomes else {}
        if self.outbox.count == before:
            return "nothing, for its lease is lost"
        return written["kind"] if written.get("id") == row[ID] else "success"

    def give_back(self, n: int) -> int:
        """Hand back a job that was not started; returns its id."""
        row = self.lanes.buffer[n % len(self.lanes.buffer)]
        self.lanes.buffer.remove(row)
        self.outbox.add(endings.handback(row))
        return int(row[ID])


def _settle(model: Model, sent: list[dict[str, Any]], rows: list[Row], *, first: bool) -> None:
    told: dict[int, list[str]] = {}
    for ident, result in rows:
        told.setdefault(ident, []).append(result)
    by_id: dict[int, list[dict[str, Any]]] = {}
    for one in {(o["id"], o["token"]): o for o in sent}.values():
        by_id.setdefault(one["id"], []).append(one)
    for ident, outcomes in by_id.items():
        answers = sorted(told.get(ident, []), key=lambda r: r == "fenced")
        must(len(answers) == len(outcomes), f"job {ident}: {outcomes} got {answers}")
        # two outcomes of one job have two tokens, of which one at most holds: that one comes first
        for one, result in zip(sorted(outcomes, key=lambda o: not model.owned(ident, o["token"])), answers, strict=True):
            model.settle(one, result, first=first)
