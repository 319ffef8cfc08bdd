"""A worker process without its event loop: the real exchange, outbox, lanes and endings, the real news of a heartbeat.

Only the loop, the handlers and the wires are played here: the machine decides when a handler starts, how it ends, what is sent
together, and what the process gets to know of it. What is sent, and in which order, is the worker's own code.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from types import SimpleNamespace
from typing import Any

from tailrace.clock import boot
from tailrace_worker import endings, intake, limited, results
from tailrace_worker.ask import Ask, Got
from tailrace_worker.beats import News
from tailrace_worker.bound import BoundTask
from tailrace_worker.claim import Exchange, Step
from tailrace_worker.classes import Limited
from tailrace_worker.failures import outcome
from tailrace_worker.finish import BUSY_SECONDS, Flush, Outbox
from tailrace_worker.floors import Floors
from tailrace_worker.groups import follow, hand_back
from tailrace_worker.intake import Alone
from tailrace_worker.lease import Beat
from tailrace_worker.limits import Limits
from tailrace_worker.pace import Pace
from tailrace_worker.rows import EXTRA, GROUPED, ID, MARK, PAYLOAD, TASK, TOKEN, Row
from tailrace_worker.run import Lanes
from tailrace_worker.slots import Gate, Slot
from tailrace_worker.turns import FIRST, WALK, Turn, Turns
from tests.machine.groups import SEE, Member, turned
from tests.machine.handlers import QUEUE, RAISES, STRICT, app
from tests.machine.model import Effect, Model
from tests.machine.order import Order, settle
from tests.machine.records import RATE, must
from tests.machine.wire import Send, Wire
from tests.rig.servers import Connection

PRIORITIES = (0, 5)
SLOTS = 16
_tokens = itertools.count(9_000_000_000_000_000_001)


def _floors() -> Floors:
    floors = Floors()
    for priority in PRIORITIES:
        floors.add(priority)
    return floors


class Process:
    """One worker process.

    Args:
        name: Its worker id.
        blocks: The SQL blocks; a test may spoil some of them.

    Attributes:
        rated: Claims that took a unit of a rate, by job and token.
    """

    def __init__(self, name: str, blocks: dict[str, str]) -> None:
        self.name = name
        self.outbox = Outbox()
        self.order: Order | None = None
        self._cursor = FIRST
        self.rated: set[tuple[int, int]] = set()
        self.tasks = {name: BoundTask(task) for name, task in app.tasks.items()}
        pace, gate, want = Pace(SLOTS, boot()), Gate(), asyncio.Event()
        known: Any = blocks
        more: dict[str, Any] = {"pace": pace, "gate": gate, "want": want, "blocks": known}
        self.lanes = Lanes(queue=QUEUE, tasks=self.tasks, slots=SLOTS, outbox=self.outbox, worker=name, **more)
        self._wire = wire = Wire(blocks)
        work: Any = wire
        floors = _floors()
        self._exchange = Exchange(
            work,
            queue=QUEUE,
            worker=name,
            tasks=list(self.tasks),
            context_tasks=[t.name for t in self.tasks.values() if t.wants_context],
            strict_tasks=STRICT,
            floors=floors,
            outbox=self.outbox,
            draw=lambda: next(_tokens),  # in order, so that an example can be repeated
        )
        self.turns = Turns(self.lanes.groups, pace)
        below: Any = SimpleNamespace(end=lambda: None)
        self.limits = Limits(tasks=list(self.tasks), lanes=self.lanes, floors=floors, look_below=lambda known: below)
        desk: Any = SimpleNamespace(
            queue=QUEUE, outbox=self.outbox, lanes=self.lanes, rescan=SimpleNamespace(workers=1), pace=pace, want=want,
            work=work, limits=self.limits, turns=self.turns, exchange=self._exchange, came_back=lambda: None, handed_back=0,
            claiming=True, max_interruptions=None, discard=False, server_ahead=0.0,
            share=SimpleNamespace(alone=Alone(), beat_soon=lambda: None),
        )  # fmt: skip
        self.desk = desk
        self.news = News([desk], gate, lambda lease: None)

    # ---- an exchange -------------------------------------------------------------------------------------------------
    def prepare(self, *, jobs: int, suspect: bool, ids: list[int], turn: dict[str, Any], send: Send) -> Order:
        """Take what is to be written, and draw the tokens of the claims."""
        flush = self.outbox.take(boot() + 2 * BUSY_SECONDS)  # later than any outcome waits that was put off
        results.ruled(self.desk, flush.outcomes)
        ask, got = Ask(flush, jobs=jobs, ids=ids if jobs else (), suspect=suspect, turn=self._turn(flush, **turn)), Got()
        if self.limits.on and (ask.claims or ask.turn):
            self._limit(ask, send)
        self.order = Order(ask, got, self._exchange.steps(ask, boot(), got))
        return self.order

    def _turn(self, flush: Flush, *, n: int, k: int, suspect: bool) -> Turn | None:
        """What plan.py and turns.py make of it, but for the sizes and times."""
        groups = self.lanes.groups
        ended, groups.ended = groups.ended, {}
        if suspect and n and not ended:
            return Turn(n=1, walk=WALK, suspect=True)
        if not ended and not n:
            return None
        unsettled = [o["id"] for o in flush.outcomes] + self.outbox.unsettled()
        return Turn(ended=ended, n=n, k=k, walk=WALK if n else 0, after=self._cursor, unsettled=unsettled)

    def _limit(self, ask: Ask, send: Send) -> None:
        """Ask for what limits and rates allow, as if nothing were known of what is taken."""
        if ask.suspect:
            ask.jobs, ask.ids = 0, ()
        for known in self.limits.classes:
            known.rest.end()
            known.stragglers.clear()
            known.floors = _floors()
        self._exchange.floors = self.limits.classes[0].floors
        ask.limited = Limited(ids=[(self.limits.classes[0], list(ask.ids))] if ask.ids else [])
        self._wire.run(limited.permit(self.desk, ask), send)

    @property
    def known_limits(self) -> dict[str, int]:
        """The limits that it knows of, by task, or "" for the queue; "rate" for one that counts all tasks, or one."""
        limits = self.limits
        own = {known.name: known.most for known in limits.classes if known.name is not None and known.most is not None}
        rates = {"rate" if number == 0 else "rate t1": RATE for number, known in enumerate(limits.classes) if known.rates}
        rates = {"rate": RATE} if "rate" in rates else rates
        return {**rates, **own} if limits.queue_most is None else {"": limits.queue_most, **rates, **own}

    def exchange(self, conn: Connection, order: Order) -> list[list[Row]]:
        """Send the statements; runs in the client's thread."""
        answers: list[list[Row]] = []
        for step in order.steps:
            if step.into is order.got.members and order.ask.turn is not None:
                order.scene.seen = [Member(*row) for row in conn.execute(SEE)]
            with conn.cursor(binary=step.token is not None) as cursor:
                cursor.execute(self._exchange.sql[step.block], step.params, prepare=True)
                answers.append(cursor.fetchall() if step.into is not None else [])
        return answers

    def effect(self, order: Order) -> Effect:
        """What an exchange makes true with its commit."""
        known, counted = self.known_limits, list[dict[str, int]]()
        dropped: dict[int, set[int]] = {}  # leases by step: those that were empty when the statement looked, not at the commit

        def happen(model: Model) -> None:
            first = not dropped
            for number, (step, rows) in enumerate(zip(order.steps, order.answers, strict=True)):
                tokens = self._carry_out(model, order, step, rows, first=first)
                if first:
                    used = {j.token for j in model.jobs.values()}
                    dropped[number] = tokens if step.block == "drop_leases" else {t for t in tokens if t not in used}
                if step.token is not None:
                    model.within_limits({r[TASK] for r in rows if r[ID] is not None}, known, counted)
                model.drop(dropped[number], leave=step.block != "drop_leases")  # the turn leaves groups that ended here

        return happen

    def _carry_out(self, model: Model, order: Order, step: Step, rows: list[Row], *, first: bool) -> set[int]:
        """One statement; returns the tokens whose leases it removes if they are empty."""
        params = step.params
        if order.ask.turn is not None and step.into is order.got.members:
            turned(model, self.name, params["token"], order.ask.turn, rows, order.scene, first=first)
        elif step.token is not None:
            if step.block == "claim_limited":
                *rows, last = rows
                must(not rows or last[EXTRA]["state"] is None, f"a claim took {rows} though it says {last[EXTRA]}")
            made = [(r[ID], r[2], int(json.loads(r[PAYLOAD])["n"]), r[MARK]) for r in rows]
            model.claim(step.token, self.name, made, suspect=order.ask.suspect and step.into is order.got.suspects, grouped=False)
        elif step.block == "drop_leases":
            return set(params["tokens"])
        elif step.into is order.got.finished:
            tokens = params["tokens"] if "tokens" in params else [params["token"]] * len(params["ids"])
            model.finish(zip(params["ids"], tokens, strict=True), sum(n for _, n in rows))
        elif step.into is order.got.settled:
            keyed = step.block == "finish_keyed"
            sent = [o for o in order.ask.flush.outcomes if ("keyed" in o) == keyed]
            settle(model, sent, rows, first=first)
            alone = keyed and all(result != "busy" for _, result in rows)  # else it went through settle_v1 after all
            return set(params["emptied"]) if alone else {o["token"] for o in sent}
        return set()

    # ---- what the process gets to know -------------------------------------------------------------------------------
    def answered(self) -> None:
        """The commit was confirmed."""
        order, self.order = self._sent(), None
        got, turn = order.got, order.ask.turn
        for step, rows in zip(order.steps, order.answers, strict=True):
            if step.into is not None:
                step.into.extend(rows)
        got.understand(order.ask)
        for step in order.steps:
            if step.token is not None:
                self.outbox.took(step.token, len(step.into or ()))
        results.take(self.lanes, self.outbox, order.ask.flush, got)
        limited.unstarted(self.desk, order.ask, got)
        if turn is not None and got.turned is not None:
            self.turns.turned(turn, got.turned, boot(), members=len(got.members))
            self._cursor = FIRST if turn.suspect else tuple(got.turned["after"])
        intake.order(got.rows)
        intake.take(self.desk, got)
        self._count_units(order)
        limited.received(self.desk, order.ask, got)

    def _count_units(self, order: Order) -> None:
        rated = {task for known in self.limits.classes for task in known.tasks if known.rates}
        for step in order.steps:
            if step.token is not None and order.ask.limited is not None:
                self.rated |= {(row[ID], row[TOKEN]) for row in step.into or () if row[TASK] in rated}

    def unanswered(self) -> None:
        """The connection broke: everything or nothing has happened (mend.py)."""
        order, self.order = self._sent(), None
        for step in order.steps:
            if step.token is not None:
                self.outbox.took(step.token, 0)
        self.outbox.restore(order.ask.flush, doubtful=True)
        self.limits.units.in_hand = False
        if order.ask.turn is not None:
            self.lanes.groups.ended = {**order.ask.turn.ended, **self.lanes.groups.ended}

    def _sent(self) -> Order:
        assert self.order is not None
        return self.order

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
        if kind != "success" and row[MARK] & GROUPED:
            follow(self.lanes, row)
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
        hand_back(self.lanes, row)
        return int(row[ID])
