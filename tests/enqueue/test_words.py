"""Typed enqueue on a real database: own pool, the caller's transaction, sync and async."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tailrace import InvalidOption, InvalidPayload, NewJob, Receipt, RetryPolicy
from tests.enqueue.conftest import AsyncConnection, Shop
from tests.rig.servers import Connection, RigDatabase

STRINGS = [
    "family \N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}",
    "\u05e9\u05dc\u05d5\u05dd \u202etxet",
    "e\u0301 is not \u00e9",
    "\\u0000 as six characters",
    'tab\t line\n quote" back\\slash /',
    "\x01\x1f\x7f\u2028\ufeff\U0010ffff",
    "x" * 7_900,
    "x" * 8_100,
    "\N{PILE OF POO}" * 2_500,
]


def count(database: RigDatabase) -> int:
    found: int = database.value("select count(*) from tailrace.job")
    return found


def test_all_options_reach_the_row(shop: Shop, database: RigDatabase) -> None:
    """FQ-09: an explicit outcome and an id."""
    before = database.value("select clock_timestamp()")
    receipt = shop.deliver.using(
        delay=timedelta(minutes=1),
        priority=10,
        tenant="acme",
        key="event-1",
        expires_in=3600,
        max_attempts=3,
        retry=RetryPolicy(base=1, cap=2, strategy="fixed", jitter=0),
        timeout=0,
        meta={"request": "ü"},
    ).enqueue(event_id=2**60, url="u")
    assert receipt == Receipt(1, "created")
    columns = "queue, task, payload, priority, tenant, key, max_attempts, backoff, timeout, meta, attempts, requeues, token"
    assert database.query(f"select {columns} from tailrace.job") == [
        (
            "webhooks",
            "deliver",
            {"event_id": 2**60, "url": "u"},
            10,
            "acme",
            "event-1",
            3,
            {"strategy": "fixed", "base": 1, "cap": 2, "jitter": 0},
            timedelta(0),
            {"request": "ü"},
            0,
            0,
            None,
        )
    ]
    due, late, made = database.query("select run_at, expires_at, created_at from tailrace.job")[0]
    assert timedelta(seconds=59) < due - before < timedelta(seconds=70)
    assert timedelta(seconds=3599) < late - before < timedelta(seconds=3610)
    assert made < due


def test_without_options_the_decorator_and_the_defaults_count(shop: Shop, database: RigDatabase) -> None:
    shop.deliver.enqueue(1, "u")
    shop.plain.enqueue()
    rows = database.query(
        "select task, priority, max_attempts, timeout, backoff is not null, tenant, key from tailrace.job order by id"
    )
    assert rows == [
        ("deliver", 0, 8, timedelta(seconds=30), True, "", None),
        ("plain", 0, 5, None, False, "", None),
    ]


def test_run_at_is_aware_and_never_in_the_past(shop: Shop, database: RigDatabase) -> None:
    """f2, CJ-16: the database's clock decides what is now, so a producer whose clock is behind enqueues for now."""
    shop.plain.using(run_at=datetime(2001, 1, 1, tzinfo=UTC)).enqueue()
    later = datetime.now(UTC) + timedelta(days=1)
    shop.plain.using(run_at=later).enqueue()
    assert database.query("select run_at - created_at < '1 s', run_at >= '2026-01-01' from tailrace.job where id = 1") == [
        (True, True)
    ]
    assert database.value("select run_at from tailrace.job where id = 2") == later


def test_delays_count_from_now_and_not_from_the_begin_of_a_transaction(shop: Shop, conn: Connection) -> None:
    """Case f3."""
    with conn.transaction():
        begin = conn.execute("select now()").fetchone()
        conn.execute("select pg_sleep(0.3)")
        shop.plain.using(conn).enqueue()
        assert begin is not None
        [(waited,)] = conn.execute("select run_at - %s from tailrace.job", begin).fetchall()
    assert waited >= timedelta(seconds=0.3)


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_unicode_comes_back_as_it_was(shop: Shop, database: RigDatabase, text: str) -> None:
    """Cases e2 and e3: byte for byte, in payload, key, queue, tenant and meta; a long payload is not sent by NOTIFY."""
    name = text[:20]
    shop.plain.using(key=name, tenant=name, queue=name, meta={text[:200]: text[:200]}).enqueue(text, value={text: [text]})
    stored = database.query("select payload, key, tenant, queue, meta, payload::text from tailrace.job")
    assert stored[0][:5] == ({"text": text, "value": {text: [text]}}, name, name, name, {text[:200]: text[:200]})
    assert shop.plain.parse(stored[0][5]) == {"text": text, "value": {text: [text]}}


