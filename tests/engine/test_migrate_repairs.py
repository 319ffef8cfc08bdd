"""A migration that adds a unique index repairs the rows first, whether it runs at once or concurrently."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.db.migrate import migrate
from tailrace.db.migration_files import MIGRATIONS, Migration, load
from tailrace.errors import TailraceError
from tests.engine.letters import Letters
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase

FILL = """
insert into tailrace.dead_letter (job_id, queue, task, tenant, key, payload, priority, run_at, max_attempts, reason, error_type,
  fingerprint, total_attempts, dead_count, requeued_count, notes, first_failed_at, failed_at, created_at, history)
select n, 'q', 't', case n when 6 then 'acme' else '' end, case when n < 8 then 'K' end, jsonb_build_object('v', n), 0, now(), 5,
  'permanent', 'unknown', 'f', n, 1, 1, 'note ' || n, now() - interval '1 day', now() + (n % 5) * interval '1 minute', now(),
  jsonb_build_array(jsonb_build_object('event', 'requeued', 'at', now()))
from generate_series(1, 9) n
"""
BEFORE = 7


@pytest.fixture
def duplicates(empty_database: RigDatabase) -> Iterator[Letters]:
    """A database before the index, with six dead letters of one key; the newest failures are 4 and then 3."""
    migrate(empty_database.dsn, until=BEFORE)
    empty_database.query(FILL)
    with empty_database.connect() as conn:
        yield Letters(Rows(conn))


def merged(letters: Letters) -> None:
    """One of the key is left, with what the others had."""
    found = letters.rows.conn.execute("select job_id from tailrace.dead_letter where state = 'dead' order by 1").fetchall()
    assert found == [(4,), (6,), (8,), (9,)], "another tenant and rows without a key are left alone"
    assert letters.of(4, "payload, dead_count, total_attempts, requeued_count") == ({"v": 4}, 6, 1 + 2 + 3 + 4 + 5 + 7, 6)
    assert sorted(letters.of(4, "notes").splitlines()) == [f"note {n}" for n in (1, 2, 3, 4, 5, 7)]
    assert letters.events(4).count("requeued") == 6
    for older in (1, 2, 3, 5, 7):
        assert letters.of(older, "state, resolution, key, payload") == ("resolved", "superseded", None, {"v": older})
    assert letters.stats() == letters.counted()


def test_the_index_on_keys_merges_duplicates_first(duplicates: Letters, empty_database: RigDatabase) -> None:
    """BF-13: superseded, as the engine would have done it; no payload, note or count is lost, and migrate goes through."""
    text = "create unique index bare on tailrace.dead_letter (tenant, queue, task, key) where state = 'dead';"
    bare = Migration(9000, "bare", text)
    with pytest.raises(TailraceError, match="could not create unique index"):
        migrate(empty_database.dsn, migrations=[*MIGRATIONS[:BEFORE], bare])
    assert migrate(empty_database.dsn)[0].version == BEFORE + 1
    merged(duplicates)
    with pytest.raises(Exception, match="dead_letter_key"):
        duplicates.rows.conn.execute("update tailrace.dead_letter set state = 'dead', key = 'K' where job_id = 3")


def test_a_concurrent_index_repairs_again_when_rows_came_in(duplicates: Letters, empty_database: RigDatabase) -> None:
    """BF-13: rows may come in between repair and index, outside a transaction: the step is tried again, all of it."""
    migrate(empty_database.dsn)
    merged(duplicates)
    duplicates.rows.conn.execute("drop index tailrace.dead_letter_key")
    duplicates.rows.conn.execute(
        "create table tailrace.late as select true as first;"
        " create function tailrace.repair() returns void language plpgsql as $$"
        " begin perform tailrace.merge_duplicates_v1(); if exists (select from tailrace.late where first) then"
        " update tailrace.dead_letter set state = 'dead', key = 'K' where job_id = 3; end if;"
        " update tailrace.late set first = not first; end $$"
    )
    again = Migration(
        9001,
        "again",
        "-- concurrently\n-- repairs: dead_letter by repair\nselect tailrace.repair();\n"
        "create unique index concurrently if not exists again on tailrace.dead_letter (tenant, queue, task, key)\n"
        "  where key is not null and state = 'dead';\n",
    )
    assert [step.version for step in migrate(empty_database.dsn, migrations=[*MIGRATIONS, again])] == [9001]
    valid = "select indisvalid from pg_index where indexrelid = 'tailrace.again'::regclass"
    assert duplicates.rows.value(valid) is True
    assert duplicates.of(3, "state") == "resolved"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("create unique index u on tailrace.job (id);", True),
        ("-- repairs: job by mend\ncreate unique index u on tailrace.job (id);\nselect tailrace.mend();", True),
        ("-- repairs: job by mend\nselect tailrace.mend();\ncreate unique index concurrently u on tailrace.job (id);", False),
        ("create table tailrace.fresh (n int);\ncreate unique index u on tailrace.fresh (n);", False),
    ],
    ids=["none", "too late", "before", "new table"],
)
def test_a_step_without_a_repair_is_refused(tmp_path: Path, text: str, refused: bool) -> None:
    """BF-13: it cannot be forgotten."""
    (tmp_path / "0042_step.sql").write_text(text)
    if refused:
        with pytest.raises(ValueError, match="repairs"):
            load(tmp_path)
    else:
        assert len(load(tmp_path)) == 1
