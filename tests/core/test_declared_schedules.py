"""Schedules that an application declares: the words, what they refuse, and what a worker publishes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tailrace import App, InvalidOption, InvalidPayload, JobContext, NewJob, Task, UnknownTask
from tailrace.schedules.declared import published

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.fixture
def app() -> App:
    """An application with a task."""
    made = App("reports")

    @made.task(timeout=30, priority=3)
    def build_report(ctx: JobContext, scope: str, year: int = 2026) -> None: ...

    return made


def test_a_job_is_published_in_the_words_of_the_jobqueue(app: App) -> None:
    job = app.tasks["build_report"].using(tenant="acme", max_attempts=2, meta={"by": "us"}, delay=5).job(scope="all")
    app.cron("30  2 * * *", job, name="nightly", timezone="Europe/Berlin", overlap="replace", catch_up=timedelta(hours=1))
    assert published(app) == [
        {
            "queue": "reports",
            "name": "nightly",
            "cron": "30 2 * * *",
            "timeZone": "Europe/Berlin",
            "task": "build_report",
            "payload": {"scope": "all"},
            "overlap": "Replace",
            "catchUpSeconds": 3600,
            "options": {
                "tenant": "acme", "max_attempts": 2, "meta": {"by": "us"}, "delay": 5,
                "defaults": {"timeout": 30, "priority": 3},
            },
        }
    ]  # fmt: skip


def test_a_period_is_published_in_seconds(app: App) -> None:
    job = NewJob("build_report", {"scope": "all"}, key="one", on_duplicate="replace", queue="other", serial_group="g")
    app.every(timedelta(minutes=5), job)
    (found,) = published(app)
    assert (found["queue"], found["name"], found["everySeconds"]) == ("other", "build-report", 300)
    assert found["options"].items() >= {"key": "one", "on_duplicate": "replace", "serial_group": "g"}.items()
    assert "cron" not in found


def test_a_function_becomes_a_task(app: App) -> None:
    @app.cron("*/5 * * * *", timezone="Europe/Paris")
    async def sweep_orders(limit: int = 10) -> None: ...

    @app.every(60, name="tidy", overlap="allow")
    @app.task(queue="low")
    def clean(ctx: JobContext) -> None: ...

    assert isinstance(sweep_orders, Task)
    assert isinstance(clean, Task)
    assert set(app.tasks) == {"build_report", "sweep_orders", "clean"}
    assert [(one["queue"], one["name"], one["payload"]) for one in published(app)] == [
        ("reports", "sweep-orders", {}),
        ("low", "tidy", {}),
    ]


def test_annotations_are_resolved_late(app: App) -> None:
    """A decorator may not look at types that are imported for checkers only."""

    @app.cron("0 0 * * *")
    def later(price: Decimal | None = None) -> None: ...

    with pytest.raises(InvalidOption, match="not known at run time"):
        published(app)


def test_a_module_that_is_imported_again_declares_nothing_twice(app: App) -> None:
    for line in ("0 1 * * *", "0 2 * * *"):

        @app.cron(line)
        def job() -> None: ...

        app.every(60, NewJob("build_report", {"scope": "all"}))
    assert [(one.name, one.cron) for one in app.declared_schedules] == [("job", "0 2 * * *"), ("build-report", None)]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"timezone": "Mars/Olympus"}, "timeZone"),
        ({"overlap": "both"}, "overlap"),
        ({"catch_up": -1}, "catch_up"),
        ({"catch_up": "1 h"}, "catch_up"),
        ({"name": "Not a label"}, "name"),
        ({"name": 5}, "name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_options_are_refused_by_name(app: App, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        app.cron("0 0 * * *", NewJob("build_report", {"scope": "all"}), **options)
    assert refused.value.field == field
    assert app.declared_schedules == ()


def test_what_could_never_run_is_refused_where_it_is_declared(app: App) -> None:
    """A bad declaration is told to the developer, before any worker starts."""
    anything: Any = app
    with pytest.raises(InvalidOption, match="cron: is no crontab line"):
        app.cron("0 0 32 * *", NewJob("build_report"))
    with pytest.raises(InvalidOption, match="everySeconds"):
        app.every(0, NewJob("build_report"))
    with pytest.raises(InvalidOption, match="everySeconds"):
        app.every(timedelta(seconds=1.5), NewJob("build_report"))
    with pytest.raises(InvalidOption, match="run_at"):
        app.cron("0 0 * * *", NewJob("build_report", run_at=datetime.now(UTC)))
    with pytest.raises(InvalidOption, match="must be a NewJob"):
        anything.cron("0 0 * * *", "build_report")
    with pytest.raises(InvalidOption, match="needs scope"):
        app.cron("0 0 * * *")(app.tasks["build_report"])
    assert app.declared_schedules == ()


def test_two_schedules_of_one_name_are_refused(app: App) -> None:
    app.cron("0 1 * * *", NewJob("build_report", {"scope": "a"}))
    with pytest.raises(InvalidOption, match="taken by another schedule"):
        app.cron("0 2 * * *", NewJob("build_report", {"scope": "b"}))
    app.cron("0 2 * * *", NewJob("build_report", {"scope": "b"}, queue="other"))
    assert len(published(app)) == 2


@pytest.mark.parametrize(
    ("job", "error"),
    [
        (NewJob("typo", {}), UnknownTask),
        (NewJob("build_report", {"scope": "x" * 3000}), InvalidPayload),
        (NewJob("build_report", {"scope": float("nan")}), InvalidPayload),
        (NewJob("build_report", {"scope": "all"}, priority=5000), InvalidOption),
    ],
)
def test_what_no_worker_could_run_is_refused_when_it_starts(app: App, job: NewJob, error: type[Exception]) -> None:
    app.every(60, job)
    with pytest.raises(error):
        published(app)


def test_there_is_a_bound(app: App) -> None:
    for n in range(200):
        app.every(60, NewJob("build_report", {"scope": "all"}), name=f"s{n}")
    with pytest.raises(InvalidOption, match="at most 200"):
        app.every(60, NewJob("build_report", {"scope": "all"}), name="s200")
