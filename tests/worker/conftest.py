"""Fixtures of the worker's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.processes import StartWorker
from tests.rig.servers import Connection, RigDatabase
from tests.worker.board import Board
from tests.worker.scene import Scene


@pytest.fixture
def board(conn: Connection) -> Board:
    """The test's database with an empty ledger."""
    return Board(conn)


@pytest.fixture
def scene(database: RigDatabase, worker_process: StartWorker, tmp_path: Path) -> Scene:
    """The test's database with workers of short leases, and a ledger of what their handlers did."""
    return Scene(database, worker_process, tmp_path / "scene")
