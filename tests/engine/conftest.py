"""Fixtures of the engine's tests: rows on one connection, and on a second; the place, and loops of routines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.maintenance import Loop
from tests.engine.rows import Rows
from tests.rig.servers import Connection, RigDatabase


@pytest.fixture
def rows(conn: Connection) -> Rows:
    """The tables, by an autocommit connection."""
    return Rows(conn)


@pytest.fixture
def other(database: RigDatabase) -> Iterator[Rows]:
    """The tables, by a second connection that autocommits nothing: somebody else's open transaction."""
    with database.connect(autocommit=False, application_name="somebody else") as opened:
        yield Rows(opened)
        opened.rollback()


@pytest.fixture
def place(dsn: str) -> Database:
    """The test's database, as a program sees it."""
    return Database(url=SecretStr(dsn))


@pytest.fixture
def running() -> Iterator[Any]:
    """Run loops in threads; all are stopped at the end."""
    started: list[tuple[threading.Thread, threading.Event]] = []

    def start(loop: Loop) -> threading.Event:
        stop = threading.Event()
        thread = threading.Thread(target=loop.run, args=(stop,))
        thread.start()
        started.append((thread, stop))
        return stop

    yield start
    for _, stop in started:
        stop.set()
    for thread, _ in started:
        thread.join(10)
        assert not thread.is_alive()
