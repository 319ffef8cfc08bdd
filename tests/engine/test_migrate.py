"""Migrations: many at once, interrupted, blocked, printed, under any name, with few rights."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.db.migrate import REQUIRED, check, migrate, pending, printed, schema_version
from tailrace.db.migration_files import MIGRATIONS, Migration
from tailrace.errors import Conflict, InvalidOption, TailraceError
from tests.rig.processes import StartProcess
from tests.rig.servers import RigDatabase, Server
from tests.rig.waiting import eventually

ODD_NAMES = ('My"Schema', "Schäma 100% \\ 'x'", 'x"; drop schema public cascade; --')
ALL = [step.version for step in MIGRATIONS]


def place(database: RigDatabase, schema: str = "tailrace") -> Database:
    return Database(url=SecretStr(database.dsn), schema=schema)


def versions(database: RigDatabase, schema: str = "tailrace") -> list[int]:
    with database.connect() as conn:
        rows = conn.execute(
            sql.SQL("select version from {} order by version").format(sql.Identifier(schema, "migration"))
        ).fetchall()
    return [version for (version,) in rows]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as opened:
        yield opened


# ---- at once ---------------------------------------------------------------------------------------------------------
def test_sixteen_at_once_on_an_empty_database(empty_database: RigDatabase, pool: ThreadPoolExecutor) -> None:
    """BF-40: no collision in the catalogue; each step is applied once."""
    results = list(pool.map(lambda _: migrate(empty_database.dsn), range(16)))
    assert sorted(one.version for result in results for one in result) == ALL
    assert versions(empty_database) == ALL


def test_two_processes_at_once(empty_database: RigDatabase, process: StartProcess) -> None:
    """BF-40, with processes of their own."""
    code = "import os; from tailrace.db.migrate import migrate; print(len(migrate(os.environ['DSN'])))"
    both = [process("-c", code, env={"DSN": empty_database.dsn}) for _ in range(2)]
    assert [one.wait(30) for one in both] == [0, 0]
    assert versions(empty_database) == ALL


def test_a_second_run_changes_nothing(database: RigDatabase) -> None:
    """FQ-01, BF-03: neither migrating again nor the check at a start touches a job, running or exhausted."""
    database.query(
        "insert into tailrace.job (queue, task, payload, attempts, max_attempts, token)"
        " select 'q', 't', '{}', 5, 5, case when n % 2 = 0 then n end from generate_series(1, 250) n"
    )
    before = database.query("select *, xmin, ctid from tailrace.job order by id")
    assert migrate(database.dsn) == []
    with database.connect() as conn:
        assert check(conn, place(database)) == REQUIRED
    assert database.query("select *, xmin, ctid from tailrace.job order by id") == before


# ---- interrupted -----------------------------------------------------------------------------------------------------
def test_a_failed_step_leaves_nothing_and_the_next_run_goes_on(empty_database: RigDatabase) -> None:
    good = Migration(1, "good", "create table tailrace.a (n int);")
    bad = Migration(2, "bad", "create table tailrace.b (n int); select 1 / 0;")
    last = Migration(3, "last", "create table tailrace.c (n int);")
    with pytest.raises(TailraceError, match=r"migration 0002_bad: division by zero"):
        migrate(empty_database.dsn, migrations=[good, bad, last])
    assert versions(empty_database) == [1]
    assert empty_database.value("select to_regclass('tailrace.b')") is None
    mended = replace(bad, text="create table tailrace.b (n int);")
    assert [one.version for one in migrate(empty_database.dsn, migrations=[good, mended, last])] == [2, 3]


def test_a_killed_migrator_is_taken_up_by_the_next(empty_database: RigDatabase, pool: ThreadPoolExecutor) -> None:
    slow = Migration(1, "slow", "create table tailrace.a (n int); select pg_sleep(60);")
    running = pool.submit(migrate, empty_database.dsn, migrations=[slow])
    eventually(
        lambda: empty_database.query(
            "select 1 from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        )
    )
    empty_database.terminate_backends("tailrace migrate")
    with pytest.raises(TailraceError):
        running.result(10)
    quick = replace(slow, text="create table tailrace.a (n int);")
    assert [one.version for one in migrate(empty_database.dsn, migrations=[quick])] == [1]


def test_until_stops_and_later_runs_continue(empty_database: RigDatabase) -> None:
    assert [one.version for one in migrate(empty_database.dsn, until=1)] == [1]
    assert [step.version for step in pending(place(empty_database))] == ALL[1:]
    assert [one.version for one in migrate(empty_database.dsn)] == ALL[1:]
    assert pending(place(empty_database)) == []


def test_an_edited_file_is_refused(database: RigDatabase) -> None:
    database.query("update tailrace.migration set checksum = 'other' where version = 1")
    with pytest.raises(Conflict, match="0001_tables: its text differs"):
        migrate(database.dsn)
    with pytest.raises(Conflict):
        pending(place(database))


def test_line_ends_do_not_change_the_checksum() -> None:
    unix = Migration(1, "a", "select 1;\nselect 2;\n")
    assert replace(unix, text=unix.text.replace("\n", "\r\n")).checksum == unix.checksum


# ---- blocked ---------------------------------------------------------------------------------------------------------
ALTER = Migration(9001, "alter", "alter table tailrace.job add column extra text;")


def test_a_blocked_step_gives_way_and_tries_again(
    database: RigDatabase, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    """Expand under an open transaction: the step waits two seconds at most, lets others pass, and gets in at the end."""
    with database.connect(autocommit=False) as app, caplog.at_level(logging.INFO, "tailrace.migrate"):
        app.execute("select count(*) from tailrace.job")
        running = pool.submit(migrate, database.dsn, migrations=[*MIGRATIONS, ALTER])
        gave_way = lambda: [r for r in caplog.records if getattr(r, "event", "") == "migration_waiting"]  # noqa: E731
        assert eventually(gave_way, what="the step to give way")[0].__dict__["version"] == 9001
        # Producers that came while it waited have not been stopped for longer than its wait.
        database.query("set statement_timeout = '4s'; insert into tailrace.job (queue, task, payload) values ('q', 't', '{}')")
        assert not running.done()
        app.rollback()
        assert [one.version for one in running.result(20)] == [9001]


def test_a_step_that_is_blocked_for_too_long_says_why(database: RigDatabase) -> None:
    with database.connect(autocommit=False) as app:
        app.execute("select count(*) from tailrace.job")
        with pytest.raises(Conflict, match="9001_alter: .*doctor"):
            migrate(database.dsn, migrations=[*MIGRATIONS, ALTER], wait_seconds=0.1)
    assert 9001 not in versions(database)


def test_another_migrator_that_does_not_end_is_named(empty_database: RigDatabase) -> None:
    with empty_database.connect() as other:
        other.execute("select pg_advisory_lock(hashtext('tailrace'), hashtext('tailrace'))")
        with pytest.raises(Conflict, match="another migrator"):
            migrate(empty_database.dsn, wait_seconds=0.1)
        assert migrate(empty_database.dsn, schema="elsewhere")


# ---- concurrent steps ------------------------------------------------------------------------------------------------
INDEX = Migration(
    9002,
    "index",
    "-- Adds an index beside running producers.\n-- concurrently\n"
    "create unique index concurrently if not exists job_extra\n  on tailrace.job (queue, task);\n",
)


def test_a_concurrent_step_drops_its_invalid_index_and_builds_it_again(database: RigDatabase) -> None:
    """An interrupted CREATE INDEX CONCURRENTLY leaves an index that IF NOT EXISTS would take for good."""
    insert = "insert into tailrace.job (queue, task, payload) values ('q', 't', '{}'), ('q', 't', '{}')"
    database.query(insert)
    with pytest.raises(TailraceError, match="9002_index"):
        migrate(database.dsn, migrations=[*MIGRATIONS, INDEX])
    valid = "select indisvalid from pg_index where indexrelid = 'tailrace.job_extra'::regclass"
    assert database.value(valid) is False
    database.query("delete from tailrace.job")
    assert [one.version for one in migrate(database.dsn, migrations=[*MIGRATIONS, INDEX])] == [9002]
    assert database.value(valid) is True


# ---- names -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("schema", ODD_NAMES)
def test_any_schema_name_works(empty_database: RigDatabase, schema: str) -> None:
    """BF-41: the name is an identifier, never text pasted into SQL; two schemas live side by side."""
    migrate(empty_database.dsn)
    assert [one.version for one in migrate(empty_database.dsn, schema=schema)] == ALL
    ours = sql.Identifier(schema)
    with empty_database.connect() as conn:
        made = conn.execute(sql.SQL("select id, outcome from {}.enqueue('q', 't', '{{}}')").format(ours)).fetchone()
        assert made is not None
        assert made[1] == "created"
        assert conn.execute(sql.SQL("select {}.cancel({})").format(ours, made[0])).fetchone() == ("cancelled",)
        assert conn.execute("select count(*) from tailrace.audit").fetchone() == (0,)
        assert schema_version(conn, schema) == REQUIRED
    with empty_database.connect() as conn:
        assert check(conn, place(empty_database, schema)) == REQUIRED


@pytest.mark.parametrize("schema", ["", "x" * 64, "pg_x", "a\0b"])
def test_impossible_schema_names_are_refused(schema: str) -> None:
    with pytest.raises(InvalidOption, match="schema"):
        Database(schema=schema)


# ---- printed ---------------------------------------------------------------------------------------------------------
SHAPE = """
select 'column', table_name, column_name, data_type, is_nullable, column_default from information_schema.columns
where table_schema = 'tailrace'
union all select 'index', tablename, indexname, indexdef, null, null from pg_indexes where schemaname = 'tailrace'
union all select 'function', proname, md5(prosrc), pg_get_function_identity_arguments(oid), proacl::text,
  array_to_string(proconfig, ' ')
