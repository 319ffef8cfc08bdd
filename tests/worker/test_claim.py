"""Claims of real workers: each job once, only what is known and served, in order, and never more than can be started."""

from __future__ import annotations

import itertools
import threading
from datetime import datetime

from tests.rig.processes import StartWorker
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.apps:app"


def test_each_job_runs_once_under_eight_workers(worker_process: StartWorker, board: Board) -> None:
    """a4, GW-01, FQ-03 by way of the tokens; BF-35 at the end: everything that was taken is finished or given back."""
    workers = [worker_process(APP, "--slots", str(1 + n % 4), "--queue", "work") for n in range(8)]
    for n in range(1500):
        board.enqueue("mark", note=str(n), options={"priority": n % 3})
    board.fill("mark", 500)
    for worker in workers:
        worker.wait_ready()
    board.fill("mark", 1000)
    board.wait_gone(40)
    lines = board.lines()
    assert len(lines) == len({line.job for line in lines}) == 3000
    assert {line.attempt for line in lines} == {1}
    assert board.dead() == {}
    assert board.value("select count(*) from tailrace.lease") == 0
    assert board.ends() == {"succeeded": 3000}
    eventually(lambda: sum(w.metric("tailrace_jobs_completed_total") for w in workers) == 3000, what="the last answers")
    assert sum(w.metric("tailrace_fenced_writes_total") for w in workers) == 0


def test_a_worker_takes_what_it_knows_of_its_own_queues(worker_process: StartWorker, board: Board) -> None:
    """FQ-13, CJ-15, FQ-14: unknown tasks and other queues stay as they are, no attempt is charged."""
    unknown = board.enqueue("written_by_a_newer_release", n=1)
    module_path = board.enqueue("tests.worker.apps.mark")
    foreign = board.enqueue("mark", queue="another")
    known = [board.enqueue("mark") for _ in range(5)]
    before = {job: board.row(job) for job in (unknown, module_path, foreign)}
    worker = worker_process(APP, "--queue", "work").wait_ready()
    board.wait_gone(left=3)
    eventually(lambda: worker.metric("tailrace_worker_polls_total", result="empty") >= 3, what="polls that find nothing")
    assert {job: board.row(job) for job in before} == before
    assert [line.job for line in board.lines()] == known
    stats = board.conn.execute("select unclaimable from tailrace.queue_stats('work')").fetchone()
    assert stats == (2,)


def test_the_order_is_priority_run_at_id(worker_process: StartWorker, board: Board) -> None:
    """CJ-10, FQ-20, CJ-11: also among equal times, whatever the place in the table, and within one batch."""
    base = "timestamptz '2026-01-01'"
    for number, (priority, second) in enumerate(itertools.product((0, 5, -2), (3, 1, 2, 1))):
        board.conn.execute(
            f"""insert into tailrace.job (queue, task, payload, priority, run_at)
                values ('work', 'mark', '{{}}', %s, {base} + %s * interval '1 s')""",
            [priority, second],
        )
        if number % 3 == 0:  # moves the row to another place in the table
            board.conn.execute("update tailrace.job set meta = '{}' where id = (select max(id) from tailrace.job)")
    expected = [j for (j,) in board.conn.execute("select id from tailrace.job order by priority desc, run_at, id").fetchall()]
    worker_process(APP, "--slots", "1").wait_ready()
    board.wait_gone()
    assert [line.job for line in board.lines()] == expected


def test_a_retried_or_delayed_job_does_not_overtake_older_ones(worker_process: StartWorker, board: Board) -> None:
    """CJ-10, FQ-20: the low id of a job that fails, or waited for its time, gives it no place before what is due longer."""
    backoff = {"strategy": "fixed", "base": 0.3, "cap": 0.3, "jitter": 0}
    failing = board.enqueue("fail", how="error", options={"max_attempts": 2, "backoff": backoff})
    delayed = board.enqueue("mark", options={"delay": 600})
    board.fill("nap", 60, payload={"seconds": 0.02})
    board.conn.execute("update tailrace.job set run_at = clock_timestamp() + interval '0.3 s' where id = %s", [delayed])
    worker_process(APP, "--slots", "1").wait_ready()
    board.wait_gone()
    order = [line.job for line in board.lines() if line.note != "ended"]
    assert order[0] == failing
    naps_before = order.index(failing, 1) - 1 - (delayed in order[: order.index(failing, 1)])
    assert naps_before == 60
    assert order.index(delayed) > 60


def test_a_worker_never_holds_more_long_jobs_than_it_has_slots(worker_process: StartWorker, board: Board) -> None:
    """FQ-04: two slots, a hundred jobs of a second."""
    board.fill("nap", 100, payload={"seconds": 1.0})
    worker_process(APP, "--slots", "2").wait_ready()
    most = 0

    def six_began() -> bool:
        nonlocal most
        held = board.value("select count(*) from tailrace.job where token is not null")
        leased = board.value(  # a lease of two goes on naming the one that has ended
            """select count(*) from tailrace.lease l cross join unnest(l.ids) i(id)
               join tailrace.job j on j.id = i.id and j.token = l.token"""
        )
        most = max(most, held, leased)
        return sum(line.note == "began" for line in board.lines()) >= 6

    eventually(six_began, 40, what="six jobs")
    assert most == 2