def test_nfc_and_nfd_are_two_keys(shop: Shop) -> None:
    """e2."""
    assert shop.plain.using(key="caf\u00e9").enqueue().outcome == "created"
    assert shop.plain.using(key="cafe\u0301").enqueue().outcome == "created"


def test_a_transaction_decides(shop: Shop, database: RigDatabase) -> None:
    with database.connect(autocommit=False) as conn:
        shop.deliver.using(conn).enqueue(1, "u")
        shop.plain.using(conn).enqueue()
        shop.app.using(conn).enqueue_many([shop.plain.job("a"), shop.resize.job(Path("b"))])
        assert count(database) == 0
        conn.commit()
        assert count(database) == 4
        shop.plain.using(conn).enqueue()
        shop.app.using(conn).enqueue(NewJob("plain"))
        conn.rollback()
        assert count(database) == 4


async def test_an_async_transaction_decides(shop: Shop, database: RigDatabase, aconn: AsyncConnection) -> None:
    receipt = await shop.deliver.using(aconn).aenqueue(1, "u")
    assert receipt == Receipt(1, "created")
    await shop.app.using(aconn).aenqueue_many([shop.plain.job("a"), shop.plain.job("b")])
    await shop.app.using(aconn).aenqueue(NewJob("plain"))
    assert count(database) == 0
    await aconn.commit()
    assert count(database) == 4
    await shop.plain.using(aconn).aenqueue()
    await aconn.rollback()
    assert count(database) == 4


def test_a_refused_job_does_not_break_the_transaction(shop: Shop, database: RigDatabase) -> None:
    """The payload and the options are checked before a statement is sent."""
    wrong: list[Any] = [
        lambda on: shop.plain.using(on).enqueue("a\0"),
        lambda on: shop.plain.using(on).enqueue(value=float("nan")),
        lambda on: shop.deliver.using(on).enqueue(event_id="x", url="u"),
        lambda on: shop.plain.using(on, priority=1001).enqueue(),
        lambda on: shop.plain.using(on, meta={"a": "x" * 9000}).enqueue(),
        lambda on: shop.app.using(on).enqueue(NewJob("plain", {"text": "\ud800"})),
        lambda on: shop.app.using(on).enqueue_many([shop.plain.job("a"), NewJob("plain", {"text": {1, 2}})]),
        lambda on: shop.app.using(on).enqueue_many([shop.plain.job("a"), NewJob("plain", key="")]),
    ]
    with database.connect(autocommit=False) as conn:
        shop.plain.using(conn).enqueue("first")
        for refuse in wrong:
            with pytest.raises((InvalidPayload, InvalidOption)):
                refuse(conn)
        shop.plain.using(conn).enqueue("last")
        conn.commit()
    assert count(database) == 2


def test_the_wrong_word_names_the_right_one(shop: Shop, conn: Connection) -> None:
    sync: Any = shop.plain.using(conn)
    with pytest.raises(AttributeError, match="use enqueue, not aenqueue"):
        sync.aenqueue()
    with pytest.raises(AttributeError, match="use enqueue_many"):
        shop.app.using(conn).aenqueue_many([])  # type: ignore[attr-defined]


async def test_the_wrong_word_names_the_right_one_on_an_async_connection(shop: Shop, aconn: AsyncConnection) -> None:
    awaited: Any = shop.plain.using(aconn)
    with pytest.raises(AttributeError, match="use aenqueue, not enqueue"):
        awaited.enqueue()


@pytest.mark.parametrize("thing", [42, "dsn", object()])
def test_what_is_no_connection_is_refused(shop: Shop, thing: Any) -> None:
    for using in (shop.plain.using, shop.app.using):
        with pytest.raises(InvalidOption, match="no connection"):
            using(thing)


def test_any_row_factory_of_the_caller_will_do(shop: Shop, database: RigDatabase) -> None:
    with psycopg.connect(database.dsn, row_factory=dict_row) as conn:
        assert shop.plain.using(conn).enqueue().outcome == "created"
        assert shop.app.using(conn).enqueue_many([shop.plain.job()])[0].outcome == "created"


def test_ids_are_exact_beyond_32_and_53_bits(shop: Shop, database: RigDatabase) -> None:
    """Case e5."""
    for start in (2**31 - 3, 2**53 - 3):
        database.query(f"alter table tailrace.job alter column id restart with {start}")
        ids = [shop.plain.enqueue().id for _ in range(5)]
        ids += [receipt.id for receipt in shop.app.enqueue_many([shop.plain.job()] * 5)]
        assert ids == list(range(start, start + 10))
        assert database.value("select count(*) from tailrace.job where id = any(%s)", [ids]) == 10
    assert (
        database.value("select seqtypid::regtype::text from pg_sequence where seqrelid = 'tailrace.job_id_seq'::regclass")
        == "bigint"
    )
