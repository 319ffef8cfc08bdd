"""Our producer: the library's typed enqueue on the caller's own connections.

Driven by `bench.producer`; the task stands in `bench.app`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg

from bench.app import app, noop


class OurProducer:
    """Enqueues as an application does, with `using(connection)`."""

    def __init__(self) -> None:
        self._connections: list[psycopg.AsyncConnection[tuple[Any, ...]]] = []

    async def connect(self, dsn: str, number: int) -> None:
        """Open `number` autocommit connections."""
        self._connections = [await psycopg.AsyncConnection.connect(dsn, autocommit=True) for _ in range(number)]

    async def enqueue(self, lane: int, seq: int) -> None:
        """Enqueue one job in a transaction of its own on connection `lane`."""
        await noop.using(self._connections[lane]).aenqueue(seq=seq)

    async def enqueue_open(self, lane: int, seq: int, seconds: float) -> None:
        """Enqueue one job and keep the transaction open for `seconds` before its commit."""
        connection = self._connections[lane]
        async with connection.transaction():
            await noop.using(connection).aenqueue(seq=seq)
            await asyncio.sleep(seconds)

    async def enqueue_many(self, lane: int, seqs: Sequence[int]) -> None:
        """Enqueue a batch in one transaction on connection `lane`."""
        connection = self._connections[lane]
        async with connection.transaction():
            await app.using(connection).aenqueue_many(noop.job(seq=seq) for seq in seqs)

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            await connection.close()
