"""How a handler is called when a plain call will not do: in a thread, with a context, inside middleware.

run.py calls plain coroutines itself, since each frame costs the hot path; all others come through here. context.py fills
the context.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tailrace.completion import Completion
from tailrace.db import Blocks
from tailrace.hooks import around
from tailrace.job import JobContext, Stop
from tailrace_worker import context
from tailrace_worker.bound import BoundTask
from tailrace_worker.finish import Outbox
from tailrace_worker.rows import ID, TOKEN, Row
from tailrace_worker.slots import Slot


class Calls:
    """Calls the handlers of one queue.

    Args:
        queue: The queue's name.
        slots: How many of them run at once.
        outbox: Takes the states that handlers save.
        worker: This worker's id.
        blocks: The SQL of the schema, for handlers that complete their jobs themselves.

    Attributes:
        resources: What handlers share.
        closing: The lanes end: a cancellation is for them, not for a handler.
    """

    def __init__(self, *, queue: str, slots: int, outbox: Outbox, worker: str, blocks: Blocks) -> None:
        self.queue, self.outbox, self.worker, self.blocks = queue, outbox, worker, blocks
        self.resources: Any = None
        self.closing = False
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix=f"tailrace-{queue[:20]}")

    def close(self) -> None:
        """Let the threads go when they are idle."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(self, slot: Slot, task: BoundTask, row: Row, arguments: dict[str, Any]) -> None:
        """Call a handler and wait for its end; what it returns is left in the slot, what it raises is raised.

        Args:
            slot: Where it runs.
            task: Its task.
            row: Its job, as it was claimed.
            arguments: Its arguments.
        """
        slot.stop = stop = Stop()
        if not (task.takes_context or task.middlewares):
            slot.result = await self._handle(slot, task, (), arguments)
            return
        ctx = self.context(slot, row, keep=task.keeps)
        given = (ctx,) if task.takes_context else ()
        if task.middlewares:
            slot.result = await around(task.middlewares, ctx, lambda: self._handle(slot, task, given, arguments, stop))()
        else:
            slot.result = await self._handle(slot, task, given, arguments)

    async def _handle(
        self, slot: Slot, task: BoundTask, given: tuple[Any, ...], arguments: dict[str, Any], stop: Stop | None = None
    ) -> object:
        if task.is_async:
            return await task.call(*given, **arguments)
        own = contextvars.copy_context()
        work = functools.partial(own.run, _in_thread, task.call, given, arguments)
        thread = asyncio.get_running_loop().run_in_executor(self._threads, work)
        slot.threaded = True
        try:
            return await (thread if stop is None else self._to_its_end(thread, stop))
        finally:
            slot.threaded = False  # a middleware around it can be cancelled again

    async def _to_its_end(self, thread: asyncio.Future[object], stop: Stop) -> object:
        """Wait for a handler in a thread that a middleware may give up: a run that ended before it would overlap the next."""
        given_up: asyncio.CancelledError | None = None
        while not thread.done():
            try:
                await asyncio.wait({thread})
            except asyncio.CancelledError as error:
                if self.closing:
                    raise
                given_up = error
                stop.set("timeout")
        if given_up is None:
            return thread.result()
        thread.exception()
        raise given_up

    def context(self, slot: Slot, row: Row, *, keep: float | None = None) -> JobContext[Any]:
        """The context of the job that runs in a slot; `keep`: seconds that its task keeps results."""
        slot.completion = slot.completion or Completion(self.blocks, job=row[ID], token=row[TOKEN], worker=self.worker, keep=keep)
        return context.build(
            row,
            queue=self.queue,
            resources=self.resources,
            seconds=slot.deadline - slot.since,
            stop=slot.stop or Stop(),
            save=lambda text: self.outbox.save(row[ID], row[TOKEN], text),
            completion=slot.completion,
        )


def _in_thread(call: Callable[..., Any], given: tuple[Any, ...], arguments: dict[str, Any]) -> object:
    """Run a sync handler. A future cannot carry StopIteration: the run would never end."""
    try:
        return call(*given, **arguments)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error
