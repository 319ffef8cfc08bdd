"""Middlewares around runs and hooks after deaths, in real workers; `hook_apps` says what each job's meta makes them do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.rig.processes import StartWorker
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.hook_apps:app"
AT_ONCE = {"strategy": "fixed", "base": 0.05, "cap": 0.05, "jitter": 0}
PAGE, NOTE = "page: {} dead 0", "note on tailrace-on-dead: {} dead 0"


def put(board: Board, task: str, *, tenant: str = "acme", options: dict[str, Any] | None = None, **meta: Any) -> int:
    """Enqueue a job whose meta tells the hooks what to do."""
    return board.enqueue(task, options={"tenant": tenant, "meta": meta, "max_attempts": 2, "backoff": AT_ONCE, **(options or {})})


def told(board: Board, job: int) -> list[str | None]:
    """What the on_dead hooks wrote about a job."""
    return [line.note for line in board.lines(job, task="on_dead")]


def wait_told(board: Board, jobs: list[int]) -> None:
    """Wait until both hooks have written about each of these jobs."""
    eventually(lambda: all(len(told(board, job)) >= 2 for job in jobs), what="the on_dead hooks")


# ---- around each run -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("task", ["look", "look_in_thread"])
def test_middleware_goes_around_each_run(worker_process: StartWorker, board: Board, task: str) -> None:
    """Async handlers and threads; the first registered is outermost; what it sets the handler sees."""
    job = put(board, task)
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    assert board.notes(job) == ["outer in", "ran in 'acme'", "returned 1", "outer out"]
    eventually(lambda: worker.metric("tailrace_jobs_completed_total", task=task) == 1, what="the count")


def test_handlers_without_a_context_are_wrapped_too(worker_process: StartWorker, board: Board) -> None:
    """And the scope of one job is not there in the next, even when the middleware leaves it behind."""
    jobs = [put(board, task, tenant=f"t{n}", leave=True) for n, task in enumerate(["bare", "bare_in_thread"] * 3)]
    worker_process(APP, "--slots", "1").wait_ready()
    board.wait_gone()
    for job in jobs:
        assert board.notes(job) == ["outer in", "returned bare", "outer out"]
    assert [line.note for line in board.lines(task="handler")] == [f"bare in 't{n}'" for n in range(6)]


def test_a_missing_context_is_an_error(worker_process: StartWorker, board: Board) -> None:
    """FQ-25: the middleware refuses a job without a tenant; its handler never runs, and the next job has no scope of another."""
    lost = put(board, "look", tenant="")
    fine = put(board, "look", tenant="acme")
    worker_process(APP, "--slots", "1").wait_ready()
    board.wait_gone()
    assert board.notes(lost)[:3] == ["outer in", "outer saw NoRetry", "outer out"]
    assert board.dead()[lost][0] == "permanent"
    assert "ran in 'acme'" in board.notes(fine)


@pytest.mark.parametrize("task", ["look", "look_in_thread"])
def test_what_a_middleware_raises_ends_the_run(worker_process: StartWorker, board: Board, task: str) -> None:
    """As if the handler had raised it: permanent, exact delay, no cost, or by the policy."""
    jobs = {how: put(board, task, do=how) for how in ("no retry", "later", "snooze", "error", "exit", "iteration")}
    worker_process(APP).wait_ready()
    board.wait_gone()
    assert {job: letter[0] for job, letter in board.dead().items()} == {jobs["no retry"]: "permanent"}
    for how, attempts in {"later": 2, "snooze": 1, "error": 2, "exit": 2, "iteration": 2}.items():
        assert [line.attempt for line in board.lines(jobs[how]) if line.note == "ran in 'acme'"] == [attempts], how
    assert not any((note or "").startswith("ran") for note in board.notes(jobs["no retry"]))


def test_a_middleware_may_answer_instead_and_may_fail_after(worker_process: StartWorker, board: Board) -> None:
    answered, failed, greedy = (put(board, "look", do=do) for do in ("answer", "fail after", "twice"))
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    assert board.notes(answered) == ["outer in", "outer out"]
    assert worker.metric("tailrace_jobs_completed_total", task="look") == 1
    dead = board.dead()
    assert dead[failed][::2] == ("max_attempts", 2)
    assert "Conflict" in dead[greedy][3][0]["type"]
    assert [line.attempt for line in board.lines(greedy) if line.note == "ran in 'acme'"] == [1, 2]


def test_a_payload_that_does_not_fit_reaches_no_middleware(worker_process: StartWorker, board: Board) -> None:
    job = board.enqueue("look", options={"tenant": "acme", "max_attempts": 1}, number="seven")
    worker_process(APP).wait_ready()
    board.wait_gone()
    assert "InvalidPayload" in board.dead()[job][3][0]["type"]
    assert board.lines(job, task="look") == []


@pytest.mark.parametrize("task", ["look", "look_in_thread"])
def test_the_timeout_covers_the_middleware(worker_process: StartWorker, board: Board, task: str) -> None:
    """FQ-12: before and after the handler, of a thread too."""
    jobs = [put(board, task, do=f"hang {when}", options={"timeout": 1, "max_attempts": 1}) for when in ("before", "after")]
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    dead = board.dead()
    assert [dead[job][0] for job in jobs] == ["timeout", "timeout"]
    assert board.notes(jobs[0])[:3] == ["outer in", "outer saw CancelledError", "outer out"]
    assert worker.running


def test_a_cancel_reaches_the_middleware(worker_process: StartWorker, board: Board) -> None:
    job = put(board, "wait_for_stop")
    worker_process(APP).wait_ready()
    eventually(lambda: "began" in board.notes(job), what="the handler")
    board.conn.execute("select tailrace.cancel(%s)", [job])
    board.wait_gone()
    assert board.notes(job) == ["outer in", "began", "outer saw CancelledError", "outer out"]
    assert board.dead() == {}
    assert board.ends() == {"cancelled": 1}


def test_a_middleware_that_gives_up_a_thread_does_not_let_runs_overlap(worker_process: StartWorker, board: Board) -> None:
    """A thread cannot be cancelled: it is told to stop, and the run ends when it has."""
    job = put(board, "slow_in_thread", do="give up")
    worker_process(APP).wait_ready()
    board.wait_gone()
    notes = [line.note for line in board.lines(job, task="slow_in_thread")]
    assert notes == ["outer in", "began", "ended timeout", "outer saw TimeoutError", "outer out"] * 2
    assert board.dead()[job][0] == "max_attempts"


# ---- after a death ---------------------------------------------------------------------------------------------------
def test_each_way_to_die_here_is_told_once_after_its_commit(worker_process: StartWorker, board: Board) -> None:
    """FQ-12, FQ-27, BF-38: NoRetry, the last failure, a timeout, an exhausted and an unreadable job; no other end is told."""
    reasons = {
        put(board, "refuse"): "permanent",
        put(board, "fail"): "max_attempts",
        put(board, "hang", options={"max_attempts": 1, "timeout": 0.2}): "timeout",
    }
    exhausted = put(board, "look", options={"max_attempts": 2})
    board.conn.execute("update tailrace.job set attempts = 2 where id = %s", [exhausted])
    board.conn.execute("alter table tailrace.job disable trigger job_rules")
    insert = "insert into tailrace.job (queue, task, payload) values ('work', 'look', %s) returning id"
    unreadable = board.value(insert, [Jsonb([1])])
    board.conn.execute("alter table tailrace.job enable trigger job_rules")
    reasons |= {exhausted: "max_attempts", unreadable: "permanent"}
    others = [put(board, "look"), put(board, "look", do="later"), put(board, "look", do="snooze")]
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    wait_told(board, list(reasons))
    worker.terminate()
    assert worker.wait(20) == 0
    for job, reason in reasons.items():
        assert told(board, job) == [PAGE.format(reason), NOTE.format(reason)]
    for job in others:
        assert told(board, job) == []


def test_a_hook_that_fails_changes_nothing(worker_process: StartWorker, board: Board) -> None:
    """Logged and counted; the other hooks are called, the dead letter is as it was, the worker goes on."""
    jobs = {trouble: put(board, "refuse", trouble=trouble) for trouble in ("error", "exit", "cancel", "in a thread")}
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    last = put(board, "refuse")
    wait_told(board, [last])
    for trouble, job in jobs.items():
        expected = [PAGE.format("permanent"), NOTE.format("permanent")]
        assert told(board, job) == expected[: 1 if trouble == "in a thread" else 2], trouble
        assert board.dead()[job][0] == "permanent"
    failed = {record["job_id"]: record for record in worker.events("hook_failed")}
    assert set(failed) == set(jobs.values())
    assert failed[jobs["error"]]["hook"] == "tests.worker.hook_apps.troubled"
    assert failed[jobs["error"]]["error"] == "ConnectionError"
    assert "pager is away" in failed[jobs["error"]]["exception"]
    for result, n in (("error", 4), ("ok", 11)):
        told_so = {"queue": "work", "result": result}
        eventually(lambda: worker.metric("tailrace_dead_letter_hooks_total", **told_so) == n, what=f"{n} {result}")  # noqa: B023


def test_a_job_that_dies_again_is_told_again(worker_process: StartWorker, board: Board) -> None:
    job = put(board, "refuse")
    worker_process(APP).wait_ready()
    wait_told(board, [job])
    board.conn.execute("select tailrace.requeue_dead_letter(%s)", [job])
    eventually(lambda: len(told(board, job)) == 4, what="the second death")
    assert board.value("select dead_count from tailrace.dead_letter where job_id = %s", [job]) == 2


def test_a_job_that_is_dropped_leaves_nothing_to_tell(worker_process: StartWorker, board: Board) -> None:
    board.conn.execute("select tailrace.apply_queue('work', %s, 'cli')", [Jsonb({"exhaustedPolicy": "Discard"})])
    dropped = put(board, "refuse")
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    worker.terminate()
    assert worker.wait(20) == 0
    assert board.ends() == {"dropped": 1}
    assert told(board, dropped) == []


def test_hooks_that_wait_are_called_before_the_worker_ends(worker_process: StartWorker, board: Board) -> None:
    """Within the drain time, while the application's resources are still open."""
    jobs = [put(board, "refuse", trouble="slow") for _ in range(6)]
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    worker.terminate()
    assert worker.wait(20) == 0
    for job in jobs:
        assert len(told(board, job)) == 2
    assert worker.events("hook_skipped") == []


