"""One exchange with the database: outcomes of the last batch, the next claim and its lease, in one transaction.

The order of the statements (`Exchange.steps`) is the order of locks everywhere: lease, job, dead letter. A lone pickup is
one bare statement, which saves a third of its time. consumer.py decides what to ask for; floors.py says where scans begin.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.clock import boot
from tailrace.db import AsyncConnection, Jsonb, settings_of
from tailrace_worker.ask import Ask, Got
from tailrace_worker.finish import Flush, Outbox
from tailrace_worker.floors import Floors
from tailrace_worker.rows import Row
from tailrace_worker.work import PINNED, Work

if TYPE_CHECKING:
    from tailrace_worker.classes import Limited


def draw_token() -> int:
    """A new fencing token: 63 random bits, so that a failover cannot give one out twice (engine rule 7)."""
    return secrets.randbits(63) or 1


@dataclass(frozen=True)
class Step:
    """One statement of an exchange.

    Attributes:
        block: Which one.
        params: Its parameters.
        into: The list of `Got` that takes its rows; None when nobody reads them.
        token: Of the lease that it writes, if it takes jobs; then `into` has these jobs.
    """

    block: str
    params: dict[str, Any]
    into: list[Any] | None = None
    token: int | None = None


class Exchange:
    """The statements of one queue on the work connection.

    Args:
        work: The connection, and the database's blocks.
        queue: The queue's name.
        worker: This worker's id.
        tasks: The tasks it can run.
        context_tasks: Those among them whose rows carry what a context shows.
        strict_tasks: Those among them whose groups wait for a member that fails.
        floors: Where the scans begin.
        outbox: Told of each token that is on its way.
        draw: Gives the tokens.

    Attributes:
        sql: The text of each block by its name.
    """

    def __init__(
        self,
        work: Work,
        *,
        queue: str,
        worker: str,
        tasks: Sequence[str],
        context_tasks: Sequence[str],
        strict_tasks: Sequence[str],
        floors: Floors,
        outbox: Outbox,
        draw: Callable[[], int] = draw_token,
    ) -> None:
        self.work, self.queue, self.worker, self.floors, self.outbox = work, queue, worker, floors, outbox
        self._common: dict[str, Any] = {
            "queue": queue,
            "worker": worker,
            "tasks": list(tasks),
            "context_tasks": list(context_tasks),
        }
        self.know(0)
        self._strict = list(strict_tasks)
        self._draw, self._sent = draw, list[str]()
        blocks = work.database.blocks
        self.sql = {
            name: blocks[f"{stem}.{name}"]
            for stem, names in {
                "claim": ("claim_batch", "claim_ids", "claim_suspect", "turn_groups", "claim_limited", "turn_limited"),
                "finish": ("drop_leases", "finish_batch", "finish_mixed", "finish_kept", "finish_keyed", "settle", "tasks_of"),
                "floors": ("look", "gaps"),
                "session": ("set_local",),
            }.items()
            for name in names
        }

    def know(self, limits: int) -> None:
        """Claim by this version of the queue's limits from now on."""
        self._common["limits"] = limits

    async def run(self, ask: Ask, now: float) -> Got:
        """Do it in one transaction.

        Args:
            ask: What to do.
            now: This process's clock in seconds.

        Raises:
            OperationalError: The server is away, or a statement could not have its lock in time; nothing was changed, or (when
                the answer was lost) everything was.
        """
        conn, began, ok = self.work.conn, boot(), False
        self._sent = []
        got = Got()
        steps = self.steps(ask, now, got)
        if not steps:  # a limit has taken the claim out of it
            return got
        try:
            # one claim is one statement; a pooled session needs a transaction for its settings
            alone = len(steps) == 1 and steps[0].block in ("claim_batch", "claim_limited") and not self.work.pooled
            await (self._pickup(conn, steps[0]) if alone else self._transaction(conn, steps))
            got.understand(ask)
            ok = True
        finally:
            for step in steps:
                if step.token is not None:
                    self.outbox.took(step.token, len(step.into or ()))
            self.work.operations.note(self._sent, boot() - began, ok=ok)
        return got

    async def tasks_of(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the tasks of jobs that are still there, by id.

        Args:
            ids: Jobs of this worker.

        Raises:
            OperationalError: The server is away.
        """
        async with self.work.settled() as conn:
            answer = await conn.execute(self.sql["tasks_of"], {"ids": list(ids)})
        return dict(await answer.fetchall())

    async def _pickup(self, conn: AsyncConnection, step: Step) -> None:
        self.read(step, await (await self._send(conn, step)).fetchall())

    async def _transaction(self, conn: AsyncConnection, steps: Sequence[Step]) -> None:
        async with conn.pipeline(), conn.transaction():
            if self.work.pooled:
                await self._send(conn, Step("set_local", settings_of(PINNED)))
            cursors = [await self._send(conn, step) for step in steps]
        for step, cursor in zip(steps, cursors, strict=True):
            if step.into is not None:
                self.read(step, await cursor.fetchall())

    async def _send(self, conn: AsyncConnection, step: Step) -> Any:
        self._sent.append(step.block)
        cursor = conn.cursor(binary=step.token is not None)
        return await cursor.execute(self.sql[step.block], step.params, prepare=True)

    # ---- the statements in their order -------------------------------------------------------------------------------
    def steps(self, ask: Ask, now: float, got: Got) -> list[Step]:
        """Everything that an exchange sends, in its order, with tokens that are expected from now on.

        The state machine of the tests sends it too, so it plays what is really sent.

        Args:
            ask: What to do.
            now: This process's clock in seconds.
            got: Takes the rows.
        """
        steps = self._writes(ask.flush, got)
        limited = ask.by_class
        steps += self._claims(ask, now, got) if limited is None else self._limited_claims(ask, limited, got)
        if ask.look:
            steps.append(Step("look", {**self._common, "priorities": self.floors.known}, got.looked))
            steps.append(Step("gaps", {**self._common, **self.floors.gaps()}, got.gaps))
        return steps

    def _claims(self, ask: Ask, now: float, got: Got) -> list[Step]:
        steps = []
        if ask.turn is not None:
            steps.append(self._claim("turn_groups", got.members, {**ask.turn.params(), "strict_tasks": self._strict}))
        if ask.suspect:
            steps.append(self._claim("claim_suspect", got.suspects, {}))
        if ask.ids:
            steps.append(self._claim("claim_ids", got.by_id, {"ids": list(ask.ids), "n": ask.jobs}))
        elif ask.jobs:
            steps.append(self._claim("claim_batch", got.rows, {**self.floors.starts(now), "n": ask.jobs}))
        return steps

    def _limited_claims(self, ask: Ask, limited: Limited, got: Got) -> list[Step]:
        steps = []
        if ask.turn is not None:
            turn = {**ask.turn.params(), "strict_tasks": self._strict, **limited.params, "shares": limited.members}
            steps.append(self._claim("turn_limited", got.members, turn))
        if ask.claims:
            more = {"shares": limited.shares, "n": ask.most, "ids": list(ask.ids), "suspect": ask.suspect}
            steps.append(self._claim("claim_limited", got.claimed_by(ask), {**limited.params, **more}))
        return steps

    def _claim(self, block: str, into: list[Row], params: dict[str, Any]) -> Step:
        token = self._draw()
        self.outbox.expected.add(token)
        return Step(block, {**self._common, **params, "token": token}, into, token)

    def _writes(self, flush: Flush, got: Got) -> list[Step]:
        steps = [Step("drop_leases", {"tokens": flush.leases})] if flush.leases and flush.done else []
        if len(flush.done) > 2 or (flush.done and self.outbox.history):
            ids = [i for batch in flush.done.values() for i in batch]
            tokens = [t for t, batch in flush.done.items() for _ in batch]
            block = "finish_kept" if self.outbox.history else "finish_mixed"
            steps.append(Step(block, {"queue": self.queue, "ids": ids, "tokens": tokens}, got.finished))
        else:
            for token, batch in flush.done.items():
                steps.append(Step("finish_batch", {"queue": self.queue, "ids": batch, "token": token}, got.finished))
        keyed = [o for o in flush.outcomes if "keyed" in o]
        if keyed:
            params = {"ids": [o["id"] for o in keyed], "tokens": [o["token"] for o in keyed], "emptied": list(flush.emptied)}
            steps.append(Step("finish_keyed", {"worker": self.worker, **params}, got.settled))
        others = [o for o in flush.outcomes if "keyed" not in o] if keyed else flush.outcomes
        if others:
            steps.append(Step("settle", {"worker": self.worker, "outcomes": Jsonb(others)}, got.settled))
        return steps

    @staticmethod
    def read(step: Step, rows: Sequence[Row]) -> None:
        """Take the rows of a statement."""
        if step.into is not None:
            step.into.extend(rows)
