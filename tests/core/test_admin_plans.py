"""Lists stay cheap however many dead letters there are, with stale statistics and with fresh ones."""

from __future__ import annotations

import re

import pytest
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.dead_letters import DeadLetterFilter, DeadLetterStatements
from tests.rig.servers import Connection, RigDatabase

ROWS = 60_000
FILL = """
insert into tailrace.dead_letter (job_id, queue, task, payload, priority, run_at, max_attempts, reason, error_type, fingerprint,
  total_attempts, first_failed_at, failed_at, created_at)
select g, 'q' || g %% 10, 't', '{}', 0, now(), 5, 'permanent', 'unknown', 'f', 1, now(), now() - g * interval '1 s', now()
from generate_series(1, %s) g
"""


PAGES = (
    (DeadLetterFilter(queue="q3"), 250),
    (DeadLetterFilter(), 250),
    (DeadLetterFilter(state="all"), 1500),
    (DeadLetterFilter(task="t"), 250),
    (DeadLetterFilter(tenant="nobody"), 50),
    (DeadLetterFilter(key="k"), 50),
    (DeadLetterFilter(fingerprint="f"), 250),
    (DeadLetterFilter(reason="permanent"), 300),
    (DeadLetterFilter(error_type="unknown"), 300),
    (DeadLetterFilter(task="t", reason="timeout"), 3000),
    (DeadLetterFilter(text="nothing has this"), 1500),
)
"""Filters, and the most blocks that a page of them may read, however many rows there are."""
OVER_DEAD_ENTRIES = (
    (DeadLetterFilter(), 250),
    (DeadLetterFilter(queue="q3"), 250),
    (DeadLetterFilter(reason="permanent"), 300),
    (DeadLetterFilter(error_type="unknown"), 300),
)
"""Those of them that look for the values of an index before they walk, and one that does not."""


@pytest.mark.parametrize("analyzed", [False, True], ids=["stale", "fresh"])
def test_a_page_of_dead_letters_reads_few_blocks(database: RigDatabase, conn: Connection, analyzed: bool) -> None:
    """CJ-18: the list has its index; an order over all queues is merged from theirs."""
    conn.execute("alter table tailrace.dead_letter set (autovacuum_enabled = off)")  # after one, plans read the catalogue anew
    conn.execute(FILL, [ROWS])
    if analyzed:
        conn.execute("vacuum analyze tailrace.dead_letter")
    for which, most in PAGES:
        _page_reads(database, conn, which, most)


def test_a_page_costs_the_same_with_many_queues_and_errors(database: RigDatabase, conn: Connection) -> None:
    """With a thousand queues a page was merged from a thousand places: 197 ms, and 3.8 s with a text to look for."""
    conn.execute("alter table tailrace.dead_letter set (autovacuum_enabled = off)")
    conn.execute(FILL.replace("g %% 10", "g %% 1000").replace("'unknown'", "'error ' || g %% 300"), [ROWS])
    conn.execute("vacuum analyze tailrace.dead_letter")
    more = {DeadLetterFilter(state="all"): 60_000, DeadLetterFilter(reason="permanent"): 9000}  # from each queue or error 8 rows
    for which, most in (*PAGES, (DeadLetterFilter(state="resolved"), 50)):
        _page_reads(database, conn, which, more.get(which, most))


def test_a_page_reads_few_blocks_after_a_change_of_most(database: RigDatabase, conn: Connection) -> None:
    """What is taken from the front of an index stays there as dead entries until a vacuum: no look goes through them."""
    conn.execute("alter table tailrace.dead_letter set (autovacuum_enabled = off)")
    conn.execute(FILL, [ROWS])
    conn.execute("vacuum analyze tailrace.dead_letter")
    for which, most in OVER_DEAD_ENTRIES:
        _page_reads(database, conn, which, most)
    conn.execute("delete from tailrace.dead_letter where job_id > 2000")  # all but the newest
    for which, most in OVER_DEAD_ENTRIES:
        _page_reads(database, conn, which, most)


def _page_reads(database: RigDatabase, conn: Connection, which: DeadLetterFilter, most: int) -> None:
    """Read the first page of a list, and count the blocks."""
    statement = DeadLetterStatements(Database(url=SecretStr(database.dsn)).blocks).list(which)
    conn.execute(statement.text.encode(), statement.params)  # the first call reads the catalogue
    rows = conn.execute(f"explain (analyze, buffers, costs off) {statement.text}".encode(), statement.params).fetchall()
    plan = "\n".join(text for (text,) in rows)
    hit = re.search(r"shared hit=(\d+)(?: read=(\d+))?", plan)
    assert hit is not None, plan
    assert int(hit[1]) + int(hit[2] or 0) < most, plan
    assert "Seq Scan on dead_letter" not in plan
