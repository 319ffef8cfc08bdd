"""`tailrace dev` without a database: an embedded PostgreSQL that keeps its data, used by one at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cli.dev_scene import FIXED, PATIENCE, DevStarter, resource
from tests.rig.processes import StartProcess
from tests.rig.waiting import eventually
from tests.worker.apps import LEDGER


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's account can reach; pytest's own is closed to others."""
    made = Path(tempfile.mkdtemp(prefix="tailrace-dev-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def dev(process: StartProcess, folder: Path) -> Iterator[DevStarter]:
    """Start it without a database."""
    starter = DevStarter(process, None, folder)
    yield starter
    starter.close()


@pytest.mark.timeout(180)
def test_a_database_of_its_own_that_lasts(dev: DevStarter, folder: Path) -> None:
    """Jobs outlive a run; other programs find the database by a file that only we may read; a second run is kept out."""
    where = ("--state-dir", str(folder / "state"))
    first = dev(resource(mode="{}", more="  replicas: 0\n"), *where)
    first.until("a reading", lambda s: s["status"] == "ScaledToZero")
    url = folder / "state" / "database-url"
    assert url.stat().st_mode & 0o777 == 0o600
    first.said(f"export TAILRACE_DATABASE_URL_FILE={url}")
    with psycopg.connect(url.read_text().strip(), autocommit=True) as conn:
        conn.execute(LEDGER)
        conn.execute("select tailrace.enqueue('work', 'mark', '{\"note\": \"kept\"}')")
    second = dev(None, *where)
    assert second.process.wait(PATIENCE) == 2
    assert f"in use by another `tailrace dev` (process {first.process.pid})" in second.process.output
    assert first.end() == 0
    assert not url.exists()
    third = dev(resource(mode=FIXED), *where)
    third.until("the job to have run", lambda s: s["workers"] == 1 and s["ready"] == s["running"] == 0)
    with psycopg.connect(url.read_text().strip()) as conn:
        ran = eventually(lambda: conn.execute("select note from public.ledger").fetchone(), PATIENCE, what="the job")
    assert ran == ("kept",)
    assert third.end() == 0