def test_a_hook_that_hangs_does_not_hold_the_worker(worker_process: StartWorker, board: Board) -> None:
    """What was not told when the drain time is over is logged and counted; the dead letters are there all the same."""
    jobs = [put(board, "refuse", trouble="hang") for _ in range(3)]
    worker = worker_process(APP, env={"TAILRACE_DRAIN_TIMEOUT_SECONDS": "1"}).wait_ready()
    board.wait_gone()
    worker.terminate()
    assert worker.wait(15) == 0
    assert {record["job_id"] for record in worker.events("hook_skipped")} == set(jobs)
    assert set(board.dead()) == set(jobs)


def test_a_worker_that_died_tells_nobody(worker_process: StartWorker, board: Board) -> None:
    """The reaper of another worker writes that dead letter: no hook, but the same event count for alerts."""
    job = put(board, "kill", options={"max_attempts": 1})
    env = {"TAILRACE_REAPER_SECONDS": "1"}
    first = worker_process(APP, "--lease-seconds", "3", env=env)
    assert first.wait(20) == 9
    second = worker_process(APP, "--lease-seconds", "3", env=env).wait_ready()
    eventually(lambda: job in board.dead(), 30, what="the reaper")
    eventually(lambda: second.metric("tailrace_dead_letters_added_total", queue="work") == 1, what="the count")
    second.terminate()
    assert second.wait(20) == 0
    assert board.dead()[job][0] == "lease_expired"
    assert told(board, job) == []


def test_the_names_of_hooks_are_not_their_payloads(worker_process: StartWorker, board: Board) -> None:
    """GW-07: what is logged about a hook has no payload."""
    board.enqueue("look", options={"tenant": "acme", "meta": {"trouble": "error", "do": "no retry"}}, number=918273645)
    worker = worker_process(APP).wait_ready()
    eventually(lambda: worker.events("hook_failed"), what="the failed hook")
    assert not re.search("918273645", worker.output)
