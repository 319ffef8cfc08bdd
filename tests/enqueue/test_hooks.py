"""`@app.on_enqueue`: every way to enqueue goes through it, and what it makes is checked as any job."""

from __future__ import annotations

import dataclasses
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from tailrace import App, InvalidOption, InvalidPayload, NewJob
from tests.enqueue.conftest import AsyncConnection, Shop
from tests.rig.servers import Connection, RigDatabase

tenant: ContextVar[str] = ContextVar("tenant")


def with_tenant(job: NewJob) -> NewJob:
    return dataclasses.replace(job, tenant=tenant.get())


def with_request(job: NewJob) -> NewJob:
    return dataclasses.replace(job, meta={**(job.meta or {}), "request": f"of {job.tenant}"})


@pytest.fixture
def hooked(shop: Shop) -> Shop:
    """The shop with two hooks, and a tenant for the test."""
    shop.app.on_enqueue(with_tenant)
    shop.app.on_enqueue(with_request)
    return shop


async def test_each_way_to_enqueue_goes_through_the_hooks(
    hooked: Shop, database: RigDatabase, conn: Connection, aconn: AsyncConnection
) -> None:
    token = tenant.set("acme")
    try:
        job = hooked.plain.using(priority=3).job("kept pure")
        assert job == NewJob("plain", {"text": "kept pure"}, queue="webhooks", priority=3)
        hooked.deliver.enqueue(event_id=1, url="pool")
        hooked.deliver.using(conn, meta={"mine": 1}).enqueue(event_id=1, url="connection")
        hooked.app.enqueue(job)
        hooked.app.using(conn).enqueue(NewJob("plain", {"text": "by name"}))
        hooked.app.enqueue_many([job, hooked.resize.job(Path("p"))])
        hooked.app.using(conn).enqueue_many([job])
        async with hooked.app:
            await hooked.deliver.aenqueue(event_id=1, url="pool")
            await hooked.app.aenqueue(job)
            await hooked.app.aenqueue_many([job])
        await hooked.deliver.using(aconn).aenqueue(event_id=1, url="connection")
        await hooked.app.using(aconn).aenqueue_many([job])
        await aconn.commit()
        assert job.tenant is None
    finally:
        tenant.reset(token)
    rows = database.query("select tenant, meta ->> 'request', meta ->> 'mine' from tailrace.job order by id")
    assert [row[:2] for row in rows] == [("acme", "of acme")] * 12
    assert rows[1][2] == "1"


def test_what_task_and_caller_said_survives_a_hook(hooked: Shop, database: RigDatabase) -> None:
    """The decorator's policy, the caller's options and the key of the template."""
    token = tenant.set("acme")
    try:
        hooked.deliver.using(priority=7, expires_in=60).enqueue(event_id=2**60, url="ü")
        hooked.resize.enqueue(Path("a/b"), width=3)
        hooked.resize.enqueue(Path("a/b"), width=4)
    finally:
        tenant.reset(token)
    columns = "queue, priority, max_attempts, backoff ->> 'jitter', extract(epoch from timeout)::int, expires_at is not null"
    assert database.query(f"select {columns}, payload, key from tailrace.job order by id") == [
        ("webhooks", 7, 8, "0.1", 30, True, {"event_id": 2**60, "url": "ü"}, None),
        ("images", 0, 5, None, None, False, {"path": "a/b", "width": 3}, "resize-a/b"),
    ]


def test_a_missing_context_is_an_error(hooked: Shop, database: RigDatabase, conn: Connection) -> None:
    """FQ-25: a job without a scope is not enqueued without one; the caller's transaction goes on."""
    with conn.transaction():
        with pytest.raises(LookupError):
            hooked.deliver.using(conn).enqueue(event_id=1, url="u")
        with pytest.raises(LookupError):
            hooked.app.using(conn).enqueue_many([hooked.plain.job("x")])
        assert conn.execute("select 1").fetchone() == (1,)
    assert database.value("select count(*) from tailrace.job") == 0


def test_nothing_is_sent_before_the_hooks_have_spoken() -> None:
    app = App("q", database_url="postgresql://nowhere.invalid/db")

    @app.task
    def greet(name: str) -> None: ...

    @app.on_enqueue
    def refuse(job: NewJob) -> NewJob:
        raise PermissionError(job.payload["name"])

    with pytest.raises(PermissionError, match="world"):
        greet.enqueue("world")
    with pytest.raises(PermissionError):
        app.enqueue_many([greet.job("world")])


@pytest.mark.parametrize(
    ("changed", "error", "field"),
    [
        ({"tenant": "x" * 129}, InvalidOption, "tenant"),
        ({"priority": 5000}, InvalidOption, "priority"),
        ({"queue": ""}, InvalidOption, "queue"),
        ({"meta": {"x": "y" * 9000}}, InvalidOption, "meta"),
        ({"payload": {"event_id": "one", "url": "u"}}, InvalidPayload, "payload.event_id"),
        ({"payload": {"event_id": 1, "url": "u", "more": 2}}, InvalidPayload, "payload.more"),
        ({"payload": {"url": "u"}}, InvalidPayload, "payload.event_id"),
        ({"payload": {"event_id": 1, "url": "a\0"}}, InvalidPayload, "payload.url"),
        ({"payload": [1]}, InvalidPayload, "payload"),
    ],
)
def test_what_a_hook_makes_is_checked(shop: Shop, database: RigDatabase, changed: Any, error: Any, field: str) -> None:
    shop.app.on_enqueue(lambda job: dataclasses.replace(job, **changed))
    with pytest.raises(error) as refused:
        shop.deliver.enqueue(event_id=1, url="u")
    assert refused.value.field == field
    with pytest.raises(error):
        shop.app.enqueue_many([shop.deliver.job(1, "u"), shop.deliver.job(2, "u")])
    assert database.value("select count(*) from tailrace.job") == 0


def test_a_hook_may_change_payload_queue_and_task(shop: Shop, database: RigDatabase) -> None:
    def reroute(job: NewJob) -> NewJob:
        return dataclasses.replace(job, payload={**job.payload, "url": "other"}, queue="slow")

    shop.app.on_enqueue(reroute)
    shop.deliver.enqueue(event_id=1, url="u")
    shop.app.enqueue(NewJob("deliver", {"event_id": "unchecked as always"}))
    assert database.query("select queue, payload from tailrace.job order by id") == [
        ("slow", {"event_id": 1, "url": "other"}),
        ("slow", {"event_id": "unchecked as always", "url": "other"}),
    ]


@pytest.mark.parametrize("made", [None, {"task": "deliver"}, "deliver"])
def test_a_hook_returns_a_job(shop: Shop, made: Any) -> None:
    shop.app.on_enqueue(lambda job: made)
    with pytest.raises(InvalidOption, match="must be a NewJob") as refused:
        shop.deliver.enqueue(event_id=1, url="u")
    assert refused.value.field == "on_enqueue"
