"""A worker process without its event loop: the real outbox, the real news of a heartbeat, the real SQL blocks.

Only the loop, the slots and the wires are played here: the machine decides when a handler starts, how it ends, what is sent
together, and what the process gets to know of it.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from psycopg.types.json import Jsonb

from tailrace_worker import results
from tailrace_worker.beats import News
from tailrace_worker.claim import EXPIRED, ID, MARK, PAYLOAD, REQUEUED, SPENT, TASK, TOKEN, Got, Row
from tailrace_worker.clock import boot
from tailrace_worker.failures import outcome
from tailrace_worker.finish import BUSY_SECONDS, Flush, Outbox
from tailrace_worker.groups import Groups
from tailrace_worker.lease import Beat
from tests.machine.model import MAX_INTERRUPTIONS, Effect, Model, must
from tests.rig.servers import Connection

QUEUE = "q"
TASKS = ("t1", "t2")
PRIORITIES = (0, 5)
_NEVER = float("-inf")
_tokens = itertools.count(9_000_000_000_000_000_001)


@dataclass
class Run:
    """A handler that runs; it stands in for a slot of the worker."""

    row: Row | None
    told: str | None = None

    def tell(self, reason: str) -> None:
        """What a heartbeat has to say to this run."""
        self.told = self.told or reason


@dataclass
class Answer:
    """What one exchange got back, and what it was about.

    Attributes:
        got: As the worker reads it.
        claims: (token, rows, whether it was a suspect) of each claim.
        finishes: ((id, token)…, how many the database counted) of each finish.
    """

    got: Got = field(default_factory=Got)
    claims: list[tuple[int, list[Row], bool]] = field(default_factory=list)
    finishes: list[tuple[list[tuple[int, int]], int]] = field(default_factory=list)


@dataclass
class Order:
    """What an exchange is to do, as claim.Ask has it."""

    flush: Flush
    jobs: int
    suspect: bool
    ids: list[int]
    tokens: list[int]

    @property
    def jobs_written(self) -> set[int]:
        """Jobs whose outcome it writes."""
        return {i for ids in self.flush.done.values() for i in ids} | {o["id"] for o in self.flush.outcomes}

    @property
    def said(self) -> str:
        """In words."""
        done = [f"success of {ident}" for ids in self.flush.done.values() for ident in ids]
        other = [f"{o['kind']} of {o['id']}" for o in self.flush.outcomes]
        asks = [f"claims {self.jobs}"] * bool(self.jobs) + ["claims a suspect"] * self.suspect
        asks += [f"claims {self.ids}"] * bool(self.ids)
        return ", ".join(["again:"] * self.flush.doubtful + done + other + asks) or "nothing"


class Process:
    """One worker process.

    Args:
        name: Its worker id.
        blocks: The SQL blocks; a test may spoil some of them.
    """

    def __init__(self, name: str, blocks: dict[str, str]) -> None:
        self.name, self.blocks = name, blocks
        self.outbox = Outbox()
        self.order: Order | None = None
        lanes = SimpleNamespace(buffer=deque(), slots=[], tasks={}, queue=QUEUE, fenced=0, groups=Groups(self.outbox))
        self.lanes: Any = lanes
        self.desk: Any = SimpleNamespace(
            queue=QUEUE, outbox=self.outbox, lanes=lanes, rescan=SimpleNamespace(workers=1), turns=SimpleNamespace(workers=1),
            pace=SimpleNamespace(prefetch=True), limits=SimpleNamespace(version=0, ahead=True),
            want=SimpleNamespace(set=lambda: None), claiming=True, max_interruptions=None, discard=False,
        )  # fmt: skip
        gate: Any = SimpleNamespace(confirm=lambda until: None)
        desk: Any = self.desk
        self.news = News([desk], gate, lambda lease: None)

    # ---- an exchange -------------------------------------------------------------------------------------------------
    def prepare(self, *, jobs: int, suspect: bool, ids: list[int]) -> Order:
        """Take what is to be written, and draw the tokens of the claims."""
        flush = self.outbox.take(boot() + 2 * BUSY_SECONDS)  # later than any outcome waits that was put off
        results.ruled(self.desk, flush.outcomes)
        tokens = [next(_tokens) for _ in range(bool(jobs) + suspect + bool(ids))]
        self.outbox.expected.update(tokens)
        self.order = Order(flush, jobs, suspect, ids, tokens)
        return self.order

    def exchange(self, conn: Connection, order: Order) -> Answer:
        """The statements of claim.Exchange in its order; runs in the client's thread."""
        answer, tokens = Answer(), iter(order.tokens)
        self._write(conn, order.flush, answer)
        common = {"queue": QUEUE, "worker": self.name, "tasks": list(TASKS), "context_tasks": [], "limits": 0}
        if order.suspect:
            answer.got.suspects = self._claim(conn, "claim_suspect", {**common, "token": next(tokens)}, answer)
        if order.ids:
            params = {**common, "token": next(tokens), "ids": order.ids, "n": len(order.ids)}
            answer.got.by_id = self._claim(conn, "claim_ids", params, answer)
        if order.jobs:
            floors = {"priorities": list(PRIORITIES)[::-1], "run_ats": [_NEVER] * len(PRIORITIES), "ids": [0] * len(PRIORITIES)}
            params = {**common, **floors, "token": next(tokens), "n": order.jobs}
            answer.got.rows = self._claim(conn, "claim_batch", params, answer)
        return answer

    def _claim(self, conn: Connection, name: str, params: dict[str, Any], answer: Answer) -> list[Row]:
        with conn.cursor(binary=True) as cursor:
            rows: list[Row] = cursor.execute(self.blocks[f"claim.{name}"], params, prepare=True).fetchall()
        answer.claims.append((params["token"], rows, name == "claim_suspect"))
        return rows

    def _write(self, conn: Connection, flush: Flush, answer: Answer) -> None:
        if flush.leases and flush.done:
            conn.execute(self.blocks["finish.drop_leases"], {"tokens": flush.leases}, prepare=True)
        batches = [[(i, t) for i in ids] for t, ids in flush.done.items()]
        if len(batches) > 2:
            batches = [[pair for batch in batches for pair in batch]]
        for pairs in batches:
            ids, tokens = [i for i, _ in pairs], [t for _, t in pairs]
            name = "finish_mixed" if len(set(tokens)) > 1 else "finish_batch"
            params = {"queue": QUEUE, "ids": ids, "tokens": tokens, "token": tokens[0]}
            rows = conn.execute(self.blocks[f"finish.{name}"], params, prepare=True).fetchall()
            answer.got.finished += rows
            answer.finishes.append((pairs, sum(n for _, n in rows)))
        if flush.outcomes:
            params = {"worker": self.name, "outcomes": Jsonb(flush.outcomes)}
            answer.got.settled = conn.execute(self.blocks["finish.settle"], params, prepare=True).fetchall()

    def effect(self, order: Order, answer: Answer) -> Effect:
        """What an exchange makes true with its commit."""
        sent = {(o["id"], o["token"]): o for o in order.flush.outcomes}
        by_id: dict[int, list[dict[str, Any]]] = {}
        for outcome_ in sent.values():
            by_id.setdefault(outcome_["id"], []).append(outcome_)

        dropped: list[set[int]] = []  # what was empty when the statement looked, not at the commit

        def happen(model: Model) -> None:
            for pairs, told in answer.finishes:
                model.finish(pairs, told)
            tokens = self._settle(model, by_id, answer, first=not dropped)
            if not dropped:
                dropped.append({t for t in tokens if not any(j.token == t for j in model.jobs.values())})
            model.drop(dropped[0])
            if order.flush.done:
                model.drop(order.flush.leases)
            for token, rows, suspect in answer.claims:
                made = [(r[ID], r[2], int(json.loads(r[PAYLOAD])["n"]), r[MARK]) for r in rows]
                model.claim(token, self.name, made, suspect=suspect)

        return happen

    def _settle(self, model: Model, by_id: dict[int, list[dict[str, Any]]], answer: Answer, *, first: bool) -> set[int]:
        told: dict[int, list[str]] = {}
        for ident, result in answer.got.settled:
            told.setdefault(ident, []).append(result)
        for ident, outcomes in by_id.items():
            answers = sorted(told.get(ident, []), key=lambda r: r == "fenced")
            must(len(answers) == len(outcomes), f"job {ident}: {outcomes} got {answers}")
            # two outcomes of one job have two tokens, of which one at most holds: that one comes first
            for one, result in zip(sorted(outcomes, key=lambda o: not model.owned(ident, o["token"])), answers, strict=True):
                model.settle(one, result, first=first)
        return {one["token"] for outcomes in by_id.values() for one in outcomes}

    # ---- what the process gets to know -------------------------------------------------------------------------------
    def answered(self, answer: Answer) -> None:
        """The commit was confirmed."""
        order, self.order = self._sent(), None
        for token, rows, _ in answer.claims:
            self.outbox.took(token, len(rows))
            for row in rows:
                self._take(row)
        results.take(self.lanes, self.outbox, order.flush, answer.got)

    def unanswered(self) -> None:
        """The connection broke: everything or nothing has happened (mend.py)."""
        order, self.order = self._sent(), None
        for token in order.tokens:
            self.outbox.took(token, 0)
        self.outbox.restore(order.flush, doubtful=True)

    def _sent(self) -> Order:
        assert self.order is not None
        return self.order

    def _take(self, row: Row) -> None:
        if row[MARK] & SPENT:
            self.outbox.add(outcome(row[ID], row[TOKEN], "exhausted", task=row[TASK]), urgent=True)
        elif row[MARK] & EXPIRED:
            self.outbox.add(outcome(row[ID], row[TOKEN], "expired", task=row[TASK]), urgent=True)
        else:
            self.lanes.buffer.append(row)

    def beaten(self, told: dict[str, Any], held: set[int]) -> None:
        """A heartbeat was answered; `held` are the tokens that were held when it was sent."""
        missing, cancel = [int(t) for t in told["missing"]], [int(j) for j in told["cancel"]]
        beat = Beat(0, unknown=told["unknown"], missing=missing, cancel=cancel, state=told["state"], queues=told["queues"])
        self.news.apply(beat, held)

    # ---- handlers ----------------------------------------------------------------------------------------------------
    def start(self, n: int) -> Run:
        """Call the handler of a buffered job."""
        row = self.lanes.buffer[n % len(self.lanes.buffer)]
        self.lanes.buffer.remove(row)
        run = Run(row)
        self.lanes.slots.append(run)
        return run

    def end(self, run: Run, kind: str) -> str:
        """A handler has ended in some way; returns what the worker makes of it."""
        self.lanes.slots.remove(run)
        row = run.row
        assert row is not None
        if run.told == "lease_lost":
            return "nothing, for its lease is lost"
        if run.told == "cancel" and kind != "success":
            kind = "cancelled"
        if kind == "success" and not (row[MARK] & REQUEUED or run.told):
            self.outbox.done.setdefault(row[TOKEN], []).append(row[ID])
            self.outbox.count += 1
        else:
            more: dict[str, Any] = {"max_interruptions": MAX_INTERRUPTIONS} if kind == "interrupted" else {}
            self.outbox.add(outcome(row[ID], row[TOKEN], kind, delay=60.0 if kind == "retry_after" else 0.0, **more))
        return kind

    def give_back(self, n: int) -> int:
        """Hand back a job that was not started; returns its id."""
        row = self.lanes.buffer[n % len(self.lanes.buffer)]
        self.lanes.buffer.remove(row)
        self.outbox.add(outcome(row[ID], row[TOKEN], "handback"))
        return int(row[ID])
