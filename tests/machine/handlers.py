"""The application that the machine plays: two tasks that are tried again at once, and the ways in which a handler ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tailrace import App, JobContext, NoRetry, RetryAfter, RetryPolicy, Snooze

QUEUE = "q"
GROUPS = ("g1", "g2")
STRICT = ("t2",)
"""Tasks whose groups wait for a member that fails."""
app = App(QUEUE)
_soon = RetryPolicy(base=0, jitter=0)


@app.task(name="t1", retry=_soon)
async def _plain(n: int) -> None: ...


@app.task(name="t2", retry=_soon, group_order="strict")
async def _with_a_context(ctx: JobContext[None], n: int) -> None: ...


RAISES: dict[str, Callable[[], BaseException]] = {
    "error": lambda: RuntimeError("failed"),
    "timeout": lambda: asyncio.CancelledError(),
    "interrupted": lambda: asyncio.CancelledError(),
    "retry_after": lambda: RetryAfter(60),
    "permanent": lambda: NoRetry("of no use"),
    "snooze": lambda: Snooze(0),
}
"""What a handler raises that ends in some way."""
