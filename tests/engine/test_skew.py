"""What a controller says about a schema that is not its own release's, and which steps it may apply."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.db.migrate import check, migrate, printed
from tailrace.db.migration_files import MIGRATIONS, Migration
from tailrace.db.skew import OLDEST, allowed_now, fit
from tailrace.db.versions import Applied, applied_migrations
from tailrace.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from tests.rig.servers import RigDatabase

PLACE = Database(url=SecretStr("postgresql://me:secret@h/d"))
NOW = datetime.now(UTC)
EXPAND = Migration(9000, "expand", "create table tailrace.expanded (n int);")
CONTRACT = Migration(9001, "contract", "-- min_worker: 0.3\n-- min_controller: 0.2\ncreate table tailrace.contracted (n int);")
AFTER = Migration(9002, "after", "create table tailrace.after (n int);")


def applied(until: int, *more: Applied) -> list[Applied]:
    steps = [step for step in MIGRATIONS if step.version <= until]
    return [Applied(step.version, step.name, step.checksum, NOW, None) for step in steps] + list(more)


def test_no_tables_too_old_and_too_new_are_three_things() -> None:
    with pytest.raises(
        SchemaMissing, match=r"schema tailrace of h:5432/d has no Tailrace tables \(As the owner .*: tailrace migrate\)"
    ):
        fit([], PLACE)
    with pytest.raises(SchemaTooOld, match=rf"is at version 3, this controller needs {OLDEST} at least .*tailrace migrate"):
        fit(applied(3), PLACE)
    newer = Applied(9001, "contract", "x", NOW, None, "99.0")
    with pytest.raises(SchemaTooNew, match=r"at version 9001, which needs a controller of Tailrace 99\.0"):
        fit(applied(9000, newer), PLACE)


def test_the_schema_of_the_next_release_is_fine_until_it_names_a_newer_controller() -> None:
    newer = Applied(9000, "expand", "x", NOW, "99.0", None)
    found = fit(applied(8999, newer), PLACE)
    assert (found.version, found.missing, found.pending) == (9000, (), None)
    assert fit(applied(8999, Applied(9000, "expand", "x", NOW, None, "0.1")), PLACE, release="0.1.0").version == 9000


def test_a_schema_of_two_releases_ago_is_worked_with_and_told() -> None:
    found = fit(applied(8999), PLACE, migrations=[*MIGRATIONS, EXPAND])
    assert found.missing == (EXPAND,)
    assert "lacks 9000_expand (As its owner run: tailrace migrate)" in str(found.pending)


@pytest.mark.parametrize(
    ("workers", "allowed"),
    [
        ([], [EXPAND, CONTRACT, AFTER]),
        (["0.3.0", "0.10"], [EXPAND, CONTRACT, AFTER]),
        (["0.3.0", "0.2.9"], [EXPAND]),
        (["homemade"], [EXPAND]),
    ],
)
def test_a_step_that_drops_something_waits_for_older_workers_to_go(workers: list[str], allowed: list[Migration]) -> None:
    assert list(allowed_now([EXPAND, CONTRACT, AFTER], workers)) == allowed


def test_workers_do_not_need_a_step_that_waits_for_older_ones(database: RigDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else neither could start before the other is gone."""
    monkeypatch.setattr("tailrace.db.versions.MIGRATIONS", [*MIGRATIONS, CONTRACT])
    with database.connect() as conn:
        assert check(conn, Database(url=SecretStr(database.dsn))) == MIGRATIONS[-1].version
        monkeypatch.setattr("tailrace.db.versions.MIGRATIONS", [*MIGRATIONS, EXPAND])
        with pytest.raises(SchemaTooOld):
            check(conn, Database(url=SecretStr(database.dsn)))


def test_a_step_records_who_can_live_with_it(database: RigDatabase) -> None:
    migrate(database.dsn, migrations=[*MIGRATIONS, CONTRACT])
    with database.connect() as conn:
        last = applied_migrations(conn, "tailrace")[-1]
    assert (last.version, last.min_worker, last.min_controller) == (9001, "0.3", "0.2")
    assert "'0.3', '0.2');" in printed(migrations=[CONTRACT])
