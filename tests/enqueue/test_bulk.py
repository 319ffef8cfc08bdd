"""Bulk: receipts belong to their rows, all or none, sizes as PostgreSQL prints them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace import InvalidPayload, NewJob
from tailrace.enqueue.statements import CHUNK_ROWS, PreparedJob, chunks, order_of
from tailrace.json_text import encode, printed_size
from tests.enqueue.conftest import Shop
from tests.rig.servers import Connection, RigDatabase


def test_ten_thousand_receipts_belong_to_their_rows(shop: Shop, database: RigDatabase) -> None:
    """Case e3: more than one chunk, mixed tasks and options, in one transaction."""
    assert CHUNK_ROWS < 10_000
    jobs = [
        shop.deliver.using(priority=n % 7, tenant=f"t{n % 50}").job(n, "u") if n % 3 else shop.plain.job(value=n)
        for n in range(10_000)
    ]
    receipts = shop.app.enqueue_many(jobs)
    assert [r.outcome for r in receipts] == ["created"] * 10_000
    found = database.query(
        "select id, coalesce(payload -> 'event_id', payload -> 'value')::int, priority, tenant from tailrace.job"
    )
    stored = {job: (n, priority, tenant) for job, n, priority, tenant in found}
    expected = [(n, n % 7, f"t{n % 50}") if n % 3 else (n, 0, "") for n in range(10_000)]
    assert [stored[r.id] for r in receipts] == expected
    assert database.value("select count(distinct xmin::text) from tailrace.job") == 1


def test_nothing_is_stored_when_one_is_refused(shop: Shop, database: RigDatabase) -> None:
    """Case e1, in a batch of three and behind a chunk."""
    for jobs in (3, CHUNK_ROWS + 10):
        wrong = [shop.plain.job(str(n)) for n in range(jobs - 1)] + [NewJob("plain", {"text": "\0"})]
        with pytest.raises(InvalidPayload) as refused:
            shop.app.enqueue_many(wrong)
        assert refused.value.field == "payload.text"
        assert database.value("select count(*) from tailrace.job") == 0


def test_nothing_is_stored_when_the_database_refuses_a_later_chunk(shop: Shop, database: RigDatabase) -> None:
    database.query("alter table tailrace.job add constraint theirs check (payload ->> 'text' <> 'x')")
    with pytest.raises(Exception, match="theirs"):
        shop.app.enqueue_many([shop.plain.job(str(n)) for n in range(CHUNK_ROWS + 5)] + [shop.plain.job("x")])
    assert database.value("select count(*) from tailrace.job") == 0


def test_no_jobs_cost_no_statement(shop: Shop) -> None:
    assert shop.app.enqueue_many([]) == []


async def test_ten_thousand_are_checked_without_blocking_the_loop(shop: Shop, database: RigDatabase) -> None:
    import asyncio

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async with shop.app:
        ticking = asyncio.create_task(tick())
        receipts = await shop.app.aenqueue_many([shop.plain.job(str(n)) for n in range(10_000)])
        ticking.cancel()
    assert ticks > 15
    assert len({r.id for r in receipts}) == 10_000


def test_pieces_are_bounded_and_sorted() -> None:
    jobs = [
        PreparedJob("q", "t", "x" * size, key=key) for size, key in ((3_000_000, "b"), (10, None), (2_000_000, "a"), (10, "é"))
    ]
    order = order_of(jobs)
    assert order == [1, 2, 0, 3]
    assert [list(piece) for piece in chunks(jobs, order)] == [[1, 2], [0, 3]]
    many = [PreparedJob("q", "t", "{}")] * (CHUNK_ROWS * 2 + 1)
    assert [len(piece) for piece in chunks(many, order_of(many))] == [CHUNK_ROWS, CHUNK_ROWS, 1]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=st.dictionaries(st.text(), json_values, max_size=5))
def test_the_library_accepts_what_postgresql_accepts_and_measures_as_it_prints(conn: Connection, payload: dict[str, Any]) -> None:
    """Cases e1, e2, e3, e4: no text passes here that breaks the caller's transaction there, and sizes never read too small."""
    try:
        text = encode(payload)
    except InvalidPayload:
        return
    row = conn.execute("select octet_length(%s::jsonb::text), %s::jsonb", [text, text]).fetchone()
    assert row is not None
    assert printed_size(text.encode()) >= row[0]
    # only a negative zero is printed shorter than we count it
    assert printed_size(text.encode()) - row[0] <= text.count("-0.0")
    assert json.loads(text) == row[1] or "e" in text


@pytest.mark.parametrize(
    "value", [["a" * 1000] * 200, [1e300] * 800, ["\n\x01\x7f" * 500] * 30, {str(n): [n, {"x": 0.1}] for n in range(8000)}]
)
def test_sizes_near_the_limit_are_exact(conn: Connection, value: Any) -> None:
    """e3."""
    text = encode({"value": value}, limit=10**9)
    row = conn.execute("select octet_length(%s::jsonb::text)", [text]).fetchone()
    assert row == (printed_size(text.encode()),)


def test_a_job_that_was_changed_is_checked_again(shop: Shop, database: RigDatabase) -> None:
    job = shop.plain.using(priority=3).job("a")
    assert isinstance(job.payload, dict)
    job.payload["text"] = "b"
    shop.app.enqueue_many([job, replace(job, priority=4), replace(shop.plain.job("c"), tenant="t")])
    rows = database.query("select payload ->> 'text', priority, tenant from tailrace.job order by id")
    assert rows == [("b", 3, ""), ("b", 4, ""), ("c", 0, "t")]
    job.payload["text"] = "\0"
    with pytest.raises(InvalidPayload):
        shop.app.enqueue(job)


def test_paths_survive(shop: Shop, database: RigDatabase) -> None:
    shop.app.enqueue_many([shop.resize.job(Path("/ü/b"))])
    assert database.value("select key from tailrace.job") == "resize-/ü/b"
