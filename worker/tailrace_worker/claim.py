"""One exchange with the database: outcomes of the last batch, the next claim and its lease, in one transaction.

The order of the statements is the order of locks everywhere: lease, job, dead letter. A lone pickup is one bare
statement, which saves a third of its time. consumer.py decides what to ask for; floors.py says where the scans begin.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailrace.db import AsyncConnection, Jsonb, settings_of
from tailrace_worker.clock import boot
from tailrace_worker.finish import Flush, Outbox, Outcome
from tailrace_worker.floors import Floors
from tailrace_worker.work import PINNED, Work

if TYPE_CHECKING:
    from tailrace_worker.classes import Limited
    from tailrace_worker.turns import Turn

ID, TOKEN, ATTEMPT, TASK, PAYLOAD, TIMEOUT, PRIORITY, MARK, RUN_AT, EXTRA = range(10)
"""Columns of a claimed row, as claim.sql returns them."""

GROUP, TENANT = 10, 11
"""Further columns of a member of a group."""

SPENT, EXPIRED, REQUEUED, LAST, KEYED, GROUPED = 1, 2, 4, 8, 16, 32
"""Bits of MARK: exhausted before the claim, past expires_at, requeued from the dead letters, on its last attempt, has a key,
in a group."""

Row = tuple[Any, ...]


def draw_token() -> int:
    """A new fencing token: 63 random bits, so that a failover cannot give one out twice (engine rule 7)."""
    return secrets.randbits(63) or 1


@dataclass
class Ask:
    """What one exchange should do.

    Attributes:
        flush: Outcomes to write.
        jobs: How many jobs to claim, of `ids` where there are any, else above the floors.
        ids: Jobs to choose from: found below the floors, and perhaps taken or locked by others meanwhile.
        suspect: Claim one job that was lost before.
        look: Look past the floors too: unknown priorities, bounded slices, what falls due next.
        turn: What to do about groups.
        limited: What it may take of each class of tasks, in a queue with limits.
    """

    flush: Flush
    jobs: int = 0
    ids: Sequence[int] = ()
    suspect: bool = False
    look: bool = False
    turn: Turn | None = None
    limited: Limited | None = None

    @property
    def claims(self) -> bool:
        """Whether it takes anything that has no group."""
        return bool(self.jobs or self.suspect)

    @property
    def by_class(self) -> Limited | None:
        """What a limited claim may take of each class; None where the claim is any other's."""
        return None if self.limited is None or self.limited.plain else self.limited

    @property
    def most(self) -> int:
        """How many jobs without a group a limited claim takes at most: one that was lost before comes alone."""
        return 1 if self.suspect else self.jobs

    @property
    def scans(self) -> bool:
        """Whether it claims above the floors, so that nothing found there means that nothing is due."""
        return bool(self.jobs and not self.ids)


@dataclass
class Got:
    """What came back.

    Attributes:
        rows: Jobs from above the floors.
        by_id: Jobs that were asked for by id.
        suspects: The job that was lost before, if one was free.
        finished: (task, n) of each group of removed jobs.
        settled: (id, result) of settle_v1 and finish_keyed_v1.
        looked: Rows of `look`.
        gaps: Rows of `gaps`.
        members: Members of groups.
        turned: What the turn says of itself.
        told: What a limited claim says of itself.
    """

    rows: list[Row] = field(default_factory=list)
    by_id: list[Row] = field(default_factory=list)
    suspects: list[Row] = field(default_factory=list)
    finished: list[tuple[str, int]] = field(default_factory=list)
    settled: list[tuple[int, str]] = field(default_factory=list)
    looked: list[Row] = field(default_factory=list)
    gaps: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    turned: dict[str, Any] | None = None
    told: dict[str, Any] | None = None

    @property
    def jobs(self) -> int:
        """Jobs taken that have no group."""
        return len(self.rows) + len(self.by_id) + len(self.suspects)

    def claimed_by(self, ask: Ask) -> list[Row]:
        """Where the rows of a limited claim belong: it is one statement for all kinds."""
        return self.suspects if ask.suspect else self.by_id if ask.ids else self.rows

    def understand(self, ask: Ask) -> None:
        """Take the last rows out that say something of a turn, or of a limited claim."""
        if self.members:
            self.turned = self.members.pop()[EXTRA]
        if ask.by_class is not None and ask.claims:
            self.told = self.claimed_by(ask).pop()[EXTRA]


