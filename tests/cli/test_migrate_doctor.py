"""`tailrace migrate` and `tailrace doctor`."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.cli.nursery import Nursery
from tests.engine.rows import Rows
from tests.rig.pgbouncer import StartPooler
from tests.rig.servers import Connection, RigDatabase

UNREACHABLE = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=2"


@pytest.fixture
def bare(empty_database: RigDatabase, nursery: Nursery, tmp_path: Path) -> Cli:
    """The command on an empty database."""
    return Cli(empty_database.dsn, nursery, tmp_path)


def test_check_migrate_check(bare: Cli) -> None:
    """BF-14: one source of the schema, checked with a clear error."""
    pending = bare("migrate", "--check", "-o", "json", status=1).json
    versions = [step["version"] for step in pending]
    assert versions[0] == 1
    assert versions == sorted(set(versions))
    assert "tailrace migrate" in bare("jobs", "list", status=1).err
    applied = bare("migrate", "-o", "json").json
    assert [step["name"] for step in applied] == [step["name"] for step in pending]
    assert bare("migrate", "-o", "json").json == []
    assert bare("migrate", "--check").err == "the schema is current\n"
    assert bare("migrate", "--check", "--sql", status=2).out == ""


def test_printed_ddl_needs_no_database_and_runs(bare: Cli, empty_database: RigDatabase) -> None:
    printed = bare("migrate", "--sql", "--schema", 'My"Schema', env={"TAILRACE_DATABASE_URL": UNREACHABLE}).out
    with empty_database.connect() as conn:
        conn.execute(printed.encode())
    assert bare("jobs", "list", "--schema", 'My"Schema', "-o", "json").json == []
    assert bare("migrate", "--check", "--schema", 'My"Schema').out == ""


def test_unreachable_is_3_everywhere(bare: Cli) -> None:
    for words in (("migrate",), ("jobs", "list"), ("doctor",), ("enqueue", "q", "t", "{}"), ("maintain", "--once")):
        result = bare(*words, env={"TAILRACE_DATABASE_URL": UNREACHABLE}, status=3)
        assert "127.0.0.1:1/none" in result.everything
        assert "Traceback" not in result.err


def test_doctor_of_a_fit_database(cli: Cli) -> None:
    found = {row["check"]: row["status"] for row in cli("doctor", "-o", "json").json}
    assert set(found) == {
        "connection", "server", "schema", "privileges", "clock", "oldest transaction", "connections", "roles", "foreign objects",
        "autovacuum", "maintenance",
    }  # fmt: skip
    assert set(found.values()) <= {"ok", "warn"}
    assert "oldest transaction" in cli("doctor").out


def test_doctor_tells_of_a_pooler(cli: Cli, database: RigDatabase, pgbouncer: StartPooler) -> None:
    """d1: it warns where no direct address is set, since wake-ups and migrations need one."""
    through = cli.at(pgbouncer(database).dsn)
    found = {row["check"]: row for row in through("doctor", "-o", "json").json}
    assert found["pooler"]["status"] == "warn"
    assert "TAILRACE_DIRECT_DATABASE_URL" in found["pooler"]["remedy"][0]
    direct = {"TAILRACE_DIRECT_DATABASE_URL": database.dsn}
    found = {row["check"]: row for row in through("doctor", "-o", "json", env=direct).json}
    assert (found["pooler"]["status"], found["pooler"]["remedy"]) == ("ok", [])


def test_doctor_of_an_empty_database(bare: Cli) -> None:
    found = {row["check"]: row for row in bare("doctor", "-o", "json", status=1).json}
    assert found["schema"]["status"] == "fail"
    assert "tailrace migrate" in found["schema"]["remedy"][0]


def test_doctor_sees_what_harms(cli: Cli, rows: Rows, database: RigDatabase) -> None:
    rows.conn.execute("create index mine on tailrace.job (attempts)")
    rows.conn.execute("create table other (job bigint references tailrace.job)")
    rows.conn.execute("alter table tailrace.job set (autovacuum_enabled = false)")
    rows.worker()
    with database.connect(autocommit=False, application_name="sleepy") as idle:
        idle.execute("select 1")
        found = {row["check"]: row for row in cli("doctor", "-o", "json").json}
    assert found["foreign objects"]["status"] == "warn"
    assert "index mine" in found["foreign objects"]["found"]
    assert "foreign key" in found["foreign objects"]["found"]
    assert found["autovacuum"]["status"] == "warn"
    assert found["maintenance"]["status"] == "warn"
    assert "sleepy" in found["oldest transaction"]["found"]


def test_doctor_prints_the_grants_that_are_missing(cli: Cli, conn: Connection, database: RigDatabase) -> None:
    conn.execute("drop role if exists cli_stranger")
    conn.execute("create role cli_stranger login password 'stranger'")
    try:
        stranger = cli.at(psycopg.conninfo.make_conninfo(database.dsn, user="cli_stranger", password="stranger"))
        found = {row["check"]: row for row in stranger("doctor", "-o", "json", status=1).json}
        assert found["privileges"]["status"] == "fail"
        assert "grant tailrace_worker to cli_stranger;" in found["privileges"]["remedy"]
        assert stranger("jobs", "list", status=1).out == ""
        conn.execute("grant tailrace_enqueue to cli_stranger")
        assert stranger("enqueue", "q", "t", "{}", "-o", "json").json[0]["outcome"] == "created"
        conn.execute("grant tailrace_reader to cli_stranger")
        assert len(stranger("jobs", "list", "-o", "json").json) == 1
        assert stranger("queues", "hold", "q", status=1).out in ("", "[]\n")
    finally:
        conn.execute("drop owned by cli_stranger")
        conn.execute("drop role cli_stranger")
