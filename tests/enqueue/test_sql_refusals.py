"""Every bad input by the SQL functions and by a plain INSERT: refused by name, nothing stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tailrace import InvalidOption, InvalidPayload, TailraceError
from tailrace.db.refusals import translate
from tests.rig.servers import Connection, RigDatabase, Server


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


def refused(database: RigDatabase, field: str, kind: type[TailraceError], problem: psycopg.Error) -> None:
    """The driver's translation names the field and the remedy, and nothing was stored."""
    better = translate(problem, address="x")
    assert isinstance(better, kind)
    assert better.field == field
    assert str(better).startswith(f"{field}: ")
    assert better.hint
    assert database.value("select count(*) from tailrace.job") == 0


SQL_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("priority", {"priority": 1001}),
    ("priority", {"priority": 1.5}),
    ("priority", {"priority": "1"}),
    ("delay", {"delay": -1}),
    ("delay", {"delay": "-1 s"}),
    ("delay", {"delay": "soon"}),
    ("delay", {"delay": "infinity"}),
    ("delay", {"delay": True}),
    ("delay", {"delay": 1e30}),
    ("run_at", {"run_at": "infinity"}),
    ("run_at", {"run_at": "-infinity"}),
    ("run_at", {"run_at": "20000-01-01T00:00:00Z"}),
    ("run_at", {"run_at": "0001-01-01T00:00:00+00:00 BC"}),
    ("run_at", {"run_at": "2030-01-01"}),
    ("run_at", {"run_at": "2030-01-01T10:00:00"}),
    ("run_at", {"run_at": "yesterday-ish"}),
    ("run_at", {"run_at": 5}),
    ("run_at", {"run_at": "2030-01-01T00:00:00Z", "delay": 1}),
    ("max_attempts", {"max_attempts": 0}),
    ("max_attempts", {"max_attempts": 2**31}),
    ("key", {"key": ""}),
    ("key", {"key": "é" * 257}),
    ("key", {"key": 5}),
    ("tenant", {"tenant": "é" * 65}),
    ("tenant", {"tenant": ["a"]}),
    ("meta", {"meta": [1]}),
    ("meta", {"meta": {"a": "x" * 8192}}),
    ("timeout", {"timeout": "2 years"}),
    ("expires_in", {"expires_in": 0}),
    ("expires_in", {"expires_in": "5 s", "delay": "10 s"}),
    ("on_duplicate", {"on_duplicate": "repalce"}),
    ("on_duplicate", {"on_duplicate": "before"}),
    ("on_duplicate", {"on_duplicate": 5}),
    ("backoff", {"backoff": 5}),
    ("backoff", {"backoff": {"base": -1}}),
    ("backoff", {"backoff": {"strategy": "linear"}}),
    ("backoff.steps", {"backoff": {"steps": 3}}),
    ("trace", {"trace": 5}),
    ("defaults", {"defaults": 5}),
    ("priority", {"defaults": {"priority": 5000}}),
    ("serial_group", {"serial_group": ""}),
    ("serial_group", {"serial_group": "é" * 101}),
    ("serial_group", {"serial_group": 7}),
    ("group_order", {"group_order": "strict"}),
    ("keep_result", {"keep_result": 60}),
    ("prio", {"prio": 1}),
]


def refusal(conn: Connection, *, queue: Any = "q", task: Any = "t", payload: Any = "{}", options: Any = "{}") -> psycopg.Error:
    """What the function says, called as another language would."""
    with pytest.raises(psycopg.Error) as problem:
        conn.execute("select id, outcome from tailrace.enqueue(%s, %s, %s, %s)", [queue, task, payload, options])
    return problem.value


@pytest.mark.parametrize(("field", "options"), SQL_OPTIONS)
def test_the_function_names_a_wrong_option(conn: Connection, database: RigDatabase, field: str, options: dict[str, Any]) -> None:
    """Case f1 among them; SQLSTATE TR002 with COLUMN and HINT."""
    problem_of_one = refusal(conn, options=json.dumps(options))
    assert problem_of_one.sqlstate == "TR002"
    refused(database, field, InvalidOption, problem_of_one)
    jobs = [{"queue": "q", "task": "t", "payload": {}}, {"queue": "q", "task": "t", "payload": {}, **options}]
    with pytest.raises(psycopg.Error) as problem:
        conn.execute("select * from tailrace.enqueue_many(%s)", [json.dumps(jobs)])
    assert problem.value.sqlstate == "TR002"
    assert problem.value.diag.column_name == f"jobs[1].{field}"
    assert problem.value.diag.message_hint
    assert database.value("select count(*) from tailrace.job") == 0


