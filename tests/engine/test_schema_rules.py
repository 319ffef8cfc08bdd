"""The tables refuse what the functions refuse: plain INSERT and COPY pass every function by."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tailrace.db import Statement, run
from tailrace.errors import InvalidOption, InvalidPayload, TailraceError
from tests.rig.servers import Connection

GOOD: dict[str, Any] = {"queue": "q", "task": "t", "payload": Jsonb({"a": 1})}

REFUSED: list[tuple[str, Any, str, type[TailraceError], str]] = [
    ("priority", 1001, "job_priority_range", InvalidOption, "priority"),
    ("priority", -1001, "job_priority_range", InvalidOption, "priority"),
    ("max_attempts", 0, "job_attempts_range", InvalidOption, "max_attempts"),
    ("attempts", -1, "job_attempts_range", InvalidOption, "max_attempts"),
    ("run_at", "infinity", "job_run_at_range", InvalidOption, "run_at"),
    ("run_at", "-infinity", "job_run_at_range", InvalidOption, "run_at"),
    ("run_at", "10000-01-01 00:00+00", "job_run_at_range", InvalidOption, "run_at"),
    ("run_at", "0001-01-01 00:00+00 BC", "job_run_at_range", InvalidOption, "run_at"),
    ("expires_at", "infinity", "job_expires_range", InvalidOption, "expires_at"),
    ("timeout", "-1 second", "job_timeout_range", InvalidOption, "timeout"),
    ("timeout", "367 days", "job_timeout_range", InvalidOption, "timeout"),
    ("queue", "", "job_queue_size", InvalidOption, "queue"),
    ("queue", "ü" * 65, "job_queue_size", InvalidOption, "queue"),
    ("task", "", "job_task_size", InvalidOption, "task"),
    ("task", "ü" * 101, "job_task_size", InvalidOption, "task"),
    ("tenant", "ü" * 65, "job_tenant_size", InvalidOption, "tenant"),
    ("key", "", "job_key_size", InvalidOption, "key"),
    ("key", "ü" * 257, "job_key_size", InvalidOption, "key"),
    ("serial_group", "", "job_group_size", InvalidOption, "serial_group"),
    ("serial_group", "x" * 201, "job_group_size", InvalidOption, "serial_group"),
    ("key_slot", 2, "job_key_slot_range", InvalidOption, "key_slot"),
    ("payload", Jsonb([1]), "job_payload", InvalidPayload, "payload"),
    ("payload", Jsonb("text"), "job_payload", InvalidPayload, "payload"),
    ("payload", Jsonb({"a": "x" * 262144}), "job_payload", InvalidPayload, "payload"),
    ("meta", Jsonb([1]), "job_meta", InvalidOption, "meta"),
    ("meta", Jsonb({"a": "x" * 8192}), "job_meta", InvalidOption, "meta"),
]

ACCEPTED: list[tuple[str, Any]] = [
    ("priority", 1000),
    ("priority", -1000),
    ("max_attempts", 2147483647),
    ("run_at", "9999-12-31 23:59:59+00"),
    ("expires_at", "2000-01-01 00:00+00"),
    ("timeout", "0"),
    ("timeout", "366 days"),
    ("queue", "ü" * 64),
    ("task", "ü" * 100),
    ("tenant", "ü" * 64),
    ("key", "ü" * 256),
    ("payload", Jsonb({})),
    ("payload", Jsonb({"a": "x" * (262144 - 9)})),
    ("meta", Jsonb({"a": "x" * (8192 - 9)})),
]


def insert(**changes: Any) -> Statement[int]:
    values = GOOD | changes
    columns, places = ", ".join(values), ", ".join(f"%({name})s" for name in values)
    text = f"insert into tailrace.job ({columns}) values ({places}) returning id"
    return Statement(text, values, lambda rows: int(rows[0][0]))


def short(value: object) -> str:
    return repr(getattr(value, "obj", value))[:24]


@pytest.mark.parametrize(("column", "value", "constraint", "error", "field"), REFUSED, ids=short)
def test_a_plain_insert_is_refused_by_name(
    conn: Connection, column: str, value: Any, constraint: str, error: type[TailraceError], field: str
) -> None:
    """e3, f1."""
    with pytest.raises(error) as caught:
        run(conn, insert(**{column: value}))
    assert caught.value.field == field
    assert caught.value.hint
    cause = caught.value.__cause__
    assert isinstance(cause, psycopg.errors.CheckViolation)
    assert cause.diag.constraint_name == constraint
    assert conn.execute("select count(*) from tailrace.job").fetchone() == (0,)


@pytest.mark.parametrize(("column", "value"), ACCEPTED, ids=short)
def test_the_bounds_themselves_are_accepted(conn: Connection, column: str, value: Any) -> None:
    assert run(conn, insert(**{column: value})) > 0


@pytest.mark.parametrize("column", ["tenant", "queue", "task", "payload", "priority", "run_at", "max_attempts"])
def test_null_is_refused_by_field(conn: Connection, column: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        run(conn, insert(**{column: None}))
    assert caught.value.field == column


def test_a_long_key_of_long_characters_fits_the_unique_index(conn: Connection) -> None:
    """All parts of the key at their limits, in characters that do not compress, stay below the size of an index row."""
    wide = "".join(chr(0x4E00 + n * 37 % 20000) for n in range(170))
    parts = {"tenant": 128, "queue": 128, "task": 200, "key": 512}
    values = {name: wide.encode()[: size - size % 3].decode() for name, size in parts.items()}
    assert run(conn, insert(**values)) > 0


@pytest.mark.parametrize("text", ['{"a": "\\u0000"}', '{"a": NaN}', '{"a": Infinity}', "{", ""])
def test_what_is_no_json_is_an_invalid_payload(conn: Connection, text: str) -> None:
    """e1, e4, BF-15: NUL in a payload is refused at the door, not at the move to the dead letters."""
    with pytest.raises(InvalidPayload):
        run(conn, Statement("insert into tailrace.job (queue, task, payload) values ('q', 't', %(p)s::jsonb)", {"p": text}, len))


def test_nul_in_a_name_is_refused(conn: Connection) -> None:
    """e1."""
    with pytest.raises(InvalidOption, match="NUL"):
        run(conn, insert(queue="a\0b"))


def test_copy_is_checked_too(conn: Connection) -> None:
    with (
        pytest.raises(psycopg.errors.CheckViolation, match="payload must be a JSON object"),
        conn.cursor().copy("copy tailrace.job (queue, task, payload) from stdin") as copy,
    ):
        copy.write_row(("q", "t", "[]"))


def test_the_payload_is_checked_when_it_changes_and_only_then(conn: Connection) -> None:
    made = run(conn, insert())
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("update tailrace.job set payload = '[]' where id = %s", [made])
    triggers = conn.execute(
        "select tgname, pg_get_triggerdef(oid) from pg_trigger where tgrelid = 'tailrace.job'::regclass and not tgisinternal"
    ).fetchall()
    assert {name: text.split(" ON ")[0].split("job_")[1].partition(" ")[2].partition(" OF ")[0] for name, text in triggers} == {
        "job_rules": "BEFORE INSERT OR UPDATE",
        "job_follow": "AFTER INSERT",
    }
    checks = conn.execute(
        "select pg_get_constraintdef(oid) from pg_constraint where conrelid = 'tailrace.job'::regclass and contype = 'c'"
    ).fetchall()
    assert not [text for (text,) in checks if "payload" in text or "meta" in text]


def test_a_key_is_held_once_in_its_scope(conn: Connection) -> None:
    """FQ-07, FQ-08, BF-12: unique over tenant, queue, task and key; each of the four separates."""
    run(conn, insert(key="k"))
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute("insert into tailrace.job (queue, task, payload, key) values ('q', 't', '{}', 'k')")
    for other in ({"tenant": "x"}, {"queue": "x"}, {"task": "x"}, {"key": "x"}):
        run(conn, insert(**({"key": "k"} | other)))


WORKER = """
insert into tailrace.worker (id, until, version, queues, tasks, slots, state) values ('w', now(), '1', '{}', '{}', 1, 'gone')"""
LETTER = """
insert into tailrace.dead_letter (job_id, state, queue, task, payload, priority, run_at, max_attempts, reason, error_type,
  fingerprint, total_attempts, first_failed_at, failed_at, created_at)
values (1, 'gone', 'q', 't', '{}', 0, now(), 1, 'r', 'e', 'f', 1, now(), now(), now())"""


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (WORKER, "worker_state_check"),
        ("insert into tailrace.queue (name) values ('')", "queue_name_check"),
        ("insert into tailrace.queue (name, managed_by) values ('q', 'me')", "queue_managed_by_check"),
        (LETTER, "dead_letter_state_check"),
    ],
    ids=["worker", "queue", "manager", "dead_letter"],
)
def test_other_tables_keep_their_sets(conn: Connection, statement: str, constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        conn.execute(statement.encode())
    assert caught.value.diag.constraint_name == constraint
