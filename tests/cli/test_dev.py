"""`tailrace dev`: a JobQueue file becomes workers that follow the demand, are replaced when they die, and drain."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.dev_scene import APP, FIXED, PATIENCE, Dev, DevStarter, ready, resource, worker_pid, workers
from tests.rig.processes import StartProcess
from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import eventually
from tests.worker.board import Board

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def dev(process: StartProcess, database: RigDatabase, tmp_path: Path) -> Iterator[DevStarter]:
    """Start it on the test's database."""
    starter = DevStarter(process, database.dsn, tmp_path)
    yield starter
    starter.close()


@pytest.fixture
def board(conn: Connection) -> Board:
    """Jobs in, the handlers' ledger out."""
    return Board(conn)


def test_it_scales_from_zero_with_the_jobs_and_back(dev: DevStarter, board: Board) -> None:
    """The fleet follows the demand between its bounds; the same file's settings are in the database."""
    run = dev(resource(more="  tasks: [{name: nap, timeoutSeconds: 33}]\n"))
    run.until("no workers without jobs", lambda s: s["status"] == "ScaledToZero")
    assert board.value("select settings -> 'tasks' -> 'nap' ->> 'timeoutSeconds' from tailrace.queue") == "33"
    for _ in range(12):
        board.enqueue("nap", seconds=0.4)
    most = run.until("both workers", lambda s: s["workers"] == 2)
    assert most["wanted"] == 2
    eventually(lambda: board.value("select count(*) from tailrace.job") == 0, PATIENCE, what="the end of the jobs")
    run.until("zero again", lambda s: s["status"] == "ScaledToZero" and s["draining"] == 0)
    assert board.value("select count(*) from tailrace.worker where until > clock_timestamp()") == 0
    assert max(status["workers"] + status["draining"] for status in run.statuses) == 2
    assert {line.note for line in board.lines()} == {"began", "ended"}
    assert len(board.lines()) == 24
    assert run.end() == 0


def test_a_killed_worker_is_replaced_and_its_jobs_run_at_once(dev: DevStarter, board: Board) -> None:
    """BF-08: we saw the process end, so nobody waits for the lease of 60 s; the job is charged like a crash."""
    run = dev(resource(mode=FIXED))
    run.until("its worker", ready)
    job = board.enqueue("nap", seconds=600)
    (victim,) = eventually(lambda: board.lines(job), PATIENCE, what="the job to begin")
    os.kill(victim.pid, signal.SIGKILL)
    killed = time.monotonic()
    eventually(lambda: board.value("select token is null from tailrace.job"), 10, what="the job to be free")
    freed = time.monotonic() - killed
    second = eventually(lambda: board.lines(job)[1:], PATIENCE, what="the job to begin again")[0]
    again = time.monotonic() - killed
    assert freed < 3, "claimable within three seconds"
    assert again < 3 + start_seconds(run), "and it runs as soon as the new worker is there"
    assert second.pid != victim.pid
    assert second.attempt == 2
    assert board.value("select errors -> 0 ->> 'message' from tailrace.job").endswith("died: killed by SIGKILL")
    assert run.until("the restart", lambda s: s["restarts"] == 1)
    run.interrupt()
    run.said("draining; Ctrl-C again")
    run.interrupt()
    assert run.process.wait(PATIENCE) == 0
    assert board.value("select attempts from tailrace.job") == 1, "a second Ctrl-C gives the job back uncharged"


def start_seconds(run: Dev) -> float:
    """How long a worker may take to start on this machine, busy as it is."""
    del run
    return 12.0


def test_ctrl_c_lets_jobs_end(dev: DevStarter, board: Board) -> None:
    """BF-35: nothing new is claimed, what runs ends, exit status 0; a job behind it is left alone."""
    run = dev(resource(mode=FIXED))
    run.until("its worker", ready)
    job, waiting = board.enqueue("nap", seconds=6), board.enqueue("nap", seconds=0)
    eventually(lambda: board.lines(job), PATIENCE, what="the job to begin")
    assert run.end() == 0
    assert [line.note for line in board.lines(job)] == ["began", "ended"]
    assert board.lines(waiting) == []
    assert board.value("select attempts from tailrace.job where id = %s", [waiting]) == 0
    assert board.value("select count(*) from tailrace.worker") == 0
    assert run.last()["status"] in ("Draining", "Ready")


