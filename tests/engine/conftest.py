"""Fixtures of the engine's tests: rows on one connection, and on a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
