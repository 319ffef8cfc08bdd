"""/metrics, /livez and /readyz of a real worker."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from psycopg.types.json import Jsonb

from tailrace import App
from tailrace.histogram import Histogram
from tailrace.names import metrics as names
from tailrace_worker.bound import BoundTask
from tailrace_worker.metrics import State, registry
from tests.engine.aged_letters import letter
from tests.engine.rows import Rows
from tests.rig.processes import StartWorker, WorkerProcess
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.apps:app"


def families(worker: WorkerProcess) -> dict[str, tuple[str, str]]:
    """Return name → kind and help text, as the exposition tells them."""
    page = worker.get("/metrics")[1]
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", page, re.MULTILINE))
    return {name: (kind, helps[name]) for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE)}


def test_every_declared_metric_is_there_before_its_first_event(worker_process: StartWorker, board: Board) -> None:
    """BF-51: name, kind and help as declared."""
    worker = worker_process(APP).wait_ready()
    shown = families(worker)
    for metric in names.ALL:
        if metric is not names.JOBS_ENQUEUED:
            assert shown[metric.name] == (metric.kind, metric.help), metric.name


def test_samples_have_the_declared_labels(worker_process: StartWorker, board: Board) -> None:
    """BF-51, BF-33: labels from fixed sets, whatever runs; each family that has samples has exactly its labels."""
    board.enqueue("mark", options={"priority": 12})
    board.enqueue("fail", how="error", options={"max_attempts": 1})
    board.enqueue("snooze", times=1)
    worker = worker_process(APP, env={"TAILRACE_NAMESPACE": "shop"}).wait_ready()
    board.wait_gone()
    declared = {m.name: m for m in names.ALL}
    seen = set()
    for line in worker.get("/metrics")[1].splitlines():
        match = re.match(r"(tailrace_\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? \S+$", line)
        if match is None:
            continue
        name, suffix, labels = match.groups()
        metric = declared.get(name) or declared[name + (suffix or "")]
        found = [label for label in re.findall(r'(\w+)="', labels or "") if label != "le"]
        assert sorted(found) == sorted(metric.labels), line
        if "namespace" in found:
            assert 'namespace="shop"' in line
        seen.add(metric.name)
    assert seen >= {
        "tailrace_jobs_claimed_total",
        "tailrace_jobs_failed_total",
        "tailrace_job_wait_seconds",
        "tailrace_build_info",
    }


def test_series_are_bounded_by_the_application_not_by_what_is_enqueued() -> None:
    """BF-33: of 300 tasks a hundred have series of their own, the rest share one; tasks of other queues have none."""
    app = App("q")
    for number in range(300):

        @app.task(name=f"task-{number}")
        async def handler() -> None: ...

    @app.task(queue="elsewhere")
    async def foreign() -> None: ...

    bound = {name: BoundTask(task) for name, task in app.tasks.items()}
    for task in bound.values():
        task.completed = 2
    lanes = SimpleNamespace(tasks=bound, busy=0, slots=[1], fenced=0, interrupted={})
    empty = Histogram((1.0,))
    consumer: Any = SimpleNamespace(queue="q", lanes=lanes, polls={}, durations=empty, sizes=empty, handed_back=0)
    found = registry(State(consumers=[consumer]))
    [family] = [f for f in found.collect() if f.name == "tailrace_jobs_completed"]
    shown = {sample.labels["task"]: sample.value for sample in family.samples}
    assert len(shown) == 101
    assert shown["other"] == 400
    assert "foreign" not in shown


def test_the_routines_of_a_worker_that_stands_in_are_counted(worker_process: StartWorker, board: Board) -> None:
    """BF-30, BF-36: runs, durations and the last success of each routine; what retention deletes and the rule brings back."""
    settings = {
        "deadLetters": {"retentionSeconds": 86_400, "autoRequeue": {"afterSeconds": 60, "maxTimes": 1, "errorTypes": ["network"]}}
    }
    board.conn.execute("select tailrace.apply_queue('work', %s, 'cli')", [Jsonb(settings)])
    rows = Rows(board.conn)
    letter(rows, queue="work", task="mark", age=90_000, error_type="unknown")
    letter(rows, queue="work", task="mark", age=3600)
    worker = worker_process(APP, env={"TAILRACE_REAPER_SECONDS": "1"}).wait_ready()
    metric = worker.metric
    eventually(lambda: metric("tailrace_dead_letters_requeued_total", task="mark") == 1, timeout=60, what="the requeue")
    eventually(lambda: metric("tailrace_dead_letters_deleted_total", task="mark") == 1, timeout=60, what="the deletion")
    eventually(
        lambda: metric("tailrace_maintenance_last_success_timestamp_seconds", routine="reaper") > 1.7e9,
        timeout=60,
        what="the time of the last success",
    )
    assert metric("tailrace_maintenance_runs_total", routine="retention", result="ok") >= 1
    assert metric("tailrace_maintenance_duration_seconds_count", routine="retention") >= 1
    assert metric("tailrace_orphaned_jobs_total") == 0


def test_counters_follow_what_happens(worker_process: StartWorker, board: Board) -> None:
    """BF-30, BF-36, FQ-27: success, failure that is tried again and final, dead, wait and duration, slots, polls."""
    for number in range(10):
        board.enqueue("mark", options={"priority": 12 if number < 4 else 0})
    board.enqueue("fail", how="error", options={"max_attempts": 3, "backoff": {"strategy": "fixed", "base": 0, "jitter": 0}})
    worker = worker_process(APP, "--slots", "7", "--queue", "work").wait_ready()
    board.wait_gone()
    long = board.enqueue("wait_for_stop")
    eventually(lambda: board.lines(long), what="a running job")
    metric = worker.metric
    assert metric("tailrace_jobs_claimed_total", attempt="first") == 12
    assert metric("tailrace_jobs_claimed_total", attempt="retry") == 2
    assert metric("tailrace_jobs_completed_total", task="mark") == 10
    assert metric("tailrace_jobs_failed_total", task="fail", error_type="validation", final="false") == 2
    assert metric("tailrace_jobs_failed_total", task="fail", error_type="validation", final="true") == 1
    assert metric("tailrace_dead_letters_added_total", task="fail", reason="max_attempts") == 1
    assert metric("tailrace_job_wait_seconds_count", task="mark", priority_band="fast_high") == 4
    assert metric("tailrace_job_wait_seconds_count", task="mark", priority_band="bulk_default") == 6
    assert 0 <= metric("tailrace_job_wait_seconds_sum", task="mark") < 100
    assert metric("tailrace_job_duration_seconds_count", task="mark", outcome="success") == 10
    assert metric("tailrace_job_duration_seconds_count", task="fail", outcome="failure") == 3
    assert metric("tailrace_job_attempts_sum", task="fail", outcome="failure") == 6
    assert metric("tailrace_worker_slots", queue="work", state="busy") == 1
    assert metric("tailrace_worker_slots", queue="work", state="free") == 6
    assert metric("tailrace_worker_polls_total", result="jobs") >= 2
    eventually(  # two looks at a worker that goes on
        lambda: (
            metric("tailrace_claim_duration_seconds_count")
            == sum(metric("tailrace_worker_polls_total", result=r) for r in ("jobs", "empty"))
        ),
        what="as many durations as polls",
    )
    assert metric("tailrace_claim_batch_size_sum") == 14


def test_health_pages(worker_process: StartWorker, board: Board) -> None:
    """BF-49: live and ready are separate; unknown pages are not found."""
    worker = worker_process(APP).wait_ready()
    eventually(lambda: worker.get("/readyz") == (200, "ok\n"), what="ready")
    assert worker.get("/livez") == (200, "ok\n")
    assert worker.get("/")[0] == 404
    job = board.enqueue("wait_for_stop")
    eventually(lambda: board.lines(job), what="a running job")
    worker.terminate()
    eventually(lambda: worker.get("/readyz")[0] == 503, what="not ready while it drains")
    assert worker.get("/livez")[0] == 200
    assert worker.metric("tailrace_worker_draining", queue="work") == 1


def test_a_requeued_job_that_succeeds_counts_as_resolved(worker_process: StartWorker, board: Board) -> None:
    """BF-23, BF-33: once for each, by the worker in which it succeeded."""
    for _ in range(3):
        board.value("select tailrace.add_dead_letter('work', 'mark', '{}')")
    board.conn.execute("select * from tailrace.requeue_dead_letters('work', '{\"max_jobs\": 2}')")
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    eventually(lambda: worker.metric("tailrace_dead_letters_resolved_total", queue="work", task="mark") == 2, what="the count")
    assert worker.metric("tailrace_jobs_completed_total", task="mark") == 2


def test_the_reading_of_the_dead_letters_is_exported(worker_process: StartWorker, board: Board) -> None:
    """BF-31, BF-32: from the published statistics, not by counting at the scrape."""
    board.enqueue("fail", how="permanent")
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    board.conn.execute("select tailrace.statistics_v1()")
    eventually(lambda: worker.metric("tailrace_dead_letters", queue="work", state="dead") == 1, 20, what="the reading")
    assert worker.metric("tailrace_dead_letter_oldest_age_seconds", queue="work") >= 0
    assert worker.metric("tailrace_stats_timestamp_seconds", queue="work") > 1.7e9
