"""Forms of output: tables on a terminal and off it, colours, and pipes that close early."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from tailrace_cli.output import Column, as_record, emit, emit_one, printable
from tests.cli.conftest import Cli
from tests.engine.rows import Rows
from tests.rig.processes import ROOT, clean_environment

ESCAPE = "\x1b["
EVIL = "\x1b]0;owned\x07\x1b[31mred\u202e"


def test_no_colour_and_no_control_characters_without_a_terminal(cli: Cli, rows: Rows) -> None:
    rows.job(task=EVIL)
    for form in ("table", "wide", "name", "csv"):
        assert ESCAPE not in cli("jobs", "list", "-o", form).out.replace(EVIL, "") or form == "csv"
    table = cli("jobs", "list").out
    assert "\x1b" not in table
    assert "\\x1b[31mred\\u202e" in table
    assert cli("jobs", "list", "-o", "json").json[0]["task"] == EVIL, "JSON is exact"


def test_a_terminal_gets_a_table_whose_colours_can_be_switched_off(cli: Cli, rows: Rows) -> None:
    """A name with rich's markup is a name."""
    rows.job(task="[bold red]x[/]", key=EVIL)
    status, text = cli.on_terminal("jobs", "list")
    assert status == 0
    assert "[bold red]x[/]" in text
    assert ESCAPE in text
    status, text = cli.on_terminal("jobs", "list", env={"NO_COLOR": "1"})
    assert "MAX ATTEMPTS" in text
    assert "\x1b[3" not in text
    assert "\x1b]0" not in text


def test_notes_go_to_stderr_and_quiet_drops_them(cli: Cli, rows: Rows) -> None:
    rows.job()
    rows.job()
    cut = cli("jobs", "list", "--limit", "1", "-o", "json")
    assert len(cut.json) == 1
    assert "--all" in cut.err
    assert cli("jobs", "list", "--limit", "1", "-q").err == ""
    assert cli("-q", "-o", "jsonl", "jobs", "list").out.count("\n") == 2, "common options may stand before the command"


def test_csv_reads_back(cli: Cli, rows: Rows) -> None:
    rows.job(key='a,"b"\nc')
    (row,) = csv.DictReader(io.StringIO(cli("jobs", "list", "-o", "csv").out))
    assert row["key"] == 'a,"b"\nc'


def test_a_closed_pipe_is_no_error(cli: Cli, rows: Rows) -> None:
    rows.conn.execute("insert into tailrace.job (queue, task, payload) select 'q', 't', '{}' from generate_series(1, 5000)")
    command = subprocess.Popen(
        [sys.executable, "-m", "tailrace_cli", "jobs", "list", "--all", "-o", "jsonl"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment({"TAILRACE_DATABASE_URL": cli.dsn}), cwd=ROOT,
    )  # fmt: skip
    with command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == b""
        assert command.wait(30) == 0


def test_values_become_json() -> None:
    record = as_record(
        {"id": 2**60, "ids": (1, 2), "n": 3, "at": datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC), "payload": {"id": 1}}
    )
    assert record == {"id": str(2**60), "ids": ["1", "2"], "n": 3, "at": "2026-01-02T03:04:05.000600Z", "payload": {"id": 1}}


def test_tables_align_and_leave_wide_columns_out() -> None:
    out = io.StringIO()
    columns = [Column("id", right=True), Column("task"), Column("tenant", wide=True)]
    count = emit(
        [{"id": 7, "task": "a", "tenant": "x"}, {"id": 12, "task": None, "tenant": ""}],
        columns=columns,
        form="table",
        key="id",
        out=out,
    )
    assert count == 2
    assert out.getvalue() == "ID  TASK\n 7  a\n12  -\n"


def test_a_terminal_without_rich_gets_a_plain_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console", "rich.table", "rich.text"):
        monkeypatch.setitem(sys.modules, name, None)
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True, raising=False)
    emit([{"id": 7}], columns=[Column("id")], form="table", key="id", out=out)
    assert out.getvalue() == "ID\n7\n"


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "name", "table", "wide"])
def test_one_record_in_each_form(form: str) -> None:
    out = io.StringIO()
    emit_one({"id": 5, "payload": {"a": [1, {"b": None}]}, "none": None}, form=form, key="id", out=out)
    text = out.getvalue()
    assert "5" in text
    if form.startswith("json"):
        assert json.loads(text) == {"id": "5", "payload": {"a": [1, {"b": None}]}, "none": None}
    assert ("none" in text) == (form in ("json", "jsonl", "csv", "wide"))


def sheet(**fields: object) -> str:
    """Return the sheet of one record."""
    out = io.StringIO()
    emit_one(fields, form="table", key="id", out=out)
    return out.getvalue()


def test_small_records_within_one_are_a_table() -> None:
    assert sheet(id=5, tasks=[{"task": "send", "dead": 41}, {"task": "receipt", "dead": 7}], last=None, more=1) == (
        "id     5\ntasks  TASK     DEAD\n       send       41\n       receipt     7\nmore   1\n"
    )


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([{"a": 1}, {"b": 1}], id="other fields"),
        pytest.param([{"a": {"b": 1}}], id="nested"),
        pytest.param([{"a": "x" * 61}], id="long"),
        pytest.param([{}], id="empty"),
        pytest.param([{"a": 1}, 2], id="mixed"),
        pytest.param([{"\x1b[31mred": 1}], id="a name that steers the terminal"),
        pytest.param([dict.fromkeys("abcdefg", 1)], id="many fields"),
        pytest.param([{"aB": "1"}], id="what a user wrote: a heading and a bare 1 would change it"),
    ],
)
def test_what_is_no_small_table_is_json(value: list[object]) -> None:
    text = sheet(id=5, value=value)
    assert json.loads(text.removeprefix("id     5\nvalue")) == value
    assert "\x1b" not in text


def test_other_fields_of_that_name_stay_what_they_are() -> None:
    """A worker's tasks are a list of names; a name with a control character reaches no terminal."""
    assert sheet(id=5, tasks=["a", "b"]) == "id     5\ntasks  a,b\n"
    assert json.loads(sheet(id=5, tasks={"a": 1}).removeprefix("id     5\ntasks")) == {"a": 1}
    assert "\x1b" not in sheet(id=5, tasks=[{"task": "\x1b[31m", "dead": 1}])


def test_printable_keeps_words_of_every_language() -> None:
    assert printable("Ünïcode 名前 🎉") == "Ünïcode 名前 🎉"
    assert printable("a\nb\x00\x9b") == "a\\nb\\x00\\x9b"
