"""`tailrace schedules`, and what other commands say about schedules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.engine.rows import Rows

QUEUE = """
apiVersion: tailrace.dev/v1alpha1
kind: JobQueue
metadata: {name: mail}
spec:
  schedules:
    - {name: nightly, cron: "30 2 * * *", timeZone: Europe/Berlin, task: report, payload: {scope: all}}
    - {name: beat, everySeconds: 3600, task: t, overlap: Allow}
"""


@pytest.fixture
def applied(cli: Cli) -> None:
    """A queue with two schedules."""
    assert cli("queues", "apply", "-f", "-", "-o", "json", stdin=QUEUE).json[0]["outcome"] == "created"


@pytest.mark.usefixtures("applied")
def test_list_and_show(cli: Cli) -> None:
    found = cli("schedules", "list", "-o", "json").json
    assert [(one["queue"], one["name"], one["state"], one["timing"], one["time_zone"]) for one in found] == [
        ("mail", "beat", "active", "every 3600 s", "UTC"),
        ("mail", "nightly", "active", "30 2 * * *", "Europe/Berlin"),
    ]
    assert cli("schedules", "list", "--queue", "other", "-o", "json").json == []
    assert "no schedules" in cli("schedules", "list", "--queue", "other").err
    assert cli("schedules", "list", "-o", "name").out.split() == ["beat", "nightly"]
    shown = cli("schedules", "show", "mail", "nightly", "-o", "json").json
    assert shown["definition"]["payload"] == {"scope": "all"}
    assert "NEXT TICK" in cli("schedules", "list").out
    assert cli("queues", "show", "mail", "-o", "json").json["schedules"] == ["beat", "nightly"]


@pytest.mark.usefixtures("applied")
def test_cron_once_finds_the_next_ticks(cli: Cli) -> None:
    assert cli("maintain", "cron", "--dry-run", "-o", "json").json[0]["counts"] == {"due": 0}
    assert cli("maintain", "cron", "--once", "-o", "json").json[0]["result"] == "ok"
    found = cli("schedules", "list", "-o", "json").json
    assert all(one["next_tick"].endswith("Z") for one in found)


@pytest.mark.usefixtures("applied")
def test_suspend_and_resume(cli: Cli) -> None:
    assert cli("schedules", "suspend", "mail", "beat", "--dry-run", "-o", "json").json[0]["outcome"] == "would be suspended"
    for outcome in ("suspended", "unchanged"):
        assert cli("schedules", "suspend", "mail", "beat", "-o", "json").json[0]["outcome"] == outcome
    assert cli("schedules", "show", "mail", "beat", "-o", "json").json["state"] == "suspended"
    for outcome in ("resumed", "unchanged"):
        assert cli("schedules", "resume", "mail", "beat", "-o", "json").json[0]["outcome"] == outcome


@pytest.mark.usefixtures("applied")
def test_run_now(cli: Cli, rows: Rows) -> None:
    assert cli("schedules", "run-now", "mail", "nightly", "--dry-run", "-o", "json").json[0]["job_id"] is None
    assert rows.count("job") == 0
    (done,) = cli("schedules", "run-now", "mail", "nightly", "-o", "json").json
    assert (done["outcome"], done["task"]) == ("enqueued", "report")
    assert rows.row(int(done["job_id"])) is not None
    assert f"job {done['job_id']} of schedule nightly lives" in cli("schedules", "run-now", "mail", "nightly", status=1).err
    assert cli("schedules", "show", "mail", "nightly", "-o", "json").json["last_job"] == done["job_id"]


@pytest.mark.parametrize("word", ["show", "run-now", "suspend", "resume"])
def test_an_unknown_schedule_is_a_failure(cli: Cli, word: str) -> None:
    assert "mail" in cli("schedules", word, "mail", "nightly", status=1).err


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("{name: a, cron: '* * * *', task: t}", "spec.schedules[0].cron"),
        ("{name: a, cron: '0 0 * * *', timeZone: Nowhere, task: t}", "spec.schedules[0].timeZone"),
        ("{name: a, everySeconds: 5}", "spec.schedules[0].task"),
        ("{name: a, everySeconds: 5, task: t, payload: 5}", "spec.schedules[0].payload"),
        ("{name: a, everySeconds: 5, task: typo}", "spec.schedules[0].task: no live worker of the queue knows typo"),
    ],
)
def test_apply_refuses_a_bad_entry_and_names_the_field(cli: Cli, rows: Rows, entry: str, named: str) -> None:
    """BF-39: nothing of the file is stored, so nothing of it is half in force."""
    rows.worker()
    text = QUEUE.partition("schedules:")[0].replace("mail", "q") + f"schedules: [{entry}]\n"
    assert named in cli("queues", "apply", "-f", "-", stdin=text, status=2).err
    assert rows.count("schedule") == 0


def test_a_file_with_schedules_is_tried_without_a_trace(cli: Cli, rows: Rows, tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text(QUEUE)
    assert cli("queues", "apply", "-f", str(file), "--dry-run", "-o", "json").json[0]["outcome"] == "would be applied"
    assert rows.count("schedule") == 0
