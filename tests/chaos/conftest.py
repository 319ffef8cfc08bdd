"""Fixtures of the fault suite. All its tests bear the marker `chaos`, and may take longer than others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.ledger import Ledger
from tests.chaos.length import FULL, Length, chosen
from tests.chaos.trial import Trial
from tests.rig.processes import StartWorker
from tests.rig.servers import RigDatabase, Server

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("chaos")
            item.add_marker(pytest.mark.timeout(600 if chosen() is FULL else 300))


@pytest.fixture
def length() -> Length:
    """How long faults last."""
    return chosen()


@pytest.fixture
def ledger(server: Server) -> Iterator[Ledger]:
    """An empty ledger on the server that no fault touches."""
    made = server.create()
    yield Ledger(made)
    server.drop(made)


@pytest.fixture
def trial(database: RigDatabase, worker_process: StartWorker, ledger: Ledger, tmp_path: Path, length: Length) -> Iterator[Trial]:
    """A trial on the common server."""
    made = Trial(database, worker_process, ledger, tmp_path / "home", length)
    yield made
    made.close()


@pytest.fixture
def own_trial(
    private_server: Server, worker_process: StartWorker, ledger: Ledger, tmp_path: Path, length: Length
) -> Iterator[Trial]:
    """A trial on a server that may be broken."""
    made = Trial(private_server.migrated(), worker_process, ledger, tmp_path / "home", length)
    yield made
    made.close()
