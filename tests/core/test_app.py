"""Applications and tasks: names, options, loading; and that importing opens nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace import App, InvalidOption, NewJob, RetryPolicy, UnknownApp, UnknownTask, load_app


def plain(event_id: int, path: str = "p") -> None: ...


def test_one_name_serves_producer_and_worker() -> None:
    """FQ-14: the name is explicit or the function's, never its module's."""
    app = App("webhooks")
    task = app.task(plain)
    named = app.task(name="deliver.v2", queue="slow")(plain)
    assert (task.name, task.queue, task.fn) == ("plain", "webhooks", plain)
    assert (named.name, named.queue) == ("deliver.v2", "slow")
    assert task.job(1).task == "plain"
    assert named.job(1) == NewJob("deliver.v2", {"event_id": 1}, queue="slow")
    assert list(app.tasks) == ["plain", "deliver.v2"]


def test_a_name_is_taken_once_but_a_module_may_be_imported_again() -> None:
    app = App("q")
    first = app.task(plain)
    again = app.task(plain)
    assert app.tasks["plain"] is again is not first
    with pytest.raises(InvalidOption, match="taken by"):
        app.task(name="plain")(test_one_name_serves_producer_and_worker)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "ü" * 101),
        ("name", 5),
        ("name", "a\0"),
        ("queue", ""),
        ("queue", "ü" * 65),
        ("timeout", -1),
        ("timeout", "30 s"),
        ("timeout", float("inf")),
        ("priority", 1001),
        ("priority", 1.0),
        ("priority", True),
        ("retry", 5),
        ("no_retry", ("ValueError",)),
        ("no_retry", ValueError()),
        ("on_error", 5),
        ("key", ""),
        ("key", 5),
        ("key", "{nobody}"),
        ("key", "{path.parent}"),
        ("key", "{path[0]}"),
        ("key", "{path!r}"),
        ("key", "{path:>10}"),
        ("key", "{}"),
        ("key", "{path"),
        ("on_duplicate", "repalce"),
        ("serial_group", "g-{nobody}"),
        ("serial_group", ""),
        ("group_order", "fifo"),
        ("keep_result", 0),
        ("keep_result", "60"),
        ("aliases", ("old",)),
        ("upgrade", plain),
        ("retries", 3),
    ],
)
def test_a_wrong_option_of_the_decorator_is_named(field: str, value: Any) -> None:
    """Nothing is taken silently that this release would ignore."""
    app = App("q")
    with pytest.raises(InvalidOption) as refused:
        app.task(**{field: value})(plain)
    assert refused.value.field == field
    assert refused.value.hint
    assert not app.tasks


def test_options_are_kept_in_the_words_of_the_engine() -> None:
    app = App("q")
    task = app.task(
        timeout=timedelta(minutes=1), retry=RetryPolicy(max_attempts=8), priority=5, no_retry=KeyError, key="k-{path}"
    )(plain)
    assert task.timeout == 60
    assert task.no_retry == (KeyError,)
    assert task.spec.defaults == {
        "timeout": 60,
        "priority": 5,
        "max_attempts": 8,
        "backoff": {"strategy": "exponential", "base": 5, "cap": 900, "jitter": 0.2},
    }


def test_a_key_template_reads_payload_and_defaults() -> None:
    task = App("q").task(key="{{x}}-{event_id}-{path}")(plain)
    assert task.job(1).key == "{x}-1-p"
    assert task.job(1, "ü{y}").key == "{x}-1-ü{y}"
    assert task.using(key="own").job(1).key == "own"
    with pytest.raises(InvalidOption, match="512"):
        task.job(1, "ü" * 300)


def test_a_group_template_reads_the_payload() -> None:
    task = App("q").task(serial_group="g-{event_id}", group_order="strict")(plain)
    assert task.group_order == "strict"
    assert task.job(1).serial_group == "g-1"
    assert task.using(serial_group="own").job(1).serial_group == "own"
    with pytest.raises(InvalidOption, match="serial_group"):
        App("q").task(serial_group="{path}")(plain).job(1, "ü" * 101)


def test_a_worker_of_a_later_release_has_more_words() -> None:
    app: Any = App("q")
    for word in ("declare", "upgrade"):
        with pytest.raises(AttributeError, match="not in this release"):
            getattr(app, word)
    with pytest.raises(AttributeError, match="no word"):
        app.enqeue  # noqa: B018


def test_unknown_tasks_are_refused_where_all_are_known() -> None:
    app = App("q", database_url="postgresql://nowhere.invalid/db")
    app.task(plain)
    with pytest.raises(UnknownTask, match="plain"):
        app.enqueue(NewJob("plian", {}))
    with pytest.raises(UnknownTask):
        app.enqueue_many([NewJob("plian", {})])


def test_lifespan_is_one_async_generator() -> None:
    app = App("q")

    @app.lifespan
    async def resources() -> AsyncIterator[int]:
        yield 1

    assert app.lifespan_factory is resources

    async def other() -> AsyncIterator[int]:
        yield 2

    with pytest.raises(InvalidOption, match="registered already"):
        app.lifespan(other)
    with pytest.raises(InvalidOption, match="async generator"):
        App("q").lifespan(plain)  # type: ignore[arg-type]


@pytest.mark.parametrize("queue", ["", "ü" * 65, 5, "a\0", "\ud800"])
def test_a_queue_has_a_name(queue: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        App(queue)
    assert refused.value.field == "queue"


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(InvalidOption) as refused:
        App("q", databse_url="x")  # type: ignore[call-arg]
    assert refused.value.field == "databse_url"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path / "a_shop.py"


def test_load_app_says_what_is_wrong(module: Path) -> None:
    module.write_text("from tailrace import App\nclass inner:\n    app = App('q')\napp = App('q')\nnumber = 5\n")
    assert load_app("a_shop:app").queue == "q"
    assert load_app("a_shop:inner.app").queue == "q"
    for path, problem in {
        "a_shop": "MODULE:ATTRIBUTE",
        ":app": "MODULE:ATTRIBUTE",
        "a_shop:": "MODULE:ATTRIBUTE",
        "no_shop:app": "no module 'no_shop'",
        "a_shop.sub:app": "no module",
        "a_shop:ap": "has no 'ap'.*It has: app",
        "a_shop:number": "is a int",
    }.items():
        with pytest.raises(UnknownApp, match=problem):
            load_app(path)


def test_an_error_inside_a_module_is_its_own(module: Path) -> None:
    module.write_text("import missing_dependency\n")
    with pytest.raises(ModuleNotFoundError, match="missing_dependency"):
        load_app("a_shop:app")


def test_only_the_worker_imports_handlers(module: Path) -> None:
    module.write_text(
        textwrap.dedent("""
            from tailrace import App
            app = App("q", imports=("a_shop_handlers",))
        """)
    )
    module.with_name("a_shop_handlers.py").write_text("from a_shop import app\n@app.task\ndef handle(n: int) -> None: ...\n")
    app = load_app("a_shop:app")
    assert not app.tasks
    assert not app.complete
    app.load()
    app.load()
    assert list(app.tasks) == ["handle"]
    assert app.complete
    with pytest.raises(UnknownApp, match="no module 'nowhere_at_all'"):
        App("q", imports=("nowhere_at_all",)).load()


def test_importing_opens_nothing() -> None:
    """No socket, no thread, no setting is read when a web process imports tasks."""
    program = """
        import socket, sys, threading
        def refuse(*args, **kwargs): raise AssertionError("opened a socket")
        socket.socket.connect = refuse
        import os
        os.environ["TAILRACE_SCHEMA"] = ""
        from tailrace import App, NewJob
        app = App("q", database_url="postgresql://nowhere.invalid/db")
        @app.task(key="{n}")
        def t(n: int) -> None: ...
        assert t.using(delay=5).job(1) == NewJob("t", {"n": 1}, queue="q", delay=5, key="1")
        assert threading.active_count() == 1
        assert "tailrace.dead_letters" not in sys.modules
        assert "tailrace.admin" not in sys.modules and "uvloop" not in sys.modules and "prometheus_client" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