def test_short_jobs_are_taken_ahead_and_slow_ones_are_given_back(worker_process: StartWorker, board: Board) -> None:
    """FQ-04: what was fetched as tiny and turns out slow goes back, so that the other worker has its share."""
    workers = [worker_process(APP, "--slots", slots, "--queue", "work") for slots in ("10", "10")]
    for worker in workers:
        worker.wait_ready()
    board.fill("noop", 20_000)
    board.fill("nap", 120, payload={"seconds": 0.2})
    board.wait_gone()
    naps = [line for line in board.lines(task="nap") if line.note == "began"]
    assert len(naps) == 120
    assert {line.attempt for line in naps} == {1}  # what was given back was not charged
    shares = [sum(line.pid == w.pid for line in naps) for w in workers]
    assert min(shares) >= 30, shares  # 60 when both are busy all the time


def test_last_attempts_are_not_taken_ahead(worker_process: StartWorker, board: Board) -> None:
    """Engine rule 3: none may die unrun with its process; and it stays quick."""
    board.conn.execute(
        """insert into tailrace.job (queue, task, payload, max_attempts)
           select 'work', case when n % 40 = 0 then 'mark' else 'noop_once' end, '{}', 1 from generate_series(1, 4000) n"""
    )
    worker = worker_process(APP, "--slots", "10").wait_ready()
    board.wait_gone(20)
    assert worker.metric("tailrace_jobs_handed_back_total") <= 3000
    assert len(board.lines()) == 100


def test_delayed_jobs_start_when_due_and_never_early(worker_process: StartWorker, board: Board) -> None:
    """FQ-20."""
    worker = worker_process(APP).wait_ready()
    eventually(lambda: worker.metric("tailrace_worker_polls_total", result="empty") >= 2, what="an idle worker")
    with board.conn.transaction():  # none has run yet when its time is read
        jobs = [board.enqueue("mark", options={"delay": 1.3 + n * 0.037}) for n in range(20)]
        due: dict[int, datetime] = dict(board.conn.execute("select id, run_at from tailrace.job").fetchall())
    board.wait_gone()
    began: dict[int, datetime] = dict(board.conn.execute("select job, at from public.ledger").fetchall())
    late = sorted((began[job] - due[job]).total_seconds() for job in jobs)
    assert late[0] >= 0
    assert late[len(late) // 2] < 0.3, late
    assert late[-1] < 5, late


def test_queues_of_one_worker_take_turns(worker_process: StartWorker, board: Board) -> None:
    """FQ-19: a queue with a backlog does not keep another one waiting."""
    board.fill("noop", 30_000, queue="big")
    board.fill("nap", 200, queue="slow", payload={"seconds": 0.5})
    worker_process(APP, "--queue", "big=10", "--queue", "slow=2", "--queue", "small=2").wait_ready()
    board.wait_lines(2)
    job = board.enqueue("mark", queue="small")
    eventually(lambda: board.lines(job), what="the job of the small queue")
    eventually(
        lambda: board.value("select count(*) from tailrace.job where queue = 'big'") == 0, 20, what="the end of the big queue"
    )
    assert board.value("select count(*) from tailrace.job where queue = 'slow'") > 50


def test_a_held_queue_claims_nothing_and_resumes(worker_process: StartWorker, board: Board) -> None:
    board.conn.execute("select tailrace.hold_queue('work')")
    jobs = [board.enqueue("mark") for _ in range(20)]
    worker = worker_process(APP).wait_ready()
    eventually(lambda: worker.metric("tailrace_worker_polls_total", result="empty") >= 3, what="polls")
    assert board.lines() == []
    polls = worker.metric("tailrace_worker_polls_total")
    eventually(lambda: worker.metric("tailrace_worker_polls_total") >= polls + 2, what="two more polls")
    assert board.value("select count(*) from tailrace.job where attempts = 0 and token is null") == 20
    board.conn.execute("select tailrace.resume_queue('work')")
    board.wait_gone()
    assert [line.job for line in board.lines()] == jobs


def test_no_row_looks_claimed_to_one_statement_and_free_to_another(worker_process: StartWorker, board: Board) -> None:
    """CJ-13: the token alone says who runs a job; a row without one is claimable, whatever else it carries."""
    job = board.enqueue("mark")
    board.conn.execute(
        """update tailrace.job set attempts = 1, interrupted = 3, snoozes = 4, errors = '[{"type": "x"}]', saved = '{}'
           where id = %s""",
        [job],
    )
    worker_process(APP).wait_ready()
    board.wait_gone()
    assert [line.attempt for line in board.lines(job)] == [2]


def test_rows_that_change_while_they_are_claimed(worker_process: StartWorker, board: Board, database: RigDatabase) -> None:
    """GW-01: a waiting job that is replaced at this very moment is taken by a later claim, and no lease is left of the first."""
    worker = worker_process(APP, "--slots", "3", env={"TAILRACE_LEASE_SECONDS": "3"}).wait_ready()
    done = threading.Event()

    def replace() -> None:
        with database.connect() as conn:
            while not done.is_set():
                conn.execute(
                    """select tailrace.enqueue('work', 'noop', '{}',
                                               jsonb_build_object('key', 'k' || n, 'on_duplicate', 'replace'))
                       from generate_series(1, 4) n"""
                )

    threads = [threading.Thread(target=replace) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: worker.metric("tailrace_jobs_completed_total") >= 500, 60, what="many ends")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    board.wait_gone()
    eventually(lambda: board.value("select count(*) from tailrace.lease") == 0, 10, what="no leases")
    assert worker.metric("tailrace_fenced_writes_total") == 0
