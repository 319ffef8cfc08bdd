"""How soon a job is found: notified or not, committed late, of a new priority, behind a large head that cannot be taken."""

from __future__ import annotations

import threading
from datetime import datetime

import psycopg
import pytest

from tests.rig.processes import StartWorker
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.apps:app"
SLOW_POLL = {"TAILRACE_POLL_SECONDS": "30"}
ENQUEUE = "select id from tailrace.enqueue('work', 'mark', '{}')"


def seconds_until_run(board: Board, job: int, since: datetime) -> float:
    """Wait for a job's line and return how long after a moment of the server it was written."""
    eventually(lambda: board.lines(job), what=f"job {job}")
    at = board.value("select at from public.ledger where job = %s", [job])
    return float((at - since).total_seconds())


def idle(board: Board) -> None:
    """Wait until the worker has said that it is idle."""
    eventually(
        lambda: board.value("select count(*) from tailrace.waiter where queue = 'work' and until > now()") == 1,
        what="a waiter row",
    )


def now(board: Board) -> datetime:
    moment: datetime = board.value("select clock_timestamp()")
    return moment


def test_an_idle_worker_is_woken(worker_process: StartWorker, board: Board) -> None:
    """CJ-20: by NOTIFY, long before its poll."""
    worker_process(APP, env=SLOW_POLL).wait_ready()
    idle(board)
    late = []
    for _ in range(20):
        job = board.enqueue("mark")
        late.append(seconds_until_run(board, job, now(board)))
    late.sort()
    assert late[10] < 0.5, late
    assert late[-1] < 5, late


@pytest.mark.parametrize("how", ["setting", "row"])
def test_polling_finds_what_no_notification_told(worker_process: StartWorker, board: Board, how: str) -> None:
    """CJ-20: NOTIFY is a hint; lost ones cost the poll's pause at most."""
    worker_process(APP, env={"TAILRACE_NOTIFY": "false"} if how == "setting" else {}).wait_ready()
    if how == "row":
        idle(board)
        board.conn.execute("delete from tailrace.waiter")
    for _ in range(3):
        job = board.enqueue("mark")
        assert seconds_until_run(board, job, now(board)) < 4  # an idle worker's slow poll comes later


def test_a_transaction_that_was_open_when_the_worker_went_idle(
    worker_process: StartWorker, board: Board, database: RigDatabase
) -> None:
    """Its enqueue saw no waiter, so nothing is notified: the worker watches it and claims when it ends."""
    with database.connect(autocommit=False) as early:
        [job] = early.execute(ENQUEUE).fetchone() or (0,)
        worker_process(APP, env=SLOW_POLL).wait_ready()
        idle(board)
        waited = "select clock_timestamp() > until - interval '59 s' from tailrace.waiter where queue = 'work'"
        eventually(lambda: board.value(waited), what="a second of waiting")
        early.commit()
        assert seconds_until_run(board, job, now(board)) < 5


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_a_producer_with_an_old_snapshot_wakes_all_the_same(
    worker_process: StartWorker, board: Board, database: RigDatabase, level: psycopg.IsolationLevel
) -> None:
    with database.connect(autocommit=False) as early:
        early.isolation_level = level
        early.execute("select count(*) from tailrace.waiter")  # takes the snapshot
        worker_process(APP, env=SLOW_POLL).wait_ready()
        idle(board)
        [job] = early.execute(ENQUEUE).fetchone() or (0,)
        early.commit()
        assert seconds_until_run(board, job, now(board)) < 5


def test_a_new_priority_is_found_soon(worker_process: StartWorker, board: Board) -> None:
    """Idle and busy: the claim knows priorities, a look finds new ones."""
    worker_process(APP, env=SLOW_POLL).wait_ready()
    idle(board)
    job = board.enqueue("mark", options={"priority": 7})
    assert seconds_until_run(board, job, now(board)) < 5
    board.fill("noop", 40_000)
    jobs = [(board.enqueue("mark", options={"priority": p}), now(board)) for p in (9, -400, 900)]
    for number, (urgent, since) in enumerate(jobs):
        if number != 1:  # the low one has to wait for the backlog
            assert seconds_until_run(board, urgent, since) < 5
    board.wait_gone()


