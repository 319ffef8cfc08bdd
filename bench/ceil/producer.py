"""The reference producer: one statement a job, or one array of payloads a transaction.

Driven by `bench.producer`; the table and the statements are in `statements.sql`.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from bench import statements

SQL = {name: text.encode() for name, text in statements.load(Path(__file__).with_name("statements.sql")).items()}


class CeilProducer:
    """Enqueues into the reference's table over its own connections."""

    def __init__(self) -> None:
        self._connections: list[psycopg.AsyncConnection[tuple[Any, ...]]] = []

    async def connect(self, dsn: str, number: int) -> None:
        """Open `number` autocommit connections."""
        self._connections = [await psycopg.AsyncConnection.connect(dsn, autocommit=True) for _ in range(number)]

    async def enqueue(self, lane: int, seq: int) -> None:
        """Enqueue one job in a transaction of its own on connection `lane`."""
        await self._connections[lane].execute(SQL["enqueue"], {"payload": json.dumps({"seq": seq})}, prepare=True)

    async def enqueue_open(self, lane: int, seq: int, seconds: float) -> None:
        """Enqueue one job and keep the transaction open for `seconds` before its commit."""
        async with self._connections[lane].transaction():
            await self.enqueue(lane, seq)
            await asyncio.sleep(seconds)

    async def enqueue_many(self, lane: int, seqs: Sequence[int]) -> None:
        """Enqueue a batch in one transaction on connection `lane`."""
        connection = self._connections[lane]
        payloads = [json.dumps({"seq": seq}) for seq in seqs]
        async with connection.pipeline(), connection.transaction():
            cursor = await connection.execute(SQL["enqueue_many"], {"payloads": payloads}, prepare=True)
            await connection.execute(SQL["notify"], prepare=True)
        await cursor.fetchall()

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            await connection.close()
