"""Two thin drivers of enqueueing: one that waits, one that is awaited.

Each sends prepared jobs on the caller's connection, in the caller's transaction, or on the process's own pool, where a call
is a transaction. Neighbours: `statements` (what is sent), `words` (what people type).
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.db import AsyncConnection, Connection, Database, DatabaseError, arun, run, translate
from tailrace.enqueue.metrics import count, traceparent
from tailrace.enqueue.new_job import Receipt
from tailrace.enqueue.own_key import settled
from tailrace.enqueue.statements import PreparedJob, chunks, enqueue_chunk, enqueue_one, order_of


class SyncSender:
    """Sends and waits.

    Args:
        database: Whose schema it is, and whose pool is used without a connection.
        namespace: The label of the metric.
        conn: The caller's connection; None takes one of the pool.
    """

    def __init__(self, database: Database, namespace: str, conn: Connection | None = None) -> None:
        self._database = database
        self._namespace = namespace
        self._conn = conn

    def one(self, job: PreparedJob) -> Receipt:
        """Store one job."""
        statement = enqueue_one(self._database.blocks, settled(job), trace=traceparent())
        if self._conn is not None:
            receipt = run(self._conn, statement)
        else:
            try:
                with self._database.pool().connection() as conn:
                    receipt = run(conn, statement)
            except DatabaseError as exc:
                raise _meant(exc, self._database) from exc
        count(self._namespace, (job,), (receipt,))
        return receipt

    def many(self, jobs: Sequence[PreparedJob]) -> list[Receipt]:
        """Store many jobs; all or none, on the pool in a transaction of its own."""
        if not jobs:
            return []
        if self._conn is not None:
            receipts = self._send(self._conn, jobs)
        else:
            try:
                with self._database.pool().connection() as conn, conn.transaction():
                    receipts = self._send(conn, jobs)
            except DatabaseError as exc:
                raise _meant(exc, self._database) from exc
        count(self._namespace, jobs, receipts)
        return receipts

    def _send(self, conn: Connection, jobs: Sequence[PreparedJob]) -> list[Receipt]:
        trace = traceparent()
        found: dict[int, Receipt] = {}
        for piece in chunks(jobs, order_of(jobs)):
            statement = enqueue_chunk(self._database.blocks, [settled(jobs[n]) for n in piece], trace=trace)
            found.update(zip(piece, run(conn, statement), strict=True))
        return [found[n] for n in range(len(jobs))]


class AsyncSender:
    """Sends and is awaited.

    Args:
        database: Whose schema it is, and whose pool is used without a connection.
        namespace: The label of the metric.
        conn: The caller's connection; None takes one of the running loop's pool.
    """

    def __init__(self, database: Database, namespace: str, conn: AsyncConnection | None = None) -> None:
        self._database = database
        self._namespace = namespace
        self._conn = conn

    async def one(self, job: PreparedJob) -> Receipt:
        """Store one job."""
        statement = enqueue_one(self._database.blocks, settled(job), trace=traceparent())
        if self._conn is not None:
            receipt = await arun(self._conn, statement)
        else:
            pool = await self._database.apool()
            try:
                async with pool.connection() as conn:
                    receipt = await arun(conn, statement)
            except DatabaseError as exc:
                raise _meant(exc, self._database) from exc
        count(self._namespace, (job,), (receipt,))
        return receipt

    async def many(self, jobs: Sequence[PreparedJob]) -> list[Receipt]:
        """Store many jobs; all or none, on the pool in a transaction of its own."""
        if not jobs:
            return []
        if self._conn is not None:
            receipts = await self._send(self._conn, jobs)
        else:
            pool = await self._database.apool()
            try:
                async with pool.connection() as conn, conn.transaction():
                    receipts = await self._send(conn, jobs)
            except DatabaseError as exc:
                raise _meant(exc, self._database) from exc
        count(self._namespace, jobs, receipts)
        return receipts

    async def _send(self, conn: AsyncConnection, jobs: Sequence[PreparedJob]) -> list[Receipt]:
        trace = traceparent()
        found: dict[int, Receipt] = {}
        for piece in chunks(jobs, order_of(jobs)):
            statement = enqueue_chunk(self._database.blocks, [settled(jobs[n]) for n in piece], trace=trace)
            found.update(zip(piece, await arun(conn, statement), strict=True))
        return [found[n] for n in range(len(jobs))]


def _meant(exc: DatabaseError, database: Database) -> BaseException:
    """What a failure of the pool or of the commit means; the address is worked out only then."""
    return translate(exc, address=database.address)
