"""What a release says about a schema that does not fit it."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.db.migrate import REQUIRED, Applied, acheck, check, migrate
from tailrace.db.migration_files import MIGRATIONS
from tailrace.db.versions import judge
from tailrace.errors import SchemaTooNew, SchemaTooOld
from tests.rig.servers import RigDatabase


def place(database: RigDatabase, schema: str = "tailrace") -> Database:
    return Database(url=SecretStr(database.dsn), schema=schema)


async def test_a_missing_schema_names_the_command(empty_database: RigDatabase) -> None:
    with empty_database.connect() as conn, pytest.raises(SchemaTooOld, match=r"has no Tailrace tables \(Run: tailrace migrate\)"):
        check(conn, place(empty_database))
    with empty_database.connect() as conn, pytest.raises(SchemaTooOld, match="tailrace migrate --schema 'other'"):
        check(conn, place(empty_database, "other"))
    async with await psycopg.AsyncConnection.connect(empty_database.dsn, autocommit=True) as aconn:
        with pytest.raises(SchemaTooOld):
            await acheck(aconn, place(empty_database))


async def test_an_old_schema_names_both_versions(empty_database: RigDatabase) -> None:
    """BF-14: a start against the wrong schema says what is missing, and where."""
    migrate(empty_database.dsn, until=3)
    with empty_database.connect() as conn, pytest.raises(SchemaTooOld) as caught:
        check(conn, place(empty_database))
    text = str(caught.value)
    assert f"is at version 3, this release needs {REQUIRED}" in text
    assert empty_database.name in text
    assert "@" not in text
    migrate(empty_database.dsn)
    async with await psycopg.AsyncConnection.connect(empty_database.dsn, autocommit=True) as aconn:
        assert await acheck(aconn, place(empty_database)) == REQUIRED


def test_a_newer_schema_is_fine_until_it_needs_newer_workers(database: RigDatabase) -> None:
    database.query("insert into tailrace.migration (version, name, checksum) values (9000, 'expand', 'x')")
    with database.connect() as conn:
        assert check(conn, place(database)) == 9000
        conn.execute("update tailrace.migration set min_worker = '99.0' where version = 9000")
        with pytest.raises(SchemaTooNew, match=r"at version 9000, which needs Tailrace 99\.0"):
            check(conn, place(database))


@pytest.mark.parametrize(
    ("needs", "release", "fits"),
    [("0.1", "0.1.0", True), ("0.2", "0.1.9", False), ("0.10", "0.9", False), ("1.0", "1.0.1", True), (None, "0.1", True)],
)
def test_releases_are_compared_by_number(needs: str | None, release: str, fits: bool) -> None:
    now = datetime.now(UTC)
    applied = [Applied(step.version, step.name, step.checksum, now, needs) for step in MIGRATIONS]
    where = Database(url=SecretStr("postgresql://h/d"))
    if fits:
        assert judge(applied, where, release=release) == REQUIRED
    else:
        with pytest.raises(SchemaTooNew):
            judge(applied, where, release=release)
