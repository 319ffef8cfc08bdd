"""What all tests share: the choice of server and the fixtures of the rig.

`--pg` (or TAILRACE_TEST_PG) chooses the PostgreSQL; TAILRACE_TEST_DSN takes a server that already runs.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest_plugins = [
    "tests.rig.servers",
    "tests.rig.logins",
    "tests.rig.processes",
    "tests.rig.proxy",
    "tests.rig.pgbouncer",
    "tests.rig.kube.fixtures",
]

# Folders whose tests need nothing but SQL: these run on a second PostgreSQL too (`pytest -m sql --pg 15`).
SQL_FOLDERS = frozenset({"engine", "enqueue"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of the server."""
    parser.addoption(
        "--pg",
        default=os.environ.get("TAILRACE_TEST_PG", "embedded"),
        help="the PostgreSQL to test on: embedded (default), a version below /usr/lib/postgresql such as 15, or a bin folder",
    )


def pytest_configure() -> None:
    """Undo what a shell or nohup does to what it starts in the background: our children would ignore these signals too."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need only SQL."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in SQL_FOLDERS:
            item.add_marker("sql")