@pytest.mark.parametrize(
    ("field", "kind", "arguments"),
    [
        ("queue", InvalidOption, {"queue": ""}),
        ("queue", InvalidOption, {"queue": None}),
        ("queue", InvalidOption, {"queue": "é" * 65}),
        ("task", InvalidOption, {"task": ""}),
        ("task", InvalidOption, {"task": None}),
        ("task", InvalidOption, {"task": "é" * 101}),
        ("options", InvalidOption, {"options": "[]"}),
        ("options", InvalidOption, {"options": "5"}),
        ("payload", InvalidPayload, {"payload": None}),
        ("payload", InvalidPayload, {"payload": "null"}),
        ("payload", InvalidPayload, {"payload": "[]"}),
        ("payload", InvalidPayload, {"payload": '"text"'}),
        ("payload", InvalidPayload, {"payload": json.dumps({"a": "x" * 262_144})}),
        ("payload", InvalidPayload, {"payload": '{"a": "\\u0000"}'}),
        ("payload", InvalidPayload, {"payload": '{"a": "\\ud800"}'}),
        ("payload", InvalidPayload, {"payload": '{"a": NaN}'}),
    ],
)
def test_the_function_names_a_wrong_argument(
    conn: Connection, database: RigDatabase, field: str, kind: type[TailraceError], arguments: dict[str, Any]
) -> None:
    """Cases e1, e2, e3, e4."""
    refused(database, field, kind, refusal(conn, **arguments))


@pytest.mark.parametrize(
    ("field", "jobs"),
    [
        ("jobs", {"a": 1}),
        ("jobs", None),
        ("jobs[0]", [5]),
        ("jobs[1].payload", [{"queue": "q", "task": "t", "payload": {}}, {"queue": "q", "task": "t"}]),
        ("jobs[1].payload", [{"queue": "q", "task": "t", "payload": {}}, {"queue": "q", "task": "t", "payload": []}]),
        ("jobs[0].queue", [{"task": "t", "payload": {}}]),
        ("jobs[0].queue", [{"queue": 5, "task": "t", "payload": {}}]),
        ("jobs[0].task", [{"queue": "q", "payload": {}}]),
        ("payload", [{"queue": "q", "task": "t", "payload": {"a": "x" * 262_144}}]),
    ],
)
def test_many_name_the_job_that_is_wrong(conn: Connection, database: RigDatabase, field: str, jobs: Any) -> None:
    with pytest.raises(psycopg.Error) as problem:
        conn.execute("select * from tailrace.enqueue_many(%s)", [json.dumps(jobs) if jobs is not None else None])
    assert problem.value.diag.column_name == field
    assert database.value("select count(*) from tailrace.job") == 0


@pytest.mark.parametrize(
    ("field", "column", "value"),
    [
        ("queue", "queue", ""),
        ("queue", "queue", "é" * 65),
        ("queue", "queue", None),
        ("task", "task", "é" * 101),
        ("tenant", "tenant", "é" * 65),
        ("tenant", "tenant", None),
        ("key", "key", ""),
        ("key", "key", "é" * 257),
        ("serial_group", "serial_group", ""),
        ("serial_group", "serial_group", "é" * 101),
        ("priority", "priority", 1001),
        ("max_attempts", "max_attempts", 0),
        ("run_at", "run_at", "infinity"),
        ("run_at", "run_at", "-infinity"),
        ("run_at", "run_at", "20000-01-01T00:00:00Z"),
        ("run_at", "run_at", "0001-01-01 00:00:00+00 BC"),
        ("expires_at", "expires_at", "infinity"),
        ("timeout", "timeout", "-1 s"),
        ("timeout", "timeout", "367 days"),
        ("meta", "meta", "[]"),
        ("meta", "meta", json.dumps({"a": "x" * 8192})),
        ("payload", "payload", "[]"),
        ("payload", "payload", json.dumps({"a": "x" * 262_144})),
        ("payload", "payload", '{"a": "\\u0000"}'),
        ("payload", "payload", None),
    ],
)
def test_a_plain_insert_is_refused_alike(conn: Connection, database: RigDatabase, field: str, column: str, value: Any) -> None:
    """COPY and INSERT pass the function by, so the table has every rule."""
    values = {"queue": "q", "task": "t", "payload": "{}", column: value}
    text = f"insert into tailrace.job ({', '.join(values)}) values ({', '.join(['%s'] * len(values))})"
    with pytest.raises(psycopg.Error) as problem:
        conn.execute(text, list(values.values()))
    refused(database, field, TailraceError, problem.value)
