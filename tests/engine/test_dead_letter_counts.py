"""The counts of dead letters are those of the rows, whoever changed them, folded or not."""

from __future__ import annotations

import pytest

from tests.engine.letters import Letters
from tests.engine.rows import Rows


@pytest.fixture
def letters(rows: Rows) -> Letters:
    return Letters(rows)


def fold(letters: Letters, n: int = 20_000) -> None:
    letters.rows.conn.execute("select tailrace.statistics_v1(%s)", [n])


def agree(letters: Letters) -> None:
    for queue in (None, "q", "q1", "nobody"):
        assert letters.stats(queue) == letters.counted(queue)


def test_stats_are_exact_after_every_kind_of_change(letters: Letters) -> None:
    """CJ-18, BF-29, BF-50: through engine, operators and plain SQL, before and after the counts are folded."""
    agree(letters)
    ids = [letters.bury(key=f"k{n}" if n % 2 else None, task=f"t{n % 12}") for n in range(24)]
    letters.fill(90)
    agree(letters)
    letters.change("requeue", *ids[:6])
    letters.kill(ids[0])
    letters.succeed(ids[1])
    letters.rows.conn.execute("select tailrace.cancel(%s)", [ids[2]])
    letters.change("resolve", ids[7])
    letters.change("delete", ids[8])
    fold(letters, 5)
    agree(letters)
    letters.bury(key="k9", task="t9")
    assert letters.of(ids[9], "resolution") == "superseded"
    letters.rows.conn.execute("update tailrace.dead_letter set queue = 'moved', total_attempts = 7 where job_id > 10050")
    letters.rows.conn.execute("delete from tailrace.dead_letter where job_id between 10001 and 10010")
    agree(letters)
    fold(letters)
    assert letters.rows.count("dead_letter_change") == 0
    agree(letters)
    letters.rows.conn.execute("truncate tailrace.dead_letter")
    agree(letters)
    assert letters.stats()[:5] == (0, 0, 0, 0.0, 0)


def test_a_note_changes_no_count(letters: Letters) -> None:
    ident = letters.bury()
    before = letters.rows.count("dead_letter_change")
    letters.change("note", ident, note="seen")
    assert letters.rows.count("dead_letter_change") == before


def test_counts_of_an_open_transaction_are_its_own(letters: Letters, other: Rows) -> None:
    ident = letters.bury()
    other.conn.execute("select tailrace.delete_dead_letter(%s)", [ident])
    assert letters.stats()[0] == 1
    other.conn.rollback()
    agree(letters)


def test_a_look_at_stats_writes_nothing(letters: Letters) -> None:
    """BF-31, BF-32: no side effect."""
    letters.bury()
    before = letters.rows.value("select coalesce(pg_current_xact_id_if_assigned()::text, 'none')")
    with letters.rows.conn.transaction():
        letters.rows.conn.execute("set transaction read only")
        letters.stats()
        letters.find(text="boom")
    assert before == "none"


def test_the_reading_takes_the_counts(letters: Letters) -> None:
    """BF-31: the statistics count no rows; what the gauges show is what the counts say."""
    letters.fill(30)
    letters.bury()
    fold(letters)
    reading = letters.rows.value("select reading from tailrace.queue where name = 'q1'")
    assert (reading["dead"], reading["requeued"], reading["resolved"]) == (10, 0, 0)
