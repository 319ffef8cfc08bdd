"""The reference worker: claims of 1,000 rows, 100 lanes over a deque, one pipeline a step.

Run by the benchmark as ``python -m bench.ceil.worker``; speaks `bench.protocol`.
"""

import asyncio
import gc
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import uvloop

from bench import protocol, statements

SQL = {name: text.encode() for name, text in statements.load(Path(__file__).with_name("statements.sql")).items()}
BATCH = 1000
LANES = 100
RESCAN_SECONDS = 1.0
POLL_SECONDS = 1.0
YIELD_EVERY = 64
"""Jobs that a lane runs before it lets the event loop turn."""

START = (datetime.min.replace(tzinfo=UTC), 0)

Handler = Callable[[dict[str, Any]], Awaitable[None]]
Row = tuple[int, str, dict[str, Any], int, datetime, int]


class Worker:
    """One process that claims and runs; it never stops by itself."""

    def __init__(self, dsn: str, handlers: dict[str, Handler]) -> None:
        self._dsn = dsn
        self._handlers = handlers
        self._id = os.getpid()
        self._jobs: deque[Row] = deque()
        self._finished: list[int] = []
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()
        self._notified = asyncio.Event()
        self._floors: dict[int, tuple[datetime, int]] = {}
        self._rescanned = -RESCAN_SECONDS
        self._idle = False

    async def run(self) -> None:
        """Connect and work until killed."""
        self._work = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        self._listen = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        await self._listen.execute("listen ceil_job")
        self._finishing = self._work.cursor(binary=True)
        self._claiming = self._work.cursor(binary=True)
        async with asyncio.TaskGroup() as group:
            for _ in range(LANES):
                group.create_task(self._lane())
            group.create_task(self._hear())
            group.create_task(self._fetch())

    async def _hear(self) -> None:
        async for _ in self._listen.notifies():
            self._notified.set()

    async def _lane(self) -> None:
        jobs, finished, handlers = self._jobs, self._finished, self._handlers
        ran = 0
        while True:
            if not jobs:
                self._arrived.clear()
                self._wanted.set()
                await self._arrived.wait()
                continue
            job = jobs.popleft()
            await handlers[job[1]](job[2])
            finished.append(job[0])
            ran += 1
            if ran % YIELD_EVERY == 0:
                if len(jobs) < BATCH:
                    self._wanted.set()
                await asyncio.sleep(0)

    async def _rescan(self) -> None:
        """Forget the floors and look which priorities there are."""
        cursor = await self._work.execute(SQL["priorities"], prepare=True)
        self._floors = {int(row[0]): START for row in await cursor.fetchall()} or {0: START}

    async def _step(self) -> tuple[int, int]:
        """Delete what has finished and claim more, in one round trip; returns both numbers: claimed, finished."""
        now = time.monotonic()
        if now - self._rescanned > RESCAN_SECONDS:
            self._rescanned = now
            await self._rescan()
        levels = sorted(self._floors)
        finished = self._finished.copy()
        self._finished.clear()
        floors = [self._floors[level] for level in levels]
        claim = {
            "priorities": levels,
            "run_ats": [floor[0] for floor in floors],
            "ids": [floor[1] for floor in floors],
            "batch": BATCH,
            "worker": self._id,
        }
        async with self._work.pipeline(), self._work.transaction():
            if finished:
                await self._finishing.execute(SQL["finish"], {"ids": finished, "worker": self._id}, prepare=True)
            await self._claiming.execute(SQL["claim"], claim, prepare=True)
        rows: list[Row] = await self._claiming.fetchall()
        self._take(rows)
        return len(rows), len(finished)

    def _take(self, rows: list[Row]) -> None:
        if not rows:
            return
        for row in rows:
            key = (row[4], row[0])
            if key > self._floors.get(row[3], START):
                self._floors[row[3]] = key
        self._jobs.extend(rows)
        self._arrived.set()

    async def _fetch(self) -> None:
        while True:
            self._wanted.clear()
            self._notified.clear()
            claimed, finished = await self._step()
            if claimed:
                await self._tell(idle=False)
                if len(self._jobs) >= BATCH:
                    await self._wanted.wait()
            elif self._finished or finished:
                await asyncio.sleep(0)
            elif not self._idle:
                await self._tell(idle=True)  # then look once more: an enqueue may have missed the row
            else:
                await self._wait()

    async def _tell(self, *, idle: bool) -> None:
        if idle != self._idle:
            self._idle = idle
            await self._work.execute(SQL["idle" if idle else "busy"], {"worker": self._id}, prepare=True)

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self._notified.wait(), POLL_SECONDS)
        except TimeoutError:
            self._rescanned = -RESCAN_SECONDS


async def noop(payload: dict[str, Any]) -> None:
    """Do nothing but be seen."""
    protocol.record(payload["seq"])


async def main() -> None:
    """Wait for GO, then work until killed."""
    reporter = asyncio.create_task(protocol.report())
    gc.freeze()  # as our worker does
    await asyncio.to_thread(protocol.gate)
    await Worker(os.environ["BENCH_DSN"], {"noop": noop}).run()
    reporter.cancel()


if __name__ == "__main__":
    uvloop.run(main())
