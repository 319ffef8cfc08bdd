"""`tailrace enqueue`, `tasks`, `maintain`, `worker` and `version`."""

from __future__ import annotations

import signal

import pytest

from tests.cli.conftest import Cli
from tests.engine.rows import Rows
from tests.rig.processes import StartProcess
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually


def test_enqueue_stores_what_was_said(cli: Cli) -> None:
    options = ("--priority", "7", "--delay", "10m", "--key", "k", "--tenant", "acme", "--max-attempts", "2", "--timeout", "30s")
    first = cli("enqueue", "q", "t", '{"n": 12345678901234567890}', *options, "--meta", '{"a": 1}', "-o", "json").json[0]
    assert first["outcome"] == "created"
    shown = cli("jobs", "show", first["id"], "-o", "json").json
    assert shown["payload"] == {"n": 12345678901234567890}
    assert (shown["state"], shown["priority"], shown["tenant"], shown["timeout"]) == ("scheduled", 7, "acme", 30.0)
    again = cli("enqueue", "q", "t", "-", *options, "-o", "json", stdin='{"n": 2}').json[0]
    assert again == {"id": first["id"], "outcome": "skipped"}
    replaced = cli("enqueue", "q", "t", '{"n": 3}', *options, "--on-duplicate", "replace", "-o", "json").json[0]
    assert replaced == {"id": first["id"], "outcome": "replaced"}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("q", "t", "[1]"), "object"),
        (("q", "t", "{"), "JSON"),
        (("q", "t", '{"a": NaN}'), "NaN"),
        (("q", "t", '{"a": "\\u0000"}'), "payload.a"),
        (("", "t", "{}"), "queue"),
        (("q", "t" * 201, "{}"), "task"),
        (("q", "t", "{}", "--priority", "1001"), "priority"),
        (("q", "t", "{}", "--max-attempts", "0"), "max_attempts"),
        (("q", "t", "{}", "--delay", "1m", "--run-at", "2030-01-01T00:00:00Z"), "run_at"),
        (("q", "t", "{}", "--run-at", "2030-01-01T00:00:00"), "--run-at"),
    ],
)
def test_enqueue_refuses_and_stores_nothing(cli: Cli, rows: Rows, words: tuple[str, ...], named: str) -> None:
    """e1, e4."""
    result = cli("enqueue", *words, status=2)
    assert named in result.err
    assert rows.value("select count(*) from tailrace.job") == 0


def test_tasks_tell_the_payload(cli: Cli) -> None:
    (task,) = cli("tasks", "examples.webhooks.app:app", "-o", "json").json
    assert (task["name"], task["queue"]) == ("deliver", "webhooks")
    assert set(task["schema"]["properties"]) == {"event_id", "url"}
    assert task["schema"]["additionalProperties"] is False
    assert "nope" in cli("tasks", "nope.module:app", status=1).err
    assert "nope" in cli("tasks", "examples.webhooks.app:nope", status=1).err
    assert "MODULE" in cli("tasks", "nonsense", status=1).err


def test_maintain_once(cli: Cli, rows: Rows) -> None:
    results = cli("maintain", "--once", "-o", "json").json
    assert {row["routine"]: row["result"] for row in results} == dict.fromkeys(
        ("reaper", "sweep", "cron", "retention", "auto_requeue", "statistics", "housekeeping"), "ok"
    )
    assert rows.value("select count(*) from tailrace.maintenance where last_success is not null") >= 3
    assert "one of reaper, sweep" in cli("maintain", "nonsense", "--once", status=2).err


def test_maintain_dry_run_and_full(cli: Cli, rows: Rows) -> None:
    rows.job(attempts=5)
    (dry,) = cli("maintain", "sweep", "--dry-run", "-o", "json").json
    assert (dry["result"], dry["counts"]["exhausted"]) == ("dry_run", 1)
    assert rows.value("select count(*) from tailrace.dead_letter") == 0
    cli("maintain", "sweep", "--full")
    assert rows.value("select count(*) from tailrace.dead_letter") == 1


def test_maintain_runs_until_told_to_stop(database: RigDatabase, process: StartProcess) -> None:
    """BF-42: a stop is seen between batches."""
    running = process("-m", "tailrace_cli", "maintain", env={"TAILRACE_DATABASE_URL": database.dsn})
    eventually(
        lambda: database.value("select count(*) from tailrace.maintenance where last_success is not null") >= 3,
        timeout=30,
        what="a first run of the routines",
    )
    running.signal(signal.SIGTERM)
    assert running.wait(10) == 0, running.output


def test_worker_says_what_is_missing(cli: Cli) -> None:
    assert "MODULE:APP" in cli("worker", status=2).err
    assert "nope" in cli("worker", "nope:app", status=1).err
    assert "slots" in cli("worker", "examples.webhooks.app:app", "--slots", "0", status=2).err
    assert "TAILRACE_SLOTS" in cli("worker", "examples.webhooks.app:app", env={"TAILRACE_SLOTS": "many"}, status=2).err


def test_worker_without_its_extra_names_it(process: StartProcess) -> None:
    script = (
        "import sys; sys.modules['prometheus_client'] = None; from tailrace_cli.main import main; "
        "main(['worker', 'examples.webhooks.app:app'])"
    )
    started = process("-c", script)
    assert started.wait() == 1
    assert 'pip install "tailrace[worker]"' in started.output


def test_version(cli: Cli) -> None:
    assert cli("version").out.strip() == cli("version", "-o", "json").json["version"]
