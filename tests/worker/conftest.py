"""Fixtures of the worker's tests."""

from __future__ import annotations

import pytest

from tests.rig.servers import Connection
from tests.worker.board import Board


@pytest.fixture
def board(conn: Connection) -> Board:
    """The test's database with an empty ledger."""
    return Board(conn)
