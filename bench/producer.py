"""The producer process: one of four ways to enqueue, with either side's client.

Run as ``python -m bench.producer SIDE MODE ARGUMENTS`` (a JSON object); speaks `bench.protocol`.
Modes: ``single`` (one by one over some lanes), ``bulk``, ``paced`` (one each 20 to 40 ms),
``late`` (transactions that stay open after the enqueue, beside a stream of other jobs).
"""

import asyncio
import gc
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import uvloop

from bench import protocol

UNTIMED = -1
"""Sequence number of jobs whose start is not printed."""

BURSTS_PER_SECOND = 50


class Producer(Protocol):
    """What a side's client can do; lanes are connections."""

    async def connect(self, dsn: str, number: int) -> None:
        """Open `number` connections."""

    async def enqueue(self, lane: int, seq: int) -> None:
        """Enqueue one job and commit."""

    async def enqueue_open(self, lane: int, seq: int, seconds: float) -> None:
        """Enqueue one job, keep the transaction open for `seconds`, commit."""

    async def enqueue_many(self, lane: int, seqs: Sequence[int]) -> None:
        """Enqueue a batch in one transaction."""

    async def close(self) -> None:
        """Close the connections."""


async def single(producer: Producer, *, jobs: int, lanes: int) -> None:
    """Enqueue `jobs` one by one, over `lanes` connections at once."""
    for lane in range(lanes):  # warm up each connection
        await producer.enqueue(lane, UNTIMED)
    protocol.gate()
    began, cpu = time.monotonic(), protocol.cpu_seconds()
    left = iter(range(jobs))

    async def work(lane: int) -> None:
        for seq in left:
            await producer.enqueue(lane, seq)

    await asyncio.gather(*(work(lane) for lane in range(lanes)))
    seconds = time.monotonic() - began
    protocol.done(jobs=jobs, seconds=seconds, rate=jobs / seconds, cpu_us=(protocol.cpu_seconds() - cpu) / jobs * 1e6)


async def bulk(producer: Producer, *, jobs: int, chunk: int) -> None:
    """Enqueue `jobs` in transactions of `chunk`."""
    protocol.gate()
    began, cpu = time.monotonic(), protocol.cpu_seconds()
    for first in range(0, jobs, chunk):
        await producer.enqueue_many(0, range(first, min(jobs, first + chunk)))
    seconds = time.monotonic() - began
    protocol.done(jobs=jobs, seconds=seconds, rate=jobs / seconds, cpu_us=(protocol.cpu_seconds() - cpu) / jobs * 1e6)


async def paced(producer: Producer, *, jobs: int, gap_ms: float) -> None:
    """Enqueue one job after a pause of `gap_ms` to twice that; each is stamped before and after its commit."""
    await producer.enqueue(0, UNTIMED)
    protocol.gate()
    chance = random.Random(7)
    for seq in range(jobs):
        await asyncio.sleep((1 + chance.random()) * gap_ms / 1000)
        before = time.monotonic_ns()
        await producer.enqueue(0, seq)
        protocol.say("sent", seq, before, time.monotonic_ns())
    protocol.done(jobs=jobs)


async def late(producer: Producer, *, jobs: int, lanes: int, open_seconds: float, load: int) -> None:
    """Enqueue `jobs` whose transactions stay open, while a stream of `load` jobs a second commits at once."""
    protocol.gate()
    left = iter(range(jobs))
    over = asyncio.Event()

    async def work(lane: int) -> None:
        await asyncio.sleep(open_seconds * lane / lanes)  # commits come evenly, not in herds
        for seq in left:
            before = time.monotonic_ns()
            await producer.enqueue_open(lane, seq, open_seconds)
            protocol.say("sent", seq, before, time.monotonic_ns())

    async def stream() -> None:
        burst = [UNTIMED] * (load // BURSTS_PER_SECOND)
        while burst and not over.is_set():
            await producer.enqueue_many(lanes, burst)
            await asyncio.sleep(1 / BURSTS_PER_SECOND)

    streaming = asyncio.create_task(stream())
    await asyncio.gather(*(work(lane) for lane in range(lanes)))
    over.set()
    await streaming
    protocol.done(jobs=jobs)


MODES: dict[str, Callable[..., Awaitable[None]]] = {"single": single, "bulk": bulk, "paced": paced, "late": late}


def make_producer(side: str) -> Producer:
    """Return the client of a side, ``ceil`` or ``ours``; only that one is imported."""
    if side == "ceil":
        from bench.ceil.producer import CeilProducer

        return CeilProducer()
    from bench.ours import OurProducer

    return OurProducer()


async def main(side: str, mode: str, arguments: dict[str, Any]) -> None:
    """Connect, run one mode, close."""
    producer = make_producer(side)
    await producer.connect(os.environ["BENCH_DSN"], int(arguments.get("lanes", 1)) + 1)
    gc.freeze()  # a full collection between two stamps would be part of what they measure
    await MODES[mode](producer, **arguments)
    await producer.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
