"""Settings: who wins, what is refused, and that secrets are not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace import App, InvalidOption
from tailrace.settings import ProducerSettings, WorkerSettings, describe

SECRET = "postgresql://user:hunter2@db.example/shop"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("TAILRACE_"):
            monkeypatch.delenv(name)


def test_flags_win_over_environment_over_file_over_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text('schema = "from_file"\nslots = 3\nqueues = ["a", "b=2"]\n')
    app = {"schema_name": "from_app"}
    assert WorkerSettings.load(app=app).schema_name == "from_app"
    assert WorkerSettings.load(file=file, app=app).schema_name == "from_file"
    monkeypatch.setenv("TAILRACE_SETTINGS_FILE", str(file))
    assert WorkerSettings.load(app=app).queues == ("a", "b=2")
    monkeypatch.setenv("TAILRACE_SCHEMA", 'My"Schema')
    monkeypatch.setenv("TAILRACE_QUEUES", "c, d=4")
    settings = WorkerSettings.load({"slots": None}, app=app)
    assert (settings.schema_name, settings.slots, settings.queues) == ('My"Schema', 3, ("c", "d=4"))
    assert WorkerSettings.load({"schema_name": "from_flag", "slots": 7}, app=app).schema_name == "from_flag"


def test_an_app_asks_the_environment_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A literal in code must not beat what the operator sets."""
    app = App("q", database_url=SECRET, schema_name="in_code")
    monkeypatch.setenv("TAILRACE_SCHEMA", "by_operator")
    monkeypatch.setenv("TAILRACE_DATABASE_URL", "postgresql://other.example/x")
    assert app.database.schema == "by_operator"
    assert app.database.conninfo() == "postgresql://other.example/x"
    app.configure(ProducerSettings.load({"schema_name": "by_flag"}))
    assert app.database.schema == "by_flag"


def test_a_given_url_wins_over_a_file_of_a_lower_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "uri"
    file.write_text("postgresql://from.file/x\n")
    monkeypatch.setenv("TAILRACE_DATABASE_URL_FILE", str(file))
    assert ProducerSettings.load(app={"database_url": SECRET}).database().conninfo() == "postgresql://from.file/x"
    assert ProducerSettings.load({"database_url": SECRET}).database().conninfo() == SECRET


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_DATABASE_URL", SECRET)
    settings = WorkerSettings.load()
    assert "hunter2" not in repr(settings) + str(settings) + repr(settings.database()) + repr(App("q", database_url=SECRET))
    with pytest.raises(InvalidOption) as refused:
        WorkerSettings.load({"database_url": 5, "slots": SECRET})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slots", 0),
        ("slots", "many"),
        ("queues", "a=0"),
        ("queues", "a=b"),
        ("queues", "=3"),
        ("lease_seconds", 2),
        ("reaper_seconds", 0.5),
        ("poll_seconds", 0),
        ("drain_timeout_seconds", -1),
        ("metrics_port", 70000),
        ("log_format", "xml"),
        ("log_level", "loud"),
        ("notify", "perhaps"),
        ("schema_name", ""),
    ],
)
def test_a_wrong_setting_is_named(field: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """BF-42: an interval of less than a second is refused."""
    with pytest.raises(InvalidOption) as refused:
        WorkerSettings.load({field: value})
    assert refused.value.field == field
    if field != "schema_name":  # an empty variable is one that is not set
        monkeypatch.setenv(f"TAILRACE_{field.upper()}", str(value))
        with pytest.raises(InvalidOption, match=field):
            WorkerSettings.load()


def test_a_file_with_an_unknown_name_is_refused(tmp_path: Path) -> None:
    for text in ("slotts = 3", "not toml"):
        (tmp_path / "t.toml").write_text(text)
        with pytest.raises(InvalidOption):
            WorkerSettings.load(file=tmp_path / "t.toml")
    with pytest.raises(InvalidOption, match="cannot be read"):
        WorkerSettings.load(file=tmp_path / "missing.toml")


def test_forms_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_METRICS_PORT", "none")
    monkeypatch.setenv("TAILRACE_LOG_LEVEL", "INFO")
    monkeypatch.setenv("TAILRACE_NOTIFY", "0")
    settings = WorkerSettings.load()
    assert (settings.metrics_port, settings.log_level, settings.notify) == (None, "info", False)
    assert settings.heartbeat_seconds == 20
    assert settings.worker_name


def test_every_setting_is_described() -> None:
    rows = {row.field: row for row in describe(WorkerSettings)}
    assert set(rows) == set(WorkerSettings.model_fields)
    assert all(row.description and row.default for row in rows.values())
    assert rows["schema_name"].variable == "TAILRACE_SCHEMA"
    assert rows["database_url"].secret
    assert rows["lease_seconds"].unit == "s"
    assert {field for field, row in rows.items() if field.endswith("_seconds") and row.unit != "s"} == set()
