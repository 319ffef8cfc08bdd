"""Enqueueing as pure statements: what is sent, and how the answer reads.

A prepared job is checked text; nothing here can be refused any more but by the database. Neighbours: `prepare` (makes them),
`senders` (two thin drivers), `db/sql/enqueue.sql`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tailrace.db import Blocks, Statement
from tailrace.enqueue.new_job import Receipt

CHUNK_ROWS: Final = 5_000
CHUNK_BYTES: Final = 4 * 1024 * 1024


class PreparedJob(NamedTuple):
    """A checked job, as text.

    Attributes:
        queue: Where it goes.
        task: The task's name.
        payload: JSON text of an object.
        options: JSON text of an object without the key.
        tenant: Whose job it is; also in the options.
        key: The dedupe key.
        priority: What the library knows of its priority, for the metric.
        mode_said: Whether the options or the decorator say what a taken key means.
    """

    queue: str
    task: str
    payload: str
    options: str = "{}"
    tenant: str = ""
    key: str | None = None
    priority: int = 0
    mode_said: bool = False

    def as_successor(self) -> PreparedJob:
        """The same job in mode `after`; its options must not name a mode."""
        return self._replace(options=with_member(self.options, "on_duplicate", "after"), mode_said=True)


def enqueue_one(blocks: Blocks, job: PreparedJob, *, trace: str | None = None) -> Statement[Receipt]:
    """Return the statement that stores one job.

    Args:
        blocks: The SQL of the schema.
        job: What to store.
        trace: The W3C traceparent to keep with it.
    """
    options = job.options
    if job.key is not None:
        options = with_member(options, "key", job.key)
    if trace is not None:
        options = with_member(options, "trace", trace)
    values = {"queue": job.queue, "task": job.task, "payload": job.payload, "options": options}
    return Statement(blocks["enqueue.one"], values, _one_receipt)


def enqueue_chunk(blocks: Blocks, jobs: Sequence[PreparedJob], *, trace: str | None = None) -> Statement[list[Receipt]]:
    """Return the statement that stores several jobs; the receipts come in their order.

    Args:
        blocks: The SQL of the schema.
        jobs: What to store, at most a chunk.
        trace: The W3C traceparent to keep with them.
    """
    heads: dict[tuple[str, str, str], int] = {}
    kinds = [heads.setdefault((job.queue, job.task, job.options), len(heads) + 1) for job in jobs]
    texts = [_head_text(*head, trace=trace) for head in heads]
    keys = [job.key for job in jobs]
    values: Mapping[str, Any] = {
        "heads": f"[{','.join(texts)}]",
        "kinds": kinds,
        "payloads": f"[{','.join([job.payload for job in jobs])}]",
        "keys": None if all(key is None for key in keys) else keys,
    }
    return Statement(blocks["enqueue.batch"], values, _receipts)


def order_of(jobs: Sequence[PreparedJob]) -> list[int]:
    """Positions of the jobs in the order to send them: those with a key sorted by it, the same in every process.

    Two producers that send the same keys then never wait for each other in a circle.
    """
    plain = [n for n, job in enumerate(jobs) if job.key is None]
    keyed = [(job.tenant, job.queue, job.task, job.key, n) for n, job in enumerate(jobs) if job.key is not None]
    return plain + [position[-1] for position in sorted(keyed)]


def chunks(jobs: Sequence[PreparedJob], order: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield positions in pieces of at most CHUNK_ROWS rows and about CHUNK_BYTES bytes."""
    start, size = 0, 0
    for end, position in enumerate(order):
        length = len(jobs[position].payload)
        if end > start and (size + length > CHUNK_BYTES or end - start >= CHUNK_ROWS):
            yield order[start:end]
            start, size = end, 0
        size += length
    if start < len(order):
        yield order[start:]


def _head_text(queue: str, task: str, options: str, *, trace: str | None) -> str:
    if trace is not None:
        options = with_member(options, "trace", trace)
    return f'{{"queue":{json.dumps(queue)},"task":{json.dumps(task)},"options":{options}}}'


def with_member(options: str, name: str, value: str) -> str:
    """JSON text of an object with one more member, whose value is text."""
    member = f'"{name}":{json.dumps(value)}}}'
    return "{" + member if options == "{}" else f"{options[:-1]},{member}"


def _one_receipt(rows: Sequence[tuple[Any, ...]]) -> Receipt:
    return Receipt(*rows[0])


def _receipts(rows: Sequence[tuple[Any, ...]]) -> list[Receipt]:
    return [Receipt(job, outcome) for _, job, outcome in sorted(rows)]
