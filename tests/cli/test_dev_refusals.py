"""`tailrace dev` says in one sentence what is wrong and what to do, before anything runs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tailrace.errors import InvalidOption
from tailrace_cli.dev.dotenv import read_dotenv
from tailrace_cli.dev.plan import TAILRACE, Sources
from tests.cli.conftest import Cli
from tests.cli.dev_scene import resource
from tests.engine.rows import Rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the JobQueue file is."""
    return tmp_path / "queue.yaml"


@pytest.mark.parametrize(
    ("text", "status", "named"),
    [
        (None, 2, "cannot be read: No such file or directory (check its path and rights)"),
        ("spec: [\n", 2, "queue.yaml: is not YAML: "),
        ("spec: [\n", 2, "line 2, column 1"),
        ("kind: Pod\n", 2, "queue.yaml: kind: is 'Pod', not JobQueue"),
        (resource().replace("{slots: 1,", "{slotss: 1,"), 2, "spec.worker.slotss"),
        (resource(mode="{mode: KEDA, maxReplicas: 2}"), 2, "spec.autoscaling.mode: not in this release"),
        (resource(container="{name: web}"), 2, "spec.template.spec.containers: has no container 'worker'"),
        (resource(container="{name: worker}"), 2, "containers.args: of container 'worker' is empty"),
        (resource(container="{name: worker, args: [maintain]}"), 2, "start no worker: maintain (name the application:"),
        (resource(container="{name: worker, args: [worker, 'no.such:app']}"), 1, "there is no module 'no' (Run it where"),
        (resource(container="{name: worker, args: [worker, 'json:app']}"), 1, "json has no 'app'"),
        (resource() + "---\n" + resource(), 2, "two of the JobQueues are for the same queue"),
        (resource(container="{name: worker, env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]}"), 2,
         "A is key 'k' of ConfigMap 'c', which this machine does not have (add a line A=… to "),
        (resource(container="{name: worker, env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]}"), 2,
         "A is a field of the pod"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(
    cli: Cli, rows: Rows, file: Path, text: str | None, status: int, named: str
) -> None:
    """BF-39: which file, which field, what to do."""
    if text is not None:
        file.write_text(text)
    result = cli("dev", str(file), status=status)
    assert named in result.err
    assert result.err.strip().splitlines()[-1].startswith("tailrace: ")
    assert "Traceback" not in result.err
    assert rows.value("select count(*) from tailrace.queue") == 0


def test_a_file_is_needed(cli: Cli) -> None:
    assert "name a JobQueue file" in cli("dev", status=2).err


def test_a_queue_with_a_controller_is_left_alone(cli: Cli, rows: Rows, file: Path) -> None:
    rows.conn.execute("insert into tailrace.queue (name, managed_by) values ('work', 'controller')")
    file.write_text(resource())
    assert "is managed by a controller" in cli("dev", str(file), status=1).err
    assert rows.value("select count(*) from tailrace.worker") == 0


def test_options_of_the_embedded_server_need_one(cli: Cli, file: Path) -> None:
    file.write_text(resource())
    assert "port: is for the embedded PostgreSQL" in cli("dev", str(file), "--port", "5555", status=2).err


def test_a_port_that_is_taken_is_told(cli: Cli, file: Path, tmp_path: Path) -> None:
    file.write_text(resource())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = cli.at("")("dev", str(file), "--port", port, "--state-dir", str(tmp_path / "state"), status=2).err
    assert f"port: {port} cannot be had on 127.0.0.1: Address already in use (give another one" in said


def test_two_schemas_are_refused(cli: Cli, file: Path) -> None:
    place = "  database: {{secretRef: {{name: a, key: b}}, schemaName: {}}}\n"
    file.write_text(resource(more=place.format("one")) + "---\n" + resource(name="other", more=place.format("two")))
    assert "spec.database.schemaName: differs: one, two" in cli("dev", str(file), status=2).err


# ---- the .env --------------------------------------------------------------------------------------------------------
def test_what_an_env_file_may_hold(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    assert read_dotenv(path) == {}
    path.write_text(
        "# a comment\n\nA=1\nexport B = two words  # and a comment\nC='single # $A \\n'\n"
        'D="line\\nbreak \\"quoted\\"" # x\nE=\nF=a#b\n'
    )
    assert read_dotenv(path) == {
        "A": "1", "B": "two words", "C": "single # $A \\n", "D": 'line\nbreak "quoted"', "E": "", "F": "a#b",
    }  # fmt: skip
    path.write_text("A=1\nsecret-without-a-name\n")
    with pytest.raises(InvalidOption, match="line 2 is no NAME=value") as refused:
        read_dotenv(path)
    assert "secret" not in str(refused.value), "l2: the line may be a secret"


# ---- plans -----------------------------------------------------------------------------------------------------------
def test_a_plan_has_the_command_and_the_variables(file: Path) -> None:
    """The .env wins over the file, what is ours over both; logs are text on one machine unless the file says otherwise."""
    env = (
        "env: [{name: A, value: file}, {name: B, value: '$(A)-$(MINE)'}, {name: TAILRACE_SLOTS, value: '99'}, "
        "{name: GONE, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}, "
        "{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"
    )
    file.write_text(resource(container=f"{{name: worker, command: [tailrace], args: [worker, '$(APP)'], {env}}}"))
    (file.parent / ".env").write_text("A=mine\nMINE=yes\nAPP=shop:app\n")
    (plan,) = Sources([file]).plans()
    assert plan.command == (*TAILRACE, "worker", "shop:app")
    assert plan.app == "shop:app"
    variables = dict(plan.variables)
    expected = {
        "A": "mine", "B": "mine-yes", "MINE": "yes", "POD": "work",
        "TAILRACE_SLOTS": "1", "TAILRACE_LOG_FORMAT": "text", "TAILRACE_QUEUES": "work",
    }  # fmt: skip
    assert {name: variables[name] for name in expected} == expected
    assert "GONE" not in variables


def test_a_change_of_any_file_is_seen_once(file: Path) -> None:
    file.write_text(resource())
    sources = Sources([file])
    assert not sources.changed()
    (file.parent / ".env").write_text("A=1\n")
    assert sources.changed()
    assert not sources.changed()
    file.unlink()
    assert sources.changed()