class Exchange:
    """The statements of one queue on the work connection."""

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
        self._sent: list[str] = []
        blocks = work.database.blocks
        self._sql = {
            name: blocks[f"{stem}.{name}"]
            for stem, names in {
                "claim": ("claim_batch", "claim_ids", "claim_suspect", "turn_groups", "claim_limited", "turn_limited"),
                "finish": ("drop_leases", "finish_batch", "finish_mixed", "finish_keyed", "settle", "save"),
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
        try:
            more = ask.flush.size or ask.flush.saved or ask.ids or ask.suspect or ask.look or ask.turn
            if not (more or ask.jobs):  # a limit has taken the claim out of it
                return Got()
            alone = not (more or self.work.pooled)  # a pooled session needs a transaction for its settings
            got = await (self._pickup(conn, ask, now) if ask.jobs and alone else self._transaction(conn, ask, now))
            ok = True
        finally:
            self.work.operations.note(self._sent, boot() - began, ok=ok)
        return got

    async def _pickup(self, conn: AsyncConnection, ask: Ask, now: float) -> Got:
        got, token = Got(), self._expect()
        ((rows, name, params),) = self._wanted(ask, got, now)
        try:
            rows.extend(await (await self._by(conn, name, token, params)).fetchall())
            got.understand(ask)
        finally:
            self.outbox.took(token, len(rows))
        return got

    async def _transaction(self, conn: AsyncConnection, ask: Ask, now: float) -> Got:
        got = Got()
        readers: list[tuple[list[Any], Any]] = []
        claims: list[tuple[int, list[Row]]] = []
        try:
            async with conn.pipeline(), conn.transaction():
                if self.work.pooled:
                    await self._send(conn, "set_local", settings_of(PINNED))
                await self._write(conn, ask.flush, got, readers)
                for rows, name, params in self._wanted(ask, got, now):
                    token = self._expect()
                    claims.append((token, rows))
                    readers.append((rows, await self._by(conn, name, token, params)))
                if ask.look:
                    known = {**self._common, "priorities": self.floors.known}
                    readers.append((got.looked, await self._send(conn, "look", known)))
                    gaps = {**self._common, **self.floors.gaps()}
                    readers.append((got.gaps, await self._send(conn, "gaps", gaps)))
            for rows, cursor in readers:
                rows.extend(await cursor.fetchall())
            got.understand(ask)
        finally:
            for token, rows in claims:
                self.outbox.took(token, len(rows))
        return got

    def _wanted(self, ask: Ask, got: Got, now: float) -> list[tuple[list[Row], str, dict[str, Any]]]:
        """What an exchange takes: where its rows belong, the statement and its parameters."""
        wanted: list[tuple[list[Row], str, dict[str, Any]]] = []
        limited = ask.by_class
        if ask.turn is not None:
            params = {**ask.turn.params(), "strict_tasks": self._strict}
            if limited is None:
                wanted.append((got.members, "turn_groups", params))
            else:
                wanted.append((got.members, "turn_limited", {**params, **limited.params, "shares": limited.members}))
        if limited is not None:
            if ask.claims:
                more = {"shares": limited.shares, "n": ask.most, "ids": list(ask.ids), "suspect": ask.suspect}
                wanted.append((got.claimed_by(ask), "claim_limited", {**limited.params, **more}))
            return wanted
        if ask.suspect:
            wanted.append((got.suspects, "claim_suspect", {}))
        if ask.ids:
            wanted.append((got.by_id, "claim_ids", {"ids": list(ask.ids), "n": ask.jobs}))
        elif ask.jobs:
            wanted.append((got.rows, "claim_batch", {**self.floors.starts(now), "n": ask.jobs}))
        return wanted

    async def _send(self, conn: AsyncConnection, name: str, params: dict[str, Any], *, binary: bool = False) -> Any:
        self._sent.append(name)
        return await conn.cursor(binary=binary).execute(self._sql[name], params, prepare=True)

    def _expect(self) -> int:
        token = draw_token()
        self.outbox.expected.add(token)
        return token

    async def _by(self, conn: AsyncConnection, name: str, token: int, params: dict[str, Any]) -> Any:
        return await self._send(conn, name, {**self._common, **params, "token": token}, binary=True)

    async def _write(self, conn: AsyncConnection, flush: Flush, got: Got, readers: list[tuple[list[Any], Any]]) -> None:
        if flush.leases and flush.done:
            await self._send(conn, "drop_leases", {"tokens": flush.leases})
        for (ident, token), state in flush.saved.items():
            await self._send(conn, "save", {"id": ident, "token": token, "saved": state})
        if len(flush.done) > 2:
            ids = [i for batch in flush.done.values() for i in batch]
            tokens = [t for t, batch in flush.done.items() for _ in batch]
            mixed = {"queue": self.queue, "ids": ids, "tokens": tokens}
            readers.append((got.finished, await self._send(conn, "finish_mixed", mixed)))
        else:
            for token, batch in flush.done.items():
                params = {"queue": self.queue, "ids": batch, "token": token}
                readers.append((got.finished, await self._send(conn, "finish_batch", params)))
        keyed = [o for o in flush.outcomes if "keyed" in o]
        if keyed:
            readers.append((got.settled, await self._finish_keyed(conn, keyed, flush.emptied)))
        if len(keyed) < len(flush.outcomes):
            others = [o for o in flush.outcomes if "keyed" not in o] if keyed else flush.outcomes
            readers.append((got.settled, await self._settle(conn, others)))

    async def _finish_keyed(self, conn: AsyncConnection, keyed: Sequence[Outcome], emptied: Sequence[int]) -> Any:
        ids, tokens = [o["id"] for o in keyed], [o["token"] for o in keyed]
        params = {"worker": self.worker, "ids": ids, "tokens": tokens, "emptied": list(emptied)}
        return await self._send(conn, "finish_keyed", params)

    async def _settle(self, conn: AsyncConnection, outcomes: Sequence[Outcome]) -> Any:
        params = {"worker": self.worker, "outcomes": Jsonb(outcomes)}
        return await self._send(conn, "settle", params)
