"""`tailrace dead-letters`: lists, pages, and putting jobs back."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from tests.engine.rows import Rows


def bury(rows: Rows, n: int = 1, **columns: object) -> list[int]:
    """Make n dead letters and return their ids."""
    rows.worker()
    ids = []
    for _ in range(n):
        ident = rows.job(max_attempts=1, **columns)
        token = rows.lease([ident], queue=str(columns.get("queue", "q")))
        assert rows.fail(ident, token, "permanent") == "dead"
        ids.append(ident)
    return ids


def test_empty(cli: Cli) -> None:
    assert cli("dead-letters", "list").err == "no dead letters\n"
    assert cli("dlq", "list", "-o", "json").json == []
    assert cli("dead-letters", "stats", "-o", "json").json["dead"] == 0
    assert "no dead letter" in cli("dead-letters", "show", "5", status=1).err
    assert "no dead letter" in cli("dead-letters", "requeue", "5", status=1).err


def test_list_and_show(cli: Cli, rows: Rows) -> None:
    """CJ-18: dead letters have a list, filters and a page for each, with the error."""
    (one,) = bury(rows, queue="a", task="deliver")
    bury(rows, 2, queue="b")
    (listed,) = cli("dlq", "list", "--task", "deliver", "-o", "json").json
    assert (listed["job_id"], listed["state"], listed["reason"]) == (str(one), "dead", "permanent")
    assert listed["last_error"]["message"]
    shown = cli("dlq", "show", str(one), "-o", "json").json
    assert shown["payload"] == {"n": 1}
    assert len(shown["errors"]) == 1
    assert cli("dlq", "list", "--queue", "b", "--count").out == "2\n"
    assert cli("dlq", "list", "--text", "BOOM", "--count").out == "3\n"
    assert cli("dlq", "list", "--state", "resolved", "-o", "json").json == []
    assert cli("dlq", "list", "--reason", "nonsense", status=2).out == ""
    assert cli("dlq", "list", "--failed-after", "2030-01-01T00:00:00Z", "--count").out == "0\n"


def test_pages_over_queues_with_equal_times(cli: Cli, rows: Rows) -> None:
    """BF-27: rows with equal times appear once each, newest failure first, over all queues."""
    ids = [*bury(rows, 4, queue="a"), *bury(rows, 3, queue="b")]
    rows.conn.execute("update tailrace.dead_letter set failed_at = '2026-01-01 00:00+00'")
    seen: list[str] = []
    cursor: list[str] = []
    for _ in range(4):
        page = cli("dlq", "list", "--limit", "2", "-o", "name", *cursor)
        seen += page.out.split()
        cursor = ["--after", page.err.split("--after ")[1].split()[0]] if page.err else []
    assert seen == [str(ident) for ident in sorted(ids, reverse=True)]
    assert "only the first is shown" in cli("dlq", "list", "--limit", "1", "-o", "name").err
    assert cli("dlq", "list", "--limit", "1", "--all", "-o", "name").out.split() == seen
    assert "limit:" in cli("dlq", "list", "--limit", "501", status=2).err


def test_requeue_from_a_list(cli: Cli, rows: Rows) -> None:
    ids = bury(rows, 3)
    names = cli("dlq", "list", "-o", "name").out
    assert len(cli("dlq", "requeue", "-", "--dry-run", "-o", "json", stdin=names).json) == 3
    assert rows.value("select count(*) from tailrace.job") == 0
    done = cli("dlq", "requeue", "-", "-o", "json", stdin=names).json
    assert {(row["id"], row["outcome"]) for row in done} == {(str(ident), "requeued") for ident in ids}
    assert rows.value("select count(*) from tailrace.job where attempts = 0") == 3
    assert "requeued" in cli("dlq", "requeue", str(ids[0]), status=1).err
    assert cli("dlq", "stats", "-o", "json").json["requeued"] == 3


def test_a_holder_of_the_key_refuses_unless_forced(cli: Cli, rows: Rows) -> None:
    """BF-47: a conflict is told as one."""
    (one,) = bury(rows, key="k")
    holder = rows.job(key="k")
    assert "key:" in cli("dlq", "requeue", str(one), status=1).err
    assert "--yes" in cli("dlq", "requeue", str(one), "--force", status=2).err
    cli("dlq", "requeue", str(one), "--force", "--yes")
    assert rows.row(holder) is None
    assert rows.row(one) is not None


@pytest.mark.parametrize("form", ["table", "wide", "csv"])
def test_tables_show_the_words_of_the_error(cli: Cli, rows: Rows, form: str) -> None:
    bury(rows)
    message = rows.value("select errors -> -1 ->> 'message' from tailrace.dead_letter")
    assert message in cli("dlq", "list", "-o", form).out
