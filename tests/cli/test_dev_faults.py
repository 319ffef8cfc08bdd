"""`tailrace dev` while something is wrong: the database is away, a queue belongs to somebody else, the terminal is closed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.dev_scene import FIXED, PATIENCE, Dev, DevStarter, ready, resource, worker_pid, workers
from tests.rig.processes import StartProcess
from tests.rig.proxy import TcpProxy
from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import eventually
from tests.worker.board import Board

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def board(conn: Connection) -> Board:
    """Jobs in, the handlers' ledger out."""
    return Board(conn)


@pytest.fixture
def dev(process: StartProcess, database: RigDatabase, tmp_path: Path) -> Iterator[DevStarter]:
    """Start it on the test's database."""
    starter = DevStarter(process, database.dsn, tmp_path)
    yield starter
    starter.close()


def started(dev: DevStarter) -> Dev:
    """A run with its one worker."""
    run = dev(resource(mode=FIXED))
    run.until("its worker", ready)
    return run


def test_a_database_that_is_away_changes_no_fleet(
    process: StartProcess, tcp_proxy: TcpProxy, board: Board, tmp_path: Path
) -> None:
    """No knowledge, no change: workers are neither ended nor started, and all go on afterwards."""
    dev = DevStarter(process, tcp_proxy.dsn, tmp_path)
    try:
        run = started(dev)
        pid = worker_pid(run)
        (first,) = workers(board)
        tcp_proxy.refuse()
        run.said(r"dev \| cannot go on: ")
        run.until("no reading", lambda s: s["status"] == "NoReading")
        assert worker_pid(run) == pid
        tcp_proxy.resume()
        run.said(r"dev \| goes on")
        board.enqueue("noop")
        eventually(lambda: board.value("select count(*) from tailrace.job") == 0, PATIENCE, what="the job to run")
        assert workers(board) == [first]
        assert run.last()["restarts"] == 0
        assert run.end() == 0
    finally:
        dev.close()


def test_ctrl_c_ends_it_while_the_database_is_away(
    process: StartProcess, tcp_proxy: TcpProxy, board: Board, tmp_path: Path
) -> None:
    """Nothing waits for a database that does not answer; the lease of the worker runs out by itself."""
    dev = DevStarter(process, tcp_proxy.dsn, tmp_path)
    try:
        run = started(dev)
        pid = worker_pid(run)
        tcp_proxy.refuse()
        run.said(r"dev \| cannot go on: ")
        assert run.end() == 0
        assert not Path(f"/proc/{pid}").exists()
        assert len(workers(board)) <= 1
    finally:
        dev.close()


def test_a_queue_that_belongs_to_a_controller_hinders_no_other(dev: DevStarter, board: Board) -> None:
    """It starts nothing for that queue, says so, and begins when it may."""
    run = started(dev)
    board.conn.execute("insert into tailrace.queue (name, managed_by) values ('other', 'controller')")
    dev.file.write_text(resource(mode=FIXED) + "---\n" + resource(name="other", mode=FIXED))
    run.said(r"dev \| other: added")
    run.said(r"dev \| cannot go on: .*other is managed by a controller")
    job = board.enqueue("mark")
    eventually(lambda: board.lines(job), PATIENCE, what="a job of the first queue")
    assert len(workers(board)) == 1
    board.conn.execute("update tailrace.queue set managed_by = 'cli' where name = 'other'")
    run.until("the worker of the second queue", ready, queue="other")
    assert run.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_other_signals_drain_too(dev: DevStarter, board: Board, number: signal.Signals) -> None:
    """A supervisor's stop and a closed terminal: jobs end, and no worker stays behind."""
    run = started(dev)
    job = board.enqueue("nap", seconds=1)
    eventually(lambda: board.lines(job), PATIENCE, what="the job to begin")
    run.process.signal(number)
    assert run.process.wait(PATIENCE) == 0
    assert [line.note for line in board.lines(job)] == ["began", "ended"]
    assert workers(board) == []
