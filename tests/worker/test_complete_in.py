"""`complete_in`: the effects of a handler in the same database happen exactly once, whatever happens to the worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.rig.processes import StartWorker, WorkerProcess
from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import eventually
from tests.worker.complete_apps import EFFECTS, GATE

APP = "tests.worker.complete_apps:app"
BOTH = pytest.mark.parametrize("task", ["pay", "pay_in_thread"])


class Till:
    """The test's database: jobs in, effects out."""

    def __init__(self, database: RigDatabase, start: StartWorker) -> None:
        """Make the table of effects.

        Args:
            database: Where the jobs are.
            start: Starts workers.
        """
        self.database, self._start = database, start
        database.query(EFFECTS)

    def worker(self, *arguments: str) -> WorkerProcess:
        """Start a worker with a short lease."""
        made = self._start(APP, "--lease-seconds", "3", *arguments, env={"TAILRACE_REAPER_SECONDS": "1"})
        return made.wait_ready()

    def enqueue(self, task: str, *, options: dict[str, Any] | None = None, **payload: Any) -> int:
        """Enqueue a job and return its id."""
        values = [task, Jsonb(payload), Jsonb({"max_attempts": 3, **(options or {})})]
        return int(self.database.value("select id from tailrace.enqueue('pay', %s, %s, %s)", values))

    def effects(self, job: int) -> list[int]:
        """The attempts whose effects were committed."""
        return [n for (n,) in self.database.query("select attempt from public.effects where job = %s order by 1", [job])]

    def wait_gone(self, job: int, timeout: float = 30) -> None:
        """Wait until a job has ended, and its lease is gone."""
        live = "select count(*) from tailrace.job where id = %s"
        eventually(lambda: self.database.value(live, [job]) == 0, timeout, what="the job's end")
        held = "select count(*) from tailrace.lease where %s = any (ids)"
        eventually(lambda: self.database.value(held, [job]) == 0, timeout, what="the end of its lease")

    def ends(self) -> dict[str, int]:
        """How jobs ended."""
        rows = self.database.query(
            """select what, sum(n)::int
               from (select what, n from tailrace.tally union all select what, n from tailrace.total) e group by 1"""
        )
        return dict(rows)


@pytest.fixture
def till(database: RigDatabase, worker_process: StartWorker) -> Till:
    return Till(database, worker_process)


@pytest.fixture
def gate(database: RigDatabase) -> Iterator[Connection]:
    """Closed until the connection ends its transaction."""
    with database.connect(autocommit=False) as conn:
        conn.execute("select pg_advisory_xact_lock(%s)", [GATE])
        yield conn


@BOTH
def test_a_completion_that_commits(till: Till, task: str) -> None:
    """Counted once, by the statement that removed the row; the worker writes nothing of it."""
    jobs = [till.enqueue(task) for _ in range(20)]
    worker = till.worker()
    for job in jobs:
        till.wait_gone(job)
        assert till.effects(job) == [1]
    eventually(lambda: worker.metric("tailrace_jobs_completed_total", task=task) == 20, what="the count")
    assert till.ends() == {"succeeded": 20}
    assert worker.metric("tailrace_fenced_writes_total") == 0
    assert worker.metric("tailrace_jobs_failed_total") == 0
    assert worker.metric("tailrace_errors_after_completion_total") == 0


@BOTH
def test_a_completion_that_is_rolled_back_is_tried_again(till: Till, task: str) -> None:
    """The handler returned as if all was well; the job has the error, and its second run has the only effect."""
    undone = till.enqueue(task, how="undo inside")
    raised = till.enqueue(task, how="raise inside")
    last = till.enqueue(task, how="undo inside", options={"max_attempts": 1})
    worker = till.worker()
    for job in (undone, raised, last):
        till.wait_gone(job)
    assert [till.effects(job) for job in (undone, raised, last)] == [[2], [2], []]
    [(reason, errors)] = till.database.query("select reason, errors from tailrace.dead_letter where job_id = %s", [last])
    assert reason == "max_attempts"
    assert errors[0]["type"].endswith("CompletionNotCommitted")
    eventually(lambda: worker.metric("tailrace_jobs_completed_total", task=task) == 2, what="the count")
    assert worker.metric("tailrace_jobs_failed_total", task=task) == 3
    assert worker.metric("tailrace_fenced_writes_total") == 0


@BOTH
def test_an_error_after_the_commit_changes_nothing(till: Till, task: str) -> None:
    """Logged and counted, never tried again."""
    job = till.enqueue(task, how="raise after")
    worker = till.worker()
    record = worker.wait_event("error_after_completion")
    assert (record["job_id"], record["task"]) == (job, task)
    till.wait_gone(job)
    assert till.effects(job) == [1]
    assert till.ends() == {"succeeded": 1}
    assert worker.metric("tailrace_errors_after_completion_total", task=task) == 1
    assert worker.metric("tailrace_jobs_completed_total", task=task) == 1
    assert worker.metric("tailrace_jobs_failed_total") == 0
    assert till.database.value("select count(*) from tailrace.dead_letter") == 0