from pg_proc where pronamespace = 'tailrace'::regnamespace
union all select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), null, null
from pg_constraint where connamespace = 'tailrace'::regnamespace
union all select 'migration', version::text, name, checksum, min_worker, null from tailrace.migration
order by 1, 2, 3, 4"""


def test_what_is_printed_is_what_is_applied(empty_database: RigDatabase, database: RigDatabase) -> None:
    """BF-14: one source of the schema, whether we apply it or somebody runs the printed text."""
    empty_database.query(printed())
    assert empty_database.query(SHAPE) == database.query(SHAPE)
    assert migrate(empty_database.dsn) == []


# ---- rights ----------------------------------------------------------------------------------------------------------
def test_a_user_who_may_create_nothing_is_told_what_to_ask_for(empty_database: RigDatabase) -> None:
    name = f"u_{empty_database.name}"
    with empty_database.connect() as conn:
        conn.execute(sql.SQL("create role {} login password 'secret-word'").format(sql.Identifier(name)))
        try:
            dsn = make_conninfo(empty_database.dsn, user=name, password="secret-word")
            with pytest.raises(TailraceError, match="create schema") as caught:
                migrate(dsn)
            assert "secret-word" not in repr(caught.value) + str(caught.value)
        finally:
            conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_without_the_right_to_create_roles_the_rest_is_migrated(private_server: Server) -> None:
    """The owner runs later what `missing_roles_v1` says, and then nothing is missing."""
    database = private_server.create()
    with database.connect() as owner:
        owner.execute("create role plain login password 'p'")
        owner.execute(sql.SQL("grant create on database {} to plain").format(sql.Identifier(database.name)))
        migrate(make_conninfo(database.dsn, user="plain", password="p"))
        assert owner.execute("select count(*) from pg_roles where rolname like 'tailrace\\_%'").fetchone() == (0,)
        statements = [text for (text,) in owner.execute("select * from tailrace.missing_roles_v1()")]
        assert "create role tailrace_enqueue nologin" in statements
        for statement in statements:
            owner.execute(statement.encode())
        assert owner.execute("select * from tailrace.missing_roles_v1()").fetchall() == []
        owner.execute("set role tailrace_enqueue")
        assert owner.execute("select outcome from tailrace.enqueue('q', 't', '{}')").fetchone() == ("created",)