def test_a_worker_that_cannot_live_is_started_with_growing_pauses(dev: DevStarter, board: Board) -> None:
    """Backoff: it does not burn the machine, and it says so."""
    run = dev(resource(mode=FIXED, container="{name: worker, command: ['sh', '-c', 'echo cannot go on; exit 7']}"))
    run.said(r"work-1 \| cannot go on")
    run.said(r"dev \| work-1 ended with status 7")
    failing = run.until("four failures", lambda s: s["restarts"] >= 4)
    assert failing["status"] == "Failing"
    began = time.monotonic()
    run.until("another", lambda s: s["restarts"] > failing["restarts"])
    assert run.last()["restarts"] - failing["restarts"] <= 2
    assert time.monotonic() - began > 0.5
    assert run.end() == 0
    assert board.value("select count(*) from tailrace.worker") == 0


def test_a_changed_file_is_taken_over(dev: DevStarter, board: Board) -> None:
    """Settings reach the database and roll nothing; a changed template replaces workers by drain; a mistake changes nothing."""
    run = dev(resource(mode=FIXED))
    run.until("its worker", ready)
    (first,) = workers(board)
    dev.file.write_text(resource(mode=FIXED, more="  jobDefaults: {maxAttempts: 9}\n"))
    run.said("work: settings changed")
    assert board.value("select settings -> 'jobDefaults' ->> 'maxAttempts' from tailrace.queue") == "9"
    assert workers(board) == [first]
    dev.file.write_text(resource(mode=FIXED, slots="many"))
    run.said("the change is not taken: .*slots")
    assert workers(board) == [first]
    job = board.enqueue("nap", seconds=3)
    eventually(lambda: board.lines(job), PATIENCE, what="the job to begin")
    dev.file.write_text(resource(mode=FIXED, slots=3))
    run.said("its workers are replaced")
    eventually(lambda: first not in workers(board), PATIENCE, what="the old worker to end")
    assert board.value("select slots from tailrace.worker where until > clock_timestamp()") == 3
    assert [line.note for line in board.lines(job)] == ["began", "ended"], "the job of the old one was not cut"
    assert run.last()["restarts"] == 0
    dev.file.write_text(resource(mode=FIXED, more="  stopPolicy: HoldAndDrain\n"))
    run.until("no workers on hold", lambda s: s["status"] in ("OnHold", "Draining") and s["workers"] == 0 and s["draining"] == 0)
    assert run.end() == 0


def test_the_env_file_reaches_the_workers(dev: DevStarter, board: Board) -> None:
    """Secrets are looked up by the variable's name; a missing key is named with the remedy; a change comes in while it runs."""
    container = (
        f'{{name: worker, args: ["worker", "$(APPLICATION)"], env: [{{name: APPLICATION, value: "{APP}"}}, '
        "{name: TOKEN, valueFrom: {secretKeyRef: {name: tokens, key: api}}}]}"
    )
    refused = dev(resource(mode=FIXED, container=container))
    assert refused.process.wait(PATIENCE) == 2
    assert "TOKEN is key 'api' of Secret 'tokens'" in refused.process.output
    assert f"add a line TOKEN=… to {dev.folder / '.env'}" in refused.process.output
    (dev.folder / ".env").write_text("# of this machine\nexport TOKEN='s3cret word'\n")
    run = dev()
    run.until("its worker", ready)
    (first,) = workers(board)
    pid = worker_pid(run)
    assert b"TOKEN=s3cret word" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert "s3cret" not in run.process.output
    (dev.folder / ".env").write_text("TOKEN=other\n")
    eventually(lambda: workers(board) and first not in workers(board), PATIENCE, what="a worker with the new variables")
    assert run.end() == 0


def test_several_queues_in_one_file(dev: DevStarter, board: Board) -> None:
    """Each has its own fleet and its own bounds; one that leaves the file is drained, and its jobs stay."""
    both = resource(mode=FIXED) + "---\n" + resource(name="other", mode="{}", more="  replicas: 2\n")
    run = dev(both)
    run.until("the first queue", ready)
    run.until("the second", lambda s: s["workers"] == 2, queue="other")
    job = board.enqueue("mark", queue="other", note="here")
    eventually(lambda: board.lines(job), PATIENCE, what="a job of the second queue")
    dev.file.write_text(resource(mode=FIXED))
    run.said("other: no longer in the file")
    eventually(lambda: len(workers(board)) == 1, PATIENCE, what="the second queue's workers to end")
    assert run.end() == 0


def test_workers_end_when_it_is_killed(dev: DevStarter, board: Board) -> None:
    """Nobody else would stop them."""
    run = dev(resource(mode=FIXED))
    run.until("its worker", ready)
    pid = worker_pid(run)
    run.process.kill9()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), PATIENCE, what="the worker to end")
    assert board.value("select count(*) from tailrace.worker") == 0


def test_plain_lines_where_there_is_no_terminal(dev: DevStarter) -> None:
    run = dev(resource(mode=FIXED), form="table")
    run.said(r"(?m)^work: Ready, 1 of 1 workers")
    run.said(r"(?m)^work-1 \| .*worker ready")
    assert run.end() == 0
