"""One application for the tests of enqueueing, on the test's own database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tailrace import App, JobContext, RetryPolicy
from tests.rig.servers import RigDatabase

AsyncConnection = psycopg.AsyncConnection[tuple[Any, ...]]


class Shop:
    """An application and its tasks."""

    def __init__(self, dsn: str, **settings: Any) -> None:
        """Make the tasks.

        Args:
            dsn: The database.
            settings: More arguments of App.
        """
        self.app = App("webhooks", database_url=dsn, **settings)

        @self.app.task(timeout=30, retry=RetryPolicy(max_attempts=8, jitter=0.1))
        async def deliver(ctx: JobContext[Any], event_id: int, url: str) -> None: ...

        @self.app.task(queue="images", key="resize-{path}")
        def resize(path: Path, width: int = 800) -> None: ...

        @self.app.task
        def plain(text: str = "", *, value: Any = None) -> None: ...

        self.deliver = deliver
        self.resize = resize
        self.plain = plain


@pytest.fixture
def shop(database: RigDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    for name in ("TAILRACE_DATABASE_URL", "TAILRACE_DATABASE_URL_FILE", "TAILRACE_SCHEMA"):
        monkeypatch.delenv(name, raising=False)
    made = Shop(database.dsn)
    with made.app:
        yield made


@pytest.fixture
async def aconn(database: RigDatabase) -> AsyncIterator[AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(database.dsn) as opened:
        yield opened
