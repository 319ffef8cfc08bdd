"""What a worker logs: the job on each record of its run, never a payload, and nothing while it idles."""

from __future__ import annotations

from tests.rig.processes import StartWorker
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.apps:app"
SECRET = "hunter2-must-not-show"


def test_each_record_of_a_run_carries_the_job(worker_process: StartWorker, board: Board) -> None:
    """GW-07, CJ-17: whatever logger and thread it comes from; at debug too the payload does not show.

    Dead is said after the commit.
    """
    jobs = {task: board.enqueue(task, secret=SECRET) for task in ("say", "say_in_thread")}
    misfit = board.enqueue("say", secret=[SECRET], options={"max_attempts": 1})
    worker = worker_process(APP, env={"TAILRACE_LOG_LEVEL": "debug"}).wait_ready()
    board.wait_gone()
    said = [r for r in worker.events() if r["logger"] == "some.library" or r["logger"].startswith("tailrace.task.")]
    assert {r["message"] for r in said} == {
        "from the context's logger",
        "from a library",
        "from a library's thread",
        "from a thread",
    }
    for record in said:
        assert record["job_id"] == jobs[record["task"]], record
        assert (record["queue"], record["attempt"]) == ("work", 1)
    [failed] = eventually(lambda: worker.events("job_failed"), what="the failure's record")
    assert failed["job_id"] == misfit
    assert failed["error_type"] == "validation"
    [dead] = eventually(lambda: worker.events("job_dead"), what="the dead letter's record")
    assert (dead["job_id"], dead["reason"], dead["level"]) == (misfit, "max_attempts", "warning")
    assert SECRET not in worker.output
    others = [r for r in worker.events() if r not in said and r.get("event") not in ("job_failed", "job_dead")]
    assert not [r for r in others if "job_id" in r], others


def test_an_idle_worker_logs_nothing_at_info(worker_process: StartWorker, board: Board) -> None:
    """CJ-22."""
    worker = worker_process(APP, env={"TAILRACE_POLL_SECONDS": "0.05"}).wait_ready()
    eventually(lambda: worker.events("standing_in"), 10, what="the first round of maintenance")
    eventually(lambda: worker.metric("tailrace_worker_polls_total", result="empty") >= 20, what="polls")
    before = len(worker.events())
    polls = worker.metric("tailrace_worker_polls_total", result="empty")
    eventually(lambda: worker.metric("tailrace_worker_polls_total", result="empty") >= polls + 60, what="more polls")
    new = [r for r in worker.events()[before:] if r.get("event") != "standing_in"]
    assert new == []


def test_success_is_silent_at_info(worker_process: StartWorker, board: Board) -> None:
    for _ in range(50):
        board.enqueue("mark")
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    assert not [r for r in worker.events() if "job_id" in r]
