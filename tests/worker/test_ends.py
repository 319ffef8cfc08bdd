"""Ends that are not an exception: timeouts, cancels, snoozes, payloads that do not fit, jobs that must not run."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.rig.processes import StartWorker
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.apps:app"


def test_a_hung_job_is_ended_at_its_timeout(worker_process: StartWorker, board: Board) -> None:
    """FQ-12, CJ-04: an async handler is cancelled; a thread is told and its outcome stays a timeout though it returned."""
    jobs = {board.enqueue(task, options={"max_attempts": most}): most for task in ("hang", "hang_in_thread") for most in (1, 3)}
    own = board.enqueue("nap", seconds=60, options={"timeout": 0.3, "max_attempts": 1})
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    dead = board.dead()
    for job, most in jobs.items():
        reason, kind, attempts, errors = dead[job]
        assert (reason, kind, attempts) == ("timeout", "timeout", most)
        assert board.notes(job) == ["timeout"] * most
        assert len(errors) == most
        assert "TimeoutError" in errors[0]["type"]
    assert dead[own][0] == "timeout"
    eventually(lambda: worker.metric("tailrace_jobs_failed_total", error_type="timeout", final="true") == 5, what="the counts")
    assert worker.running


@pytest.mark.parametrize("by", ["library", "sql"])
def test_a_running_job_is_cancelled(worker_process: StartWorker, board: Board, by: str) -> None:
    """FQ-27: told within a second, counted, no dead letter; async by cancellation, a thread by its signal."""
    jobs = [board.enqueue(task) for task in ("wait_for_stop", "wait_for_stop_in_thread")]
    waiting = board.enqueue("mark", options={"delay": 600})
    worker = worker_process(APP).wait_ready()
    board.wait_lines(2)
    for job in [*jobs, waiting]:
        if by == "sql":
            board.conn.execute("select tailrace.cancel(%s)", [job])
        else:
            from tests.worker.apps import app

            app.using(board.conn).jobs.cancel(job)
    board.wait_gone(timeout=15)
    for job in jobs:
        assert board.notes(job) == ["began", "cancel"]
    assert board.dead() == {}
    eventually(lambda: worker.metric("tailrace_jobs_interrupted_total", reason="cancel", queue="work") == 2, what="the counts")
    assert board.ends() == {"cancelled": 3}
    assert board.value("select count(*) from tailrace.cancel_request") == 0


def test_a_snooze_costs_nothing_and_a_saved_state_survives(worker_process: StartWorker, board: Board) -> None:
    """Four snoozes with two attempts; ctx.saved through snooze and retry."""
    snoozed = board.enqueue("snooze", times=4, options={"max_attempts": 2})
    retried = board.enqueue("remember")
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    assert board.notes(snoozed) == ["0", "1", "2", "3", "4"]
    assert {line.attempt for line in board.lines(snoozed)} == {1}
    assert board.notes(retried) == [None, "{'attempt': 1}", "{'attempt': 2}"]
    assert board.dead() == {}
    eventually(lambda: worker.metric("tailrace_jobs_completed_total") == 2, what="the counts")
    assert worker.metric("tailrace_job_duration_seconds_count", task="snooze", outcome="snoozed") == 4


def test_retries_of_a_fast_policy_do_not_wait_for_the_poll(worker_process: StartWorker, board: Board) -> None:
    job = board.enqueue("remember")
    worker_process(APP, env={"TAILRACE_POLL_SECONDS": "30", "TAILRACE_NOTIFY": "false"}).wait_ready()
    board.wait_gone(timeout=20)
    took = board.value("select max(at) - min(at) from public.ledger where job = %s", [job])
    assert took.total_seconds() < 10


def test_on_error_decides_instead_of_the_policy(worker_process: StartWorker, board: Board) -> None:
    """BF-38: the hook's NoRetry is dead on the first failure; a broken hook loses nothing."""
    jobs = {
        how: board.enqueue("hooked", how=how, options={"max_attempts": 3})
        for how in ("refused", "away", "broken", "other", "own word")
    }
    worker_process(APP).wait_ready()
    board.wait_gone()
    dead = board.dead()
    assert dead[jobs["refused"]][:2] == ("permanent", "forbidden")  # the hook has decided, the handler's error is what was wrong
    assert board.notes(jobs["refused"]) == ["run", "asked about PermissionError"]
    for how in ("away", "broken", "other"):
        assert dead[jobs[how]][::2] == ("max_attempts", 3), how
        assert board.notes(jobs[how]).count("run") == 3
    assert dead[jobs["away"]][1] == "rate_limit"
    assert dead[jobs["other"]][3][0]["type"] == "ValueError"
    assert board.notes(jobs["own word"]) == ["run"]


def test_payloads_that_do_not_fit(worker_process: StartWorker, board: Board) -> None:
    """CJ-14: no object is dead at once; a field too few is retried, since a newer worker may know it. Neighbours go on."""
    board.conn.execute("alter table tailrace.job disable trigger job_rules")
    broken = [
        int(
            board.value(
                "insert into tailrace.job (queue, task, payload) values ('work', 'needs_number', %s) returning id", [Jsonb(p)]
            )
        )
        for p in ([1], "text", 7, None)
    ]
    board.conn.execute("alter table tailrace.job enable trigger job_rules")
    missing = board.enqueue("needs_number", options={"max_attempts": 2})
    wrong = board.enqueue("needs_number", number="seven", options={"max_attempts": 1})
    extra = board.enqueue("needs_number", number=1, more=2, options={"max_attempts": 1})
    good = [board.enqueue("needs_number", number=n) for n in range(20)]
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    dead = board.dead()
    for job in broken:
        assert dead[job][:3] == ("permanent", "validation", 1)
    for job, attempts in ((missing, 2), (wrong, 1), (extra, 1)):
        assert dead[job][:3] == ("max_attempts", "validation", attempts)
        assert "InvalidPayload" in dead[job][3][0]["type"]
        assert board.lines(job) == []
    assert "seven" not in str(dead[wrong][3])  # GW-07: the payload is repeated nowhere
    assert sorted(line.job for line in board.lines()) == good
    eventually(lambda: worker.metric("tailrace_jobs_failed_total", error_type="validation", final="true") == 7, what="the counts")


