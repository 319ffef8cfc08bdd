"""Every bad input, by the library, by the SQL functions and by a plain INSERT: refused by name, nothing stored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tailrace import InvalidOption, InvalidPayload, NewJob, TailraceError
from tests.enqueue.conftest import Shop
from tests.rig.servers import Connection, RigDatabase, Server

FIXED = timezone(timedelta(hours=-14))


# Nothing is ever stored here, so the tests of this module share one database.
@pytest.fixture(scope="module")
def database(server: Server) -> Iterator[RigDatabase]:
    made = server.migrated()
    yield made
    server.drop(made)


@pytest.fixture(scope="module")
def conn(database: RigDatabase) -> Iterator[Connection]:
    with database.connect() as opened:
        yield opened


@pytest.fixture(scope="module")
def shop(database: RigDatabase) -> Iterator[Shop]:
    made = Shop(database.dsn)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TAILRACE_DATABASE_URL", "TAILRACE_DATABASE_URL_FILE", "TAILRACE_SCHEMA"):
            patch.delenv(name, raising=False)
        with made.app:
            yield made


@contextmanager
def refused(database: RigDatabase, field: str, kind: type[TailraceError] = InvalidOption) -> Iterator[None]:
    with pytest.raises(kind) as found:
        yield
    assert found.value.field == field
    assert str(found.value).startswith(f"{field}: ")
    assert found.value.hint
    assert not found.value.retryable
    assert database.value("select count(*) from tailrace.job") == 0


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("priority", {"priority": 1001}),
        ("priority", {"priority": -1001}),
        ("priority", {"priority": 1.5}),
        ("priority", {"priority": True}),
        ("priority", {"priority": "high"}),
        ("delay", {"delay": -1}),
        ("delay", {"delay": math.inf}),
        ("delay", {"delay": math.nan}),
        ("delay", {"delay": "1 minute"}),
        ("delay", {"delay": timedelta(days=367)}),
        ("run_at", {"run_at": datetime(2030, 1, 1)}),  # noqa: DTZ001 - naive is the point
        ("run_at", {"run_at": datetime.max.replace(tzinfo=FIXED)}),
        ("run_at", {"run_at": "2030-01-01T00:00:00Z"}),
        ("run_at", {"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}),
        ("key", {"key": ""}),
        ("key", {"key": "é" * 257}),
        ("key", {"key": "a\0"}),
        ("key", {"key": "\ud800"}),
        ("key", {"key": 5}),
        ("tenant", {"tenant": "é" * 65}),
        ("tenant", {"tenant": 5}),
        ("queue", {"queue": ""}),
        ("queue", {"queue": "é" * 65}),
        ("queue", {"queue": "a\0"}),
        ("on_duplicate", {"on_duplicate": "repalce"}),
        ("on_duplicate", {"on_duplicate": "before"}),
        ("max_attempts", {"max_attempts": 0}),
        ("max_attempts", {"max_attempts": 2**31}),
        ("max_attempts", {"max_attempts": 2.0}),
        ("retry", {"retry": {"base": 5}}),
        ("timeout", {"timeout": -1}),
        ("timeout", {"timeout": True}),
        ("expires_in", {"expires_in": 0}),
        ("expires_in", {"expires_in": 5, "delay": 10}),
        ("meta", {"meta": {"a": "x" * 8192}}),
        ("meta", {"meta": [1]}),
        ("meta.a", {"meta": {"a": math.nan}}),
        ("meta.a[0]", {"meta": {"a": ["\0"]}}),
        ("meta.a", {"meta": {"a": {1, 2}}}),
        ("serial_group", {"serial_group": ""}),
        ("serial_group", {"serial_group": "é" * 101}),
        ("serial_group", {"serial_group": 7}),
        ("group_order", {"group_order": "strict"}),
        ("keep_result", {"keep_result": 60}),
        ("prio", {"prio": 1}),
    ],
)
def test_the_library_names_a_wrong_option(shop: Shop, database: RigDatabase, field: str, options: dict[str, Any]) -> None:
    """FQ-15 for max_attempts; case f1 for run_at."""
    words: Any = shop.plain
    with refused(database, field):
        words.using(**options).enqueue()
    if field not in ("group_order", "keep_result", "prio"):
        with refused(database, field):
            shop.app.enqueue_many([NewJob("plain"), NewJob("plain", **options)])


@pytest.mark.parametrize(
    ("field", "task", "payload"),
    [
        ("payload", "plain", [1]),
        ("payload", "plain", None),
        ("payload", "plain", {1: 2}),
        ("payload.a", "plain", {"a": math.nan}),
        ("payload.a.b[1]", "plain", {"a": {"b": [1, math.inf]}}),
        ("payload.a", "plain", {"a": "\0"}),
        ("payload.a", "plain", {"a": "\udc80"}),
        ("payload.a", "plain", {"a": {1, 2}}),
        ("payload.a", "plain", {"a": b"bytes"}),
        ("payload.a", "plain", {"a": datetime(2030, 1, 1, tzinfo=UTC)}),
        ("payload.a", "plain", {"a": 10**5000}),
        ("payload", "plain", {"a": "x" * 262_144}),
        ("payload", "plain", {"a": "x" * 50_000_000}),
    ],
    ids=range(13),
)
def test_a_job_by_name_is_checked_as_json(shop: Shop, database: RigDatabase, field: str, task: str, payload: Any) -> None:
    """Cases e1, e3, e4."""
    with refused(database, field, InvalidPayload):
        shop.app.enqueue(NewJob(task, payload))


@pytest.mark.parametrize("task", ["", "é" * 101, "a\0", 5])
def test_a_task_has_a_name(shop: Shop, database: RigDatabase, task: Any) -> None:
    with refused(database, "task"):
        shop.app.enqueue(NewJob(task))
