"""Blocks of SQL, and the two drivers on anybody's connection."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tailrace.db import Blocks, Statement, arun, run
from tailrace.db.statements import render
from tailrace.errors import DatabaseUnavailable, SchemaTooOld, TailraceError
from tests.rig.servers import Connection, RigDatabase

PAIR: Statement[tuple[int, str]] = Statement(
    "select %(n)s::int, %(t)s::text", {"n": 1, "t": "%s %"}, lambda rows: (rows[0][0], rows[0][1])
)
FAIL = """
create function pg_temp.fail(state text) returns void language plpgsql as 'begin raise exception using errcode = state; end'"""


def test_every_block_is_one_statement_for_the_schema() -> None:
    blocks = Blocks('My"Schema 100%')
    assert len(blocks) == len(list(blocks)) > 10
    for name in blocks:
        text = blocks[name]
        assert "tailrace." not in text, name
        assert not text.rstrip().endswith(";"), name
        assert not text.startswith("--"), name
    # A percent sign begins a placeholder for psycopg.
    assert '"My""Schema 100%%".migration' in blocks["migrate.applied"]


def test_an_unknown_block_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no SQL block 'migrate.nothing'; known: .*migrate\.applied"):
        Blocks("tailrace")["migrate.nothing"]


def test_only_the_prefix_is_replaced() -> None:
    assert render("tailrace.job my_tailrace.job 'tailrace'", "x\\1") == "\"x\\1\".job my_tailrace.job 'tailrace'"


@pytest.mark.parametrize("factory", [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor])
def test_any_row_or_cursor_factory_of_the_caller_will_do(database: RigDatabase, factory: type[psycopg.Cursor[Any]]) -> None:
    with psycopg.connect(database.dsn, row_factory=dict_row, cursor_factory=factory) as conn:
        assert run(conn, PAIR) == (1, "%s %")


async def test_the_async_driver_reads_the_same(database: RigDatabase) -> None:
    async with await psycopg.AsyncConnection.connect(database.dsn, row_factory=dict_row) as conn:
        assert await arun(conn, PAIR) == (1, "%s %")


async def test_nothing_is_committed(database: RigDatabase) -> None:
    text = "insert into tailrace.queue (name) values (%(q)s) returning name"
    insert: Statement[str] = Statement(text, {"q": "q"}, lambda rows: str(rows[0][0]))
    with psycopg.connect(database.dsn) as conn:
        assert run(conn, insert) == "q"
        conn.rollback()
    async with await psycopg.AsyncConnection.connect(database.dsn) as aconn:
        assert await arun(aconn, insert) == "q"
        await aconn.rollback()
    assert database.value("select count(*) from tailrace.queue") == 0


async def test_a_plan_kept_over_a_migration_is_dropped_once(database: RigDatabase) -> None:
    """0A000, "cached plan must not change result type": prepared statements are dropped and the statement sent again."""
    everything: Statement[int] = Statement("select * from grows", {}, lambda rows: len(rows[0]))
    database.query("create table grows as select 1 as a")
    with database.connect() as conn:
        conn.prepare_threshold = 0
        assert run(conn, everything) == 1
        database.query("alter table grows add column b int")
        assert run(conn, everything) == 2
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True, prepare_threshold=0) as aconn:
        assert await arun(aconn, everything) == 2
        database.query("alter table grows add column c int")
        assert await arun(aconn, everything) == 3


def test_inside_a_transaction_nothing_is_sent_again(database: RigDatabase) -> None:
    everything: Statement[int] = Statement("select * from grows", {}, lambda rows: len(rows[0]))
    database.query("create table grows as select 1 as a")
    with database.connect() as conn:
        conn.prepare_threshold = 0
        run(conn, everything)
        database.query("alter table grows add column b int")
        with pytest.raises(psycopg.errors.FeatureNotSupported), conn.transaction():
            run(conn, everything)


# ---- refusals --------------------------------------------------------------------------------------------------------
def test_a_broken_connection_is_a_database_that_is_not_available(database: RigDatabase) -> None:
    with database.connect(application_name="victim") as conn:
        database.terminate_backends("victim")
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable) as caught:
                run(conn, PAIR)
            assert caught.value.retryable
            assert isinstance(caught.value, ConnectionError)


def test_a_missing_schema_names_the_command(empty_database: RigDatabase) -> None:
    with empty_database.connect() as conn, pytest.raises(SchemaTooOld, match="tailrace migrate"):
        run(conn, Statement("select id from tailrace.enqueue('q', 't', '{}')", {}, len))


def test_missing_rights_say_what_to_grant(conn: Connection) -> None:
    conn.execute("set role tailrace_reader")
    with pytest.raises(TailraceError, match="permission denied.*doctor"):
        run(conn, Statement("select tailrace.cancel(1)", {}, len))


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03", "57014", "P0001"])
def test_what_belongs_to_the_callers_transaction_stays_what_it_is(conn: Connection, state: str) -> None:
    conn.execute(FAIL)
    with pytest.raises(psycopg.Error) as caught:
        run(conn, Statement("select pg_temp.fail(%(s)s)", {"s": state}, len))
    assert caught.value.sqlstate == state


@pytest.mark.parametrize("state", ["25006", "53300", "57P01", "08006"])
def test_a_server_that_cannot_serve_is_not_available(conn: Connection, state: str) -> None:
    """A failover to a read-only server counts as a lost connection."""
    conn.execute(FAIL)
    with pytest.raises(DatabaseUnavailable):
        run(conn, Statement("select pg_temp.fail(%(s)s)", {"s": state}, len))


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ("TR001", "InvalidPayload"),
        ("TR002", "InvalidOption"),
        ("TR003", "NotFound"),
        ("TR004", "Conflict"),
        ("TR005", "LeaseLost"),
    ],
)
def test_refusals_of_our_functions_keep_field_problem_and_remedy(conn: Connection, state: str, name: str) -> None:
    with pytest.raises(TailraceError) as caught:
        run(conn, Statement("select tailrace.refuse_v1(%(s)s, 'priority', 'is wrong', 'Mend it')", {"s": state}, len))
    assert type(caught.value).__name__ == name
    assert (caught.value.field, caught.value.hint) == ("priority", "Mend it")
    assert str(caught.value) == "priority: is wrong (Mend it)"