def test_a_lost_lease_cannot_commit(till: Till, gate: Connection) -> None:
    """FQ-03, CJ-19: the server refuses, also when the handler swallows the error and commits."""
    job = till.enqueue("pay_late")
    worker = till.worker()
    running = "select count(*) from tailrace.job where token is not null"
    eventually(lambda: till.database.value(running) == 1, what="the run")
    till.database.query(  # somebody else has it: a token without a lease would be given back by the sweep
        """insert into tailrace.worker (id, until, version, queues, tasks, slots)
             values ('far', 'tomorrow', '1', '{}', '{}', 1);
           insert into tailrace.lease (token, worker, queue, ids) select 99, 'far', queue, array[id] from tailrace.job"""
    )
    till.database.query("update tailrace.job set token = 99 where id = %s", [job])
    gate.commit()
    eventually(lambda: worker.metric("tailrace_fenced_writes_total") == 1, 15, what="the fenced success")
    assert till.effects(job) == []
    assert till.database.query("select token from tailrace.job") == [(99,)]
    assert till.ends() == {}


@pytest.mark.parametrize(("end", "attempt"), [("commit", 1), ("rollback", 2)])
def test_a_saved_state_waits_for_no_transaction_of_the_handler(till: Till, gate: Connection, end: str, attempt: int) -> None:
    """The worker writes it with the outcome: the row belongs to the handler's transaction until then. Nothing is lost."""
    job = till.enqueue("save_and_wait", end=end)
    worker = till.worker()
    free = "select count(*) from (select from tailrace.job where id = %s for update skip locked) j"
    eventually(lambda: till.database.value(free, [job]) == 0, what="the open completion")
    till.wait_gone(till.enqueue("noop"))
    gate.commit()
    till.wait_gone(job)
    assert till.effects(job) == [attempt]
    assert worker.events("claim_failed") == []


@BOTH
@pytest.mark.parametrize(("where", "effect"), [("inside", 2), ("after", 1)])
def test_a_worker_killed_around_the_commit(till: Till, task: str, where: str, effect: int) -> None:
    """BF-08: before the commit the job runs again, after it never; the effect is there once."""
    job = till.enqueue(task, how=f"kill {where}")
    assert till.worker().wait(30) == -9
    till.worker()
    till.wait_gone(job)
    assert till.effects(job) == [effect]
    assert till.ends()["succeeded"] == 1
    assert till.database.value("select count(*) from tailrace.dead_letter") == 0


def test_a_requeued_job_is_resolved(till: Till) -> None:
    job = till.enqueue("fail", options={"max_attempts": 1})
    worker = till.worker()
    till.wait_gone(job)
    till.database.query("update tailrace.dead_letter set task = 'pay', payload = '{}'")
    till.database.query("select tailrace.requeue_dead_letter(%s)", [job])
    till.wait_gone(job)
    assert till.database.query("select state, resolution from tailrace.dead_letter") == [("resolved", "succeeded")]
    assert till.effects(job) == [1]
    assert worker.metric("tailrace_fenced_writes_total") == 0
    eventually(lambda: worker.metric("tailrace_dead_letters_resolved_total", task="pay") == 1, what="the count")


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_transaction_that_is_open_beyond_the_timeout(till: Till, gate: Connection, end: str) -> None:
    """Asked again each second; nobody waits for it, and what it was is known when it has ended."""
    job = till.enqueue("leave_open", end=end, options={"max_attempts": 1})
    worker = till.worker("--slots", "1")
    assert worker.wait_event("job_timed_out")["job_id"] == job
    others = [till.enqueue("noop") for _ in range(5)]
    for other in others:
        till.wait_gone(other)
    assert till.database.value("select count(*) from tailrace.job where id = %s", [job]) == 1
    gate.commit()
    till.wait_gone(job)
    if end == "commit":
        eventually(lambda: worker.metric("tailrace_jobs_completed_total", task="leave_open") == 1, what="the count")
        assert till.effects(job) == [1]
        assert till.ends() == {"succeeded": 6}
    else:
        assert till.database.query("select reason, error_type from tailrace.dead_letter") == [("timeout", "timeout")]
        assert till.effects(job) == []


def test_the_completion_refuses_in_the_server(till: Till) -> None:
    """Whatever the client does with the error: nothing of the transaction is kept."""
    job = till.enqueue("noop")
    till.database.query("update tailrace.job set token = 7, attempts = 1")
    with till.database.connect(autocommit=False) as conn:
        conn.execute("insert into public.effects values (1, 1, 1)")
        with pytest.raises(psycopg.Error) as refused:
            conn.execute("select tailrace.complete_v1(%s, 8, 'w')", [job])
        assert refused.value.sqlstate == "TR005"
        conn.commit()
    assert till.database.value("select count(*) from public.effects") == 0
    assert till.database.value("select token from tailrace.job") == 7