def test_a_job_that_is_due_before_the_next_poll_starts_when_due(worker_process: StartWorker, board: Board) -> None:
    """FQ-20: its enqueue wakes the worker, which then knows when to claim."""
    worker_process(APP, env={"TAILRACE_POLL_SECONDS": "5"}).wait_ready()
    idle(board)
    for delay in (0.6, 0.2, 1.1):
        job = board.enqueue("mark", options={"delay": delay})
        due = board.value("select run_at from tailrace.job where id = %s", [job])
        assert 0 <= seconds_until_run(board, job, due) < 2


def test_late_commits_are_found_soon(worker_process: StartWorker, board: Board, database: RigDatabase) -> None:
    """Transactions that stay open for 0.3 s after the enqueue, while other jobs flow past them."""
    worker_process(APP).wait_ready()
    done, late = threading.Event(), list[tuple[int, datetime]]()

    def flow() -> None:
        with database.connect() as conn:
            while not done.is_set():
                conn.execute(
                    "insert into tailrace.job (queue, task, payload) select 'work', 'noop', '{}' from generate_series(1, 20)"
                )
                done.wait(0.01)

    def produce() -> None:
        with database.connect(autocommit=False) as conn:
            for _ in range(5):
                [job] = conn.execute(ENQUEUE).fetchone() or (0,)
                conn.execute("select pg_sleep(0.3)")
                conn.commit()
                late.append((job, conn.execute("select clock_timestamp()").fetchone()[0]))  # type: ignore[index]
                conn.commit()

    flowing = threading.Thread(target=flow)
    producers = [threading.Thread(target=produce) for _ in range(4)]
    for thread in [flowing, *producers]:
        thread.start()
    for thread in producers:
        thread.join()
    done.set()
    flowing.join()
    waits = sorted(seconds_until_run(board, job, since) for job, since in late)
    assert len(waits) == 20
    assert waits[10] < 0.3, waits
    assert waits[-1] < 5, waits
    board.wait_gone()


def test_a_head_of_a_hundred_thousand_rows_that_cannot_be_taken_is_passed_once(worker_process: StartWorker, board: Board) -> None:
    """FQ-13, CJ-12, k2: unknown tasks and running rows before the first job that can run."""
    board.fill("unknown", 100_000, ago=100)
    board.conn.execute(
        """insert into tailrace.worker (id, until, version, queues, tasks, slots)
             values ('far', 'tomorrow', '1', '{work}', '{noop}', 1);
           insert into tailrace.job (queue, task, payload, run_at, token, attempts)
             select 'work', 'noop', '{}', now() - interval '50 s', 5, 1 from generate_series(1, 10000);
           insert into tailrace.lease (token, worker, queue, ids)
             select 5, 'far', 'work', array_agg(id) from tailrace.job where token = 5"""
    )
    first = board.enqueue("mark")
    worker_process(APP).wait_ready()
    eventually(lambda: board.lines(first), what="the first known job")
    idle(board)
    waits = sorted(seconds_until_run(board, board.enqueue("mark"), now(board)) for _ in range(20))
    assert waits[10] < 0.3, waits
    assert board.value("select count(*) from tailrace.job where attempts = 0 and task = 'unknown'") == 100_000


def test_a_row_below_the_floors_is_found_by_the_rescan(worker_process: StartWorker, board: Board) -> None:
    """A job that came back, or was inserted with an old run_at: within a second or two, also a whole region of them."""
    worker_process(APP).wait_ready()
    board.enqueue("mark")
    board.wait_lines(1)
    idle(board)
    board.conn.execute(
        "insert into tailrace.job (queue, task, payload, run_at) values ('work', 'mark', '{}', now() - interval '1 h')"
    )
    board.fill("noop", 5000, ago=1800)
    board.wait_gone()
    assert len(board.lines()) == 2


def test_a_full_collection_of_garbage_does_not_look_at_the_program(worker_process: StartWorker, board: Board) -> None:
    """No job starts meanwhile: 50 ms for what is loaded and opened at the start, and that is no garbage."""
    worker_process(APP).wait_ready()
    job = board.enqueue("look_at_garbage")
    (note,) = eventually(lambda: board.notes(job), what="the look")
    assert note
    resources, share = note.split()
    assert resources == "False"
    assert float(share) < 0.2
