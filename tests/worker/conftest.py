"""Fixtures of the worker's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.processes import StartWorker, WorkerProcess
from tests.rig.servers import Connection, RigDatabase
from tests.worker.board import Board
from tests.worker.scene import Scene
from tests.worker.track import APP, StartLimited, Track


@pytest.fixture
def board(conn: Connection) -> Board:
    """The test's database with an empty ledger."""
    return Board(conn)


@pytest.fixture
def scene(database: RigDatabase, worker_process: StartWorker, tmp_path: Path) -> Scene:
    """The test's database with workers of short leases, and a ledger of what their handlers did."""
    return Scene(database, worker_process, tmp_path / "scene")


@pytest.fixture
def track(database: RigDatabase) -> Track:
    """The test's database with an empty ledger of overlapping runs."""
    return Track(database)


@pytest.fixture
def limited_worker(worker_process: StartWorker) -> StartLimited:
    """Starts workers of the queue `limited`, with a short lease and reaper."""

    def start(*arguments: str, lease: float = 6, dsn: str | None = None) -> WorkerProcess:
        env = {"TAILRACE_REAPER_SECONDS": "1"}
        return worker_process(APP, "--queue", "limited", "--lease-seconds", f"{lease:g}", *arguments, env=env, dsn=dsn)

    return start