def test_jobs_that_must_not_run(worker_process: StartWorker, board: Board) -> None:
    """BF-03, FQ-27: exhausted already: dead without a run. Past its time: expired. Both leave the table, both are counted."""
    exhausted = board.enqueue("mark", options={"max_attempts": 2})
    board.conn.execute("update tailrace.job set attempts = 2 where id = %s", [exhausted])
    beyond = board.enqueue("mark", options={"max_attempts": 2})
    board.conn.execute("update tailrace.job set attempts = 7 where id = %s", [beyond])
    last_legal = board.enqueue("mark", options={"max_attempts": 2})
    board.conn.execute("update tailrace.job set attempts = 1 where id = %s", [last_legal])
    expired = board.enqueue("mark", options={"expires_in": 3600})
    board.conn.execute("update tailrace.job set expires_at = clock_timestamp() where id = %s", [expired])
    in_time = board.enqueue("mark", options={"expires_in": 3600})
    worker_process(APP).wait_ready()
    board.wait_gone()
    assert [line.job for line in board.lines()] == [last_legal, in_time]
    assert {job: letter[::2][:2] for job, letter in board.dead().items()} == {
        exhausted: ("max_attempts", 2),
        beyond: ("max_attempts", 7),
    }
    assert board.ends() == {"dead": 2, "expired": 1, "succeeded": 2}


def test_the_last_ten_errors_are_kept(worker_process: StartWorker, board: Board) -> None:
    """FQ-16."""
    backoff = {"strategy": "fixed", "base": 0, "cap": 0, "jitter": 0}
    job = board.enqueue("fail", how="error", options={"max_attempts": 13, "backoff": backoff})
    worker_process(APP).wait_ready()
    board.wait_gone()
    errors = board.dead()[job][3]
    assert [e["attempt"] for e in errors] == list(range(4, 14))
    assert all("in fail" in e["traceback"] and e["time"] and e["worker"] for e in errors)


def test_a_row_that_cannot_be_read_costs_no_slot(worker_process: StartWorker, board: Board) -> None:
    """CJ-07, CJ-14: a backoff that a hand has spoilt; the run is recorded and the others go on."""
    spoilt = board.enqueue("fail", how="error", options={"max_attempts": 1})
    board.conn.execute("""update tailrace.job set backoff = '"x"' where id = %s""", [spoilt])
    others = [board.enqueue("mark") for _ in range(3)]
    worker = worker_process(APP, "--slots", "1").wait_ready()
    board.wait_gone()
    assert board.dead()[spoilt][::2][:2] == ("max_attempts", 1)
    assert [line.job for line in board.lines(task="mark")] == others
    assert worker.metric("tailrace_worker_slots", state="busy") == 0


def test_jobs_of_a_lane_do_not_share_context_variables_or_cancellations(worker_process: StartWorker, board: Board) -> None:
    colours = ["red", "green", "blue"]
    jobs = [board.enqueue(task, colour=c) for task in ("paint", "paint_in_thread") for c in colours]
    board.enqueue("cancel_itself", options={"max_attempts": 1})
    counted = board.enqueue("count_cancellations")
    worker_process(APP, "--slots", "1").wait_ready()
    board.wait_gone()
    for job in jobs:
        assert board.notes(job) == [""]
    assert board.notes(counted) == ["0"]


def test_a_job_that_kills_its_process_is_dead_in_the_end_and_harms_its_neighbours_once(
    worker_process: StartWorker, board: Board
) -> None:
    """CJ-05, GW-04, CJ-07, FQ-02: a crash is charged; lost jobs run alone, so the poison takes none along the second time."""
    env = {"TAILRACE_LEASE_SECONDS": "3", "TAILRACE_REAPER_SECONDS": "1"}
    keeper = worker_process(APP, "--queue", "quiet", env=env).wait_ready()  # its reaper lives on
    neighbours = [board.enqueue("mark") for _ in range(10)]
    poison = board.enqueue("poison", options={"max_attempts": 3})
    neighbours += [board.enqueue("mark") for _ in range(30)]
    backoff = {"strategy": "fixed", "base": 0, "cap": 0, "jitter": 0}
    board.conn.execute("update tailrace.job set backoff = %s", [Jsonb(backoff)])
    for _ in range(3):
        worker = worker_process(APP, "--queue", "work=4", env=env)
        assert worker.wait(25) == 9
    last = worker_process(APP, "--queue", "work=4", env=env).wait_ready()
    board.wait_gone(timeout=20)
    reason, _, attempts, errors = board.dead()[poison]
    assert set(board.dead()) == {poison}
    assert (reason, attempts, len(errors)) == ("lease_expired", 3, 3)
    assert [line.attempt for line in board.lines(poison)] == [1, 2, 3]
    assert {line.job for line in board.lines(task="mark")} == set(neighbours)
    assert max(line.attempt for line in board.lines(task="mark")) <= 2
    assert last.running
    reapers = (keeper, last)  # each stands in when the other is late
    eventually(lambda: sum(one.metric("tailrace_leases_reclaimed_total") for one in reapers) >= 3, what="the reapers' counters")
