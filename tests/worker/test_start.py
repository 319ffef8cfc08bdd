"""Starting: a worker waits for what is missing, says what it waits for, and touches nothing but its own row."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.rig.processes import StartProcess, StartWorker
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually
from tests.worker.scene import APP, PATIENCE, SLACK, Scene

TABLES = ("job", "lease", "dead_letter", "worker", "audit", "cancel_request", "operation", "schedule", "tally")


def contents(database: RigDatabase, table: str) -> list[tuple[Any, ...]]:
    """All rows of a table as text; a worker's `until` moves by itself."""
    row = "t.id, t.state, t.started" if table == "worker" else "t::text"
    return database.query(f"select {row} from tailrace.{table} t order by 1")


def test_a_second_worker_leaves_the_first_ones_jobs_alone(scene: Scene) -> None:
    """FQ-01, BF-05, BF-03: its start adds its own row and changes or deletes nothing, whatever lies about."""
    running = scene.enqueue("gated", gate="go", options={"max_attempts": 1})
    first = scene.worker("--slots", "1", lease=30)
    scene.wait_line("start", running)
    scene.database.query(
        """insert into tailrace.job (queue, task, payload, attempts, max_attempts)
           select 'elsewhere', 'quick', '{}', 2, 3 from generate_series(1, 50)"""
    )
    before = {table: contents(scene.database, table) for table in TABLES}
    scene.worker("--slots", "1", lease=30)
    after = {table: contents(scene.database, table) for table in TABLES}
    assert {table for table in TABLES if before[table] != after[table]} == {"worker"}
    assert set(after["worker"]) > set(before["worker"])
    assert len(after["worker"]) == 2
    scene.open("go")
    eventually(lambda: scene.row(running) is None, what="the end of the job")
    assert scene.count("succeeded") == 1
    assert len(scene.lines("start")) == 1
    assert not first.events("lease_lost")


def test_what_was_exhausted_while_no_worker_ran_becomes_dead_letters(scene: Scene) -> None:
    """BF-03, BF-04: all 250 of them, none deleted, none run."""
    scene.database.query(
        """insert into tailrace.job (queue, task, payload, attempts, max_attempts)
           select 'faults', 'quick', '{}', 3, 3 from generate_series(1, 250)"""
    )
    scene.worker()
    scene.wait_gone()
    assert scene.database.query("select state, reason, total_attempts, count(*) from tailrace.dead_letter group by 1, 2, 3") == [
        ("dead", "max_attempts", 3, 250)
    ]
    assert not scene.lines("start")


@pytest.mark.timeout(150)
def test_workers_wait_for_the_schema_and_go_on_by_themselves(
    empty_database: RigDatabase, worker_process: StartWorker, process: StartProcess, tmp_path: Path
) -> None:
    """BF-14, BF-40: eight workers on an empty database; two migrators at once; every worker gets to work, unaided."""
    scene = Scene(empty_database, worker_process, tmp_path / "scene")
    workers = [scene.worker(ready=False) for _ in range(8)]
    for worker in workers:
        waiting = worker.wait_event("schema_unfit", PATIENCE)
        assert "tailrace migrate" in waiting["message"]
        assert worker.get("/readyz")[0] == 503
        assert worker.get("/livez")[0] == 200
    env = {"TAILRACE_DATABASE_URL": empty_database.dsn}
    migrators = [process("-m", "tailrace_cli", "migrate", env=env) for _ in range(2)]
    assert [one.wait(60) for one in migrators] == [0, 0]
    for worker in workers:
        worker.wait_ready(PATIENCE)
        assert not [e for e in worker.events() if e["level"] == "error"]
        eventually(lambda worker=worker: worker.get("/readyz")[0] == 200, what="readiness")  # type: ignore[misc]
    jobs = scene.fill("quick", 200)
    scene.wait_gone()
    scene.ran_once(jobs)
    for worker in workers:
        worker.terminate()
    assert [worker.wait(SLACK) for worker in workers] == [0] * 8
    assert empty_database.value("select count(*) from tailrace.worker") == 0


