"""What the application's lifespan opens for its handlers, held for the length of a worker's life.

Opened before the first claim, closed after the last job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tailrace.app import App
from tailrace.names.events import Event

log = logging.getLogger("tailrace.worker")

CLOSE_SECONDS = 10.0


@asynccontextmanager
async def resources_of(app: App) -> AsyncIterator[Any]:
    """What the application's lifespan yields, opened for the length of the block; None without one.

    Closing that fails or hangs is logged: every job is over and written by then.
    """
    if app.lifespan_factory is None:
        yield None
        return
    context = asynccontextmanager(app.lifespan_factory)()
    resources = await context.__aenter__()
    try:
        yield resources
    finally:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await context.__aexit__(None, None, None)
        except Exception:  # the application's code, and there is nobody left to tell
            log.exception("the application's resources could not be closed", extra={"event": Event.WORKER_STOPPED})
