"""`tailrace queues`: looks, holds, settings from JobQueue files, and emptying."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.engine.rows import Rows

SMALL = "apiVersion: tailrace.dev/v1alpha1\nkind: JobQueue\nmetadata: {name: webhooks}\n"


def test_empty_and_unknown(cli: Cli) -> None:
    """BF-47: not found is told as such."""
    assert cli("queues", "list").err == "no queues\n"
    assert cli("queues", "list", "-o", "json").json == []
    for word in (("show", "nope"), ("resume", "nope"), ("purge", "nope", "--yes")):
        assert "queue:" in cli("queues", *word, status=1).err


def test_counts_of_show_are_disjoint_and_current(cli: Cli, rows: Rows) -> None:
    """BF-44, FQ-26: states add up; ages, running and dead are told."""
    rows.worker()
    rows.job()
    rows.job(run_at="2030-01-01 00:00+00")
    rows.running(2)
    shown = cli("queues", "show", "q", "-o", "json").json
    jobs = shown["jobs"]
    assert (jobs["ready"], jobs["scheduled"], jobs["running"], jobs["total"]) == (1, 1, 2, 4)
    assert sum(count for state, count in jobs.items() if state != "total") == jobs["total"]
    assert shown["oldest_ready_age"] >= 0
    assert shown["dead"] == 0
    (listed,) = cli("queues", "list", "-o", "json").json
    assert (listed["queue"], listed["held"], listed["workers"]) == ("q", False, 1)


def test_hold_and_resume(cli: Cli, rows: Rows) -> None:
    rows.job(queue="a")
    rows.job(queue="b")
    (row,) = cli("queues", "hold", "a", "--for", "10m", "-o", "json").json
    assert row["outcome"] == "held"
    assert rows.value("select held_until - clock_timestamp() < interval '11 minutes' from tailrace.queue where name = 'a'")
    assert "--yes" in cli("queues", "hold", "--all", status=2).err
    assert len(cli("queues", "hold", "--all", "--dry-run", "-o", "json").json) == 2
    cli("queues", "hold", "--all", "--yes")
    held = {queue["queue"]: queue["held_until"] for queue in cli("queues", "list", "-o", "json").json}
    assert held == {"a": "9999-12-31T00:00:00Z", "b": "9999-12-31T00:00:00Z"}
    assert [row["outcome"] for row in cli("queues", "resume", "a", "b", "-o", "json").json] == ["resumed", "resumed"]
    assert not any(queue["held"] for queue in cli("queues", "list", "-o", "json").json)
    assert cli("queues", "hold", status=2).err
    assert cli("queues", "hold", "a", "--for", "forever", status=2).err


def test_apply_writes_the_database_part(cli: Cli, rows: Rows, tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text(
        SMALL + "spec:\n  jobDefaults: {maxAttempts: 3}\n  tasks: [{name: deliver, timeoutSeconds: 30}]\n  worker: {slots: 4}\n"
        "  template: {spec: {containers: [{name: worker, image: x}]}}\n"
    )
    assert cli("queues", "apply", "-f", str(file), "--dry-run", "-o", "json").json[0]["outcome"] == "would be applied"
    assert rows.value("select count(*) from tailrace.queue") == 0
    assert cli("queues", "apply", "-f", str(file), "-o", "json").json[0]["outcome"] == "created"
    assert cli("queues", "apply", "-f", "-", "-o", "json", stdin=file.read_text()).json[0]["outcome"] == "unchanged"
    settings = rows.value("select settings from tailrace.queue where name = 'webhooks'")
    assert settings["jobDefaults"]["maxAttempts"] == 3
    assert settings["tasks"] == {"deliver": {"timeoutSeconds": 30}}
    assert "template" not in settings
    job = cli("enqueue", "webhooks", "deliver", "{}", "-o", "json").json[0]["id"]
    shown = cli("jobs", "show", job, "-o", "json").json
    assert (shown["max_attempts"], shown["timeout"]) == (3, 30.0)


def test_show_tells_limits_and_what_is_free(cli: Cli, rows: Rows) -> None:
    """Limits and rates of the file are in the database at once, with what runs under them now."""
    spec = (
        "spec:\n  limits: {concurrency: 5, rates: [{name: hourly, jobs: 100, periodSeconds: 3600, burst: 10, tasks: [t]}]}\n"
        "  tasks: [{name: t, concurrencyLimit: 2}]\n"
    )
    cli("queues", "apply", "-f", "-", stdin=SMALL.replace("webhooks", "q") + spec)
    rows.worker()
    rows.running(2)
    rows.job()
    shown = cli("queues", "show", "q", "-o", "json").json
    keys = ("kind", "name", "tasks", "most", "in_use", "free")
    assert [tuple(limit[key] for key in keys) for limit in shown["limits"]] == [
        ("concurrency", "", None, 5, 2, 3),
        ("concurrency", "t", ["t"], 2, 2, 0),
        ("rate", "hourly", ["t"], 100, None, 10),
    ]
    assert (shown["jobs"]["blocked"], shown["jobs"]["running"], shown["jobs"]["ready"]) == (1, 2, 0)
    assert '"free": 0' in cli("queues", "show", "q").out


def test_apply_holds_by_stop_policy(cli: Cli, tmp_path: Path) -> None:
    cli("queues", "apply", "-f", "-", stdin=SMALL + "spec: {stopPolicy: Hold}\n")
    shown = cli("queues", "show", "webhooks", "-o", "json").json
    assert (shown["held"], shown["held_by_policy"]) == (True, True)
    assert "stopPolicy" in cli("queues", "resume", "webhooks", status=1).err


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("kind: Pod\n", "kind"),
        ("", "file"),
        ("a: [", "file"),
        (SMALL + "spec: {workers: 3}\n", "spec.workers"),
        (SMALL + "spec: {limits: {concurrency: 0}}\n", "spec.limits.concurrency"),
        (SMALL + "spec: {history: {retentionSeconds: 0}}\n", "spec.history.retentionSeconds"),
    ],
)
def test_apply_refuses_and_names_the_field(cli: Cli, rows: Rows, text: str, named: str) -> None:
    """BF-39: unknown fields are refused, and so is what nobody would honour."""
    result = cli("queues", "apply", "-f", "-", stdin=text, status=2)
    assert named in result.err
    assert rows.value("select count(*) from tailrace.queue") == 0


def test_a_queue_with_a_controller_refuses_apply(cli: Cli, rows: Rows) -> None:
    rows.conn.execute("insert into tailrace.queue (name, managed_by) values ('webhooks', 'controller')")
    assert "controller" in cli("queues", "apply", "-f", "-", stdin=SMALL, status=1).err


def test_purge_asks_looks_and_keeps_what_runs(cli: Cli, rows: Rows) -> None:
    for _ in range(3):
        rows.job()
    rows.worker()
    _, (running,) = rows.running()
    assert "--yes" in cli("queues", "purge", "q", status=2).err
    assert cli("queues", "purge", "q", "--dry-run", "-o", "json").json[0]["jobs"] == 3
    assert "live workers" in cli("queues", "purge", "q", "--yes", status=1).err
    assert rows.value("select count(*) from tailrace.job") == 4
    assert cli("queues", "purge", "q", "--yes", "--force", "-o", "json").json[0] == {"queue": "q", "outcome": "purged", "jobs": 3}
    assert rows.value("select array_agg(id) from tailrace.job") == [running]
