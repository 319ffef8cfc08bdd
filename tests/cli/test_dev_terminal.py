"""`tailrace dev` on a terminal: a table that stays below the logs, and Ctrl-C as a person types it."""

from __future__ import annotations

import re

import pytest

from tests.cli.dev_scene import FIXED, PATIENCE, Terminal, resource
from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import eventually
from tests.worker.board import Board


@pytest.mark.timeout(180)
def test_a_live_table_and_a_typed_ctrl_c(database: RigDatabase, conn: Connection, tmp_path) -> None:
    """The interrupt reaches only the command: its workers finish what they run."""
    board = Board(conn)
    file = tmp_path / "queue.yaml"
    file.write_text(resource(mode=FIXED))
    with Terminal("dev", str(file), env={"TAILRACE_DATABASE_URL": database.dsn}) as terminal:
        terminal.shows(r"QUEUE +STATUS +WORKERS +READY +RUNNING +SCHEDULED +DEAD +OLDEST +DEMAND")
        terminal.shows(r"work +Ready +1/1")
        assert re.search(r"work-1 \| .*worker ready", terminal.text), "logs stand above the table"
        job = board.enqueue("nap", seconds=8)
        eventually(lambda: board.lines(job), PATIENCE, what="the job to begin")
        terminal.shows(r"work +Ready +1/1 +0 +1 ")
        terminal.type("\x03")
        terminal.shows("draining; Ctrl-C again does not wait")
        assert terminal.wait() == 0
    assert [line.note for line in board.lines(job)] == ["began", "ended"]
    assert "\x1b" in terminal.raw
    assert board.value("select count(*) from tailrace.worker") == 0