def test_a_schema_that_is_too_new_ends_the_worker_with_the_remedy(scene: Scene) -> None:
    """BF-14."""
    scene.database.query(
        "update tailrace.migration set min_worker = '999.0' where version = (select max(version) from tailrace.migration)"
    )
    worker = scene.worker(ready=False)
    assert worker.wait(SLACK) not in (0, -9)
    assert "999.0" in worker.output
    assert "Deploy" in worker.output
    assert "Traceback" not in worker.output
    assert not scene.lines()


def test_a_schema_that_becomes_too_new_drains_the_worker(scene: Scene) -> None:
    """BF-14: it is looked at again at each reconnect; what runs may end, and its outcome is written."""
    job = scene.enqueue("gated", gate="go")
    worker = scene.worker(lease=30)
    scene.wait_line("start", job)
    scene.database.query(
        "update tailrace.migration set min_worker = '999.0' where version = (select max(version) from tailrace.migration)"
    )
    scene.database.terminate_backends("tailrace work")
    drains = worker.wait_event("worker_draining", PATIENCE)
    assert drains["reason"] == "failure"
    assert "999.0" in worker.output
    scene.open("go")
    assert worker.wait(SLACK) == 1
    scene.ran_once([job])


def test_a_taken_port_is_told(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        worker = scene.worker(env={"TAILRACE_METRICS_PORT": port}, ready=False)
        assert worker.wait(SLACK) == 2
        assert f"127.0.0.1:{port}" in worker.output
        assert "metrics_port" in worker.output
        assert "Traceback" not in worker.output
    assert scene.database.value("select count(*) from tailrace.worker") == 0


def test_a_client_that_says_nothing_does_not_block_the_probes(scene: Scene) -> None:
    """BF-49: a probe must not fail because somebody else is connected."""
    worker = scene.worker()
    with socket.create_connection(("127.0.0.1", worker.metrics_port)):
        assert worker.get("/livez")[0] == 200
        eventually(lambda: worker.get("/readyz")[0] == 200, what="readiness")


@pytest.mark.parametrize("when", ["schema", "resources"])
def test_a_signal_before_it_is_ready(
    empty_database: RigDatabase, database: RigDatabase, worker_process: StartWorker, tmp_path: Path, when: str
) -> None:
    """BF-35, c3: it gives up what it waits for."""
    scene = Scene(empty_database if when == "schema" else database, worker_process, tmp_path / "scene")
    worker = scene.worker(ready=False, env={"FAULTS_SLOW_START": "1"})
    if when == "schema":
        worker.wait_event("schema_unfit", PATIENCE)
    else:
        eventually(lambda: scene.lines("opening"), PATIENCE, what="the resources")
    worker.terminate()
    assert worker.wait(SLACK) == 0
    assert "Traceback" not in worker.output


def test_resources_that_cannot_be_opened_end_the_worker(scene: Scene) -> None:
    job = scene.enqueue("quick")
    worker = scene.worker(ready=False, env={"FAULTS_BROKEN_START": "1"})
    assert worker.wait(SLACK) != 0
    assert "these resources cannot be opened" in worker.output
    assert scene.row(job) == (False, 0, 0, 0)
    assert scene.database.value("select count(*) from tailrace.worker") == 0


def test_an_application_without_tasks_is_refused(scene: Scene, process: StartProcess) -> None:
    worker = process(
        "-m",
        "tailrace_cli",
        "worker",
        APP.replace("fault_apps:app", "fault_apps:idle"),
        env={"TAILRACE_DATABASE_URL": scene.database.dsn, "TAILRACE_METRICS_PORT": "none"},
    )
    assert worker.wait(SLACK) == 2
    assert "no tasks" in worker.output
    assert "Traceback" not in worker.output


def test_an_open_transaction_that_makes_the_queue_does_not_keep_a_worker_from_starting(scene: Scene) -> None:
    """Engine 8: an application applies the queue's settings, and has not committed."""
    with scene.database.connect(autocommit=False, application_name="application") as conn:
        conn.execute("select tailrace.apply_queue('faults', '{}', 'cli')")
        worker = scene.worker()
        scene.wait_line("start", scene.enqueue("quick"))
        scene.wait_gone()
        assert not [e for e in worker.events() if e["level"] in ("warning", "error")]
        conn.rollback()
