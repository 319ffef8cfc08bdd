"""The words of administration: sync and async, on own pools and inside the caller's transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from tailrace.admin import Admin, AdminUsing, AsyncAdminUsing
from tailrace.db import Database
from tailrace.errors import Conflict, InvalidOption, NotFound
from tests.engine.rows import Rows
from tests.rig.servers import Connection, RigDatabase

APPLY = "apiVersion: tailrace.dev/v1alpha1\nkind: JobQueue\nmetadata: {name: q}\n"


@pytest.fixture
def place(database: RigDatabase) -> Iterator[Database]:
    """Where the test's database is."""
    made = Database(url=SecretStr(database.dsn))
    yield made
    made.close()


@pytest.fixture
def rows(conn: Connection) -> Rows:
    """The tables, by an autocommit connection."""
    return Rows(conn)


@pytest.fixture
async def aplace(place: Database) -> AsyncIterator[Database]:
    """The same; its async pool is closed in the end."""
    yield place
    await place.aclose()


def bury(rows: Rows, **columns: Any) -> int:
    """Make a dead letter."""
    rows.worker()
    ident = rows.job(**columns)
    assert rows.fail(ident, rows.lease([ident], queue=columns.get("queue", "q")), "permanent") == "dead"
    return ident


def test_jobs_on_an_own_pool(place: Database, rows: Rows) -> None:
    admin = Admin(place)
    one = rows.job(key="event-1", run_at=datetime(2030, 1, 1, tzinfo=UTC), errors=[{"type": "E"}], timeout=timedelta(seconds=5))
    found = admin.jobs.get(one)
    assert (found.id, found.state, found.payload, found.errors, found.timeout) == (
        one,
        "scheduled",
        {"n": 1},
        ({"type": "E"},),
        5.0,
    )
    assert [job.id for job in admin.jobs.list(queue="q", task="t", key="event-1", tenant="", state="waiting")] == [one]
    assert admin.jobs.count(state="running") == 0
    moved = admin.jobs.reschedule(one, delay=timedelta(hours=1))
    assert moved.at is not None
    assert timedelta(minutes=59) < moved.at - datetime.now(UTC) < timedelta(minutes=61)
    assert admin.jobs.reschedule(one, run_at=datetime(2031, 1, 1, tzinfo=UTC)).at == datetime(2031, 1, 1, tzinfo=UTC)
    assert admin.jobs.run_now(one).outcome == "due"
    assert admin.jobs.update(one, priority=5, timeout=timedelta(seconds=9)).outcome == "updated"
    changed = admin.jobs.get(one)
    assert (changed.priority, changed.timeout) == (5, 9.0)
    assert admin.jobs.cancel_by_key("t", "event-1", queue="q").outcome == "cancelled"


def test_wrong_arguments_never_reach_the_database(database: RigDatabase, place: Database) -> None:
    """BF-26: limits and ids are checked; the caller's transaction stays usable."""
    with database.connect(autocommit=False) as conn:
        admin = AdminUsing(conn, place)
        for call in (
            lambda: admin.jobs.list(limit=0),
            lambda: admin.jobs.list(limit=501),
            lambda: admin.jobs.list(limit=-1),
            lambda: admin.jobs.list(limit=True),
            lambda: admin.jobs.list(state="sleepy"),
            lambda: admin.jobs.list(after="nonsense"),
            lambda: admin.jobs.list(after="WyJhIl0"),
            lambda: admin.jobs.get(0),
            lambda: admin.jobs.get(2**63),
            lambda: admin.jobs.get("1"),  # type: ignore[arg-type]
            lambda: admin.jobs.reschedule(1),
            lambda: admin.jobs.reschedule(1, delay=1, run_at=datetime.now(UTC)),
            lambda: admin.jobs.reschedule(1, run_at=datetime(2030, 1, 1)),  # noqa: DTZ001
            lambda: admin.jobs.reschedule(1, delay=float("nan")),
            lambda: admin.jobs.update(1),
            lambda: admin.jobs.update(1, payload={}),
            lambda: admin.jobs.cancel_by_key("t", "k"),
            lambda: admin.dead_letters.list(limit=501),
            lambda: admin.dead_letters.list(state="sleepy"),
            lambda: admin.dead_letters.list(failed_after=datetime(2030, 1, 1)),  # noqa: DTZ001
            lambda: admin.dead_letters.list(sort="x"),  # type: ignore[call-arg]
            lambda: admin.dead_letters.requeue([]),
            lambda: admin.dead_letters.requeue(),
            lambda: admin.dead_letters.requeue(1, dry_run=True),  # type: ignore[call-overload]
            lambda: admin.leases.release([]),
            lambda: admin.leases.list(limit=0),
            lambda: admin.queues.hold("q", seconds=-1),
            lambda: admin.queues.apply("kind: Pod"),
            lambda: admin.queues.apply(APPLY + "spec: {autoscaling: {mode: HPA, maxReplicas: 2}}"),
        ):
            with pytest.raises(InvalidOption) as refused:
                call()
            assert refused.value.field
        assert conn.execute("select 1").fetchone() == (1,)


def test_not_found_and_conflict_are_types(place: Database, rows: Rows) -> None:
    """BF-47: decided by type, never by words."""
    admin = Admin(place)
    rows.worker()
    _, (running,) = rows.running()
    for call in (
        lambda: admin.jobs.get(999),
        lambda: admin.jobs.cancel(999),
        lambda: admin.jobs.run_now(999),
        lambda: admin.jobs.cancel_by_key("t", "none", queue="q"),
        lambda: admin.dead_letters.get(999),
        lambda: admin.dead_letters.requeue(999),
        lambda: admin.queues.show("nope"),
        lambda: admin.queues.resume("nope"),
        lambda: admin.queues.purge("nope"),
    ):
        with pytest.raises(NotFound):
            call()
    for call in (
        lambda: admin.jobs.run_now(running),
        lambda: admin.jobs.update(running, priority=1),
        lambda: admin.queues.purge("q"),
    ):
        with pytest.raises(Conflict):
            call()


def test_using_belongs_to_the_callers_transaction(database: RigDatabase, place: Database, rows: Rows) -> None:
    one = rows.job()
    with database.connect(autocommit=False) as conn:
        admin = AdminUsing(conn, place)
        assert admin.jobs.cancel(one).outcome == "cancelled"
        admin.queues.hold("q")
        conn.rollback()
    assert rows.row(one) is not None
    assert rows.value("select count(*) from tailrace.queue") == 0
    assert rows.value("select count(*) from tailrace.audit") == 0


def test_requeue_is_all_or_none(place: Database, rows: Rows) -> None:
    ids = [bury(rows), bury(rows)]
    admin = Admin(place)
    with pytest.raises(NotFound):
        admin.dead_letters.requeue([*ids, 999])
    assert admin.dead_letters.count() == 2
    assert [change.target for change in admin.dead_letters.requeue(reversed(ids))] == ids
    stats = admin.dead_letters.stats("q")
    assert (stats.dead, stats.requeued, stats.tasks) == (0, 2, ())


def test_pages_of_dead_letters(place: Database, rows: Rows) -> None:
    """BF-25, BF-27: equal times appear once each; the count is that of the filter."""
    for n in range(7):
        bury(rows, queue=f"q{n % 3}", task="a" if n < 5 else "b")
    rows.conn.execute("update tailrace.dead_letter set failed_at = '2026-01-01 00:00+00'")
    admin = Admin(place)
    seen, after = [], None
    while True:
        page = admin.dead_letters.list(task="a", limit=2, after=after)
        seen += [item.job_id for item in page]
        after = page.after
        if after is None:
            break
    assert len(seen) == len(set(seen)) == admin.dead_letters.count(task="a") == 5
    assert seen == sorted(seen, reverse=True)
    assert admin.dead_letters.stats().tasks[0].dead == 5
    assert len(admin.dead_letters.list(failed_after=datetime(2026, 1, 1, tzinfo=UTC), limit=500)) == 7, "both ends are inclusive"
    assert len(admin.dead_letters.list(failed_before=datetime(2026, 1, 1, tzinfo=UTC), queue="q0")) == 3


def test_queues_leases_workers(place: Database, rows: Rows) -> None:
    admin = Admin(place)
    assert admin.queues.apply(APPLY).outcome == "created"
    assert admin.queues.show("q").managed_by == "cli"
    rows.worker("w")
    token, ids = rows.running(2, worker="w")
    (lease,) = admin.leases.list(queue="q")
    assert (lease.token, lease.state, lease.ids) == (token, "live", tuple(ids))
    (worker,) = admin.workers.list()
    assert (worker.id, worker.alive, worker.queues, worker.jobs) == ("w", True, ("q",), 2)
    assert admin.queues.stats("q").running == 2
    assert [item.result for item in admin.leases.release([token, 5])] == ["missing", "live"]
    assert [item.result for item in admin.leases.release(token, force=True)] == ["released"]


async def test_every_word_has_a_twin_that_is_awaited(aplace: Database, rows: Rows) -> None:
    admin = Admin(aplace)
    one = rows.job(key="k", run_at=datetime(2030, 1, 1, tzinfo=UTC))
    dead = bury(rows, queue="dead")
    assert (await admin.jobs.aget(one)).id == one
    assert [job.id for job in await admin.jobs.alist(queue="q")] == [one]
    assert await admin.jobs.acount(queue="q") == 1
    assert (await admin.jobs.areschedule(one, delay=5)).outcome == "rescheduled"
    assert (await admin.jobs.aupdate(one, priority=3)).outcome == "updated"
    assert (await admin.jobs.arun_now(one)).outcome == "due"
    assert (await admin.jobs.acancel_by_key("t", "k", queue="q")).outcome == "cancelled"
    with pytest.raises(NotFound):
        await admin.jobs.acancel(one)
    assert (await admin.dead_letters.aget(dead)).job_id == dead
    assert [item.job_id for item in await admin.dead_letters.alist()] == [dead]
    assert await admin.dead_letters.acount() == (await admin.dead_letters.astats()).dead == 1
    assert [change.target for change in await admin.dead_letters.arequeue(dead)] == [dead]
    assert (await admin.queues.ahold("q", seconds=60)).outcome == "held"
    assert (await admin.queues.aresume("q")).outcome == "resumed"
    assert (await admin.queues.aapply(APPLY)).outcome == "created"
    assert (await admin.queues.ashow("q")).queue == "q"
    assert {queue.queue for queue in await admin.queues.alist()} == {"q", "dead"}
    assert (await admin.queues.astats("dead")).total == 1
    assert await admin.queues.apurge("dead", force=True) == 1
    assert [worker.id for worker in await admin.workers.alist()] == ["w"]
    assert len(await admin.leases.alist()) == 0
    assert (await admin.leases.arelease(5))[0].result == "missing"


async def test_async_using(database: RigDatabase, aplace: Database, rows: Rows) -> None:
    one = rows.job()
    async with await psycopg.AsyncConnection.connect(database.dsn) as conn:
        admin = AsyncAdminUsing(conn, aplace)
        assert (await admin.jobs.acancel(one)).outcome == "cancelled"
        await conn.rollback()
    assert rows.row(one) is not None


def test_words_have_twins_and_the_wrong_one_names_the_right_one(database: RigDatabase, place: Database) -> None:
    admin = Admin(place)
    for group in (admin.jobs, admin.dead_letters, admin.queues, admin.leases, admin.workers):
        plain = {
            name for kind in type(group).__mro__ for name in vars(kind) if not name.startswith("_") and not name.startswith("a")
        }
        plain |= {"apply"} & set(dir(group))
        for name in plain:
            assert hasattr(group, f"a{name}"), f"{type(group).__name__}.{name} has no twin"
    with database.connect() as conn:
        using: Any = AdminUsing(conn, place)
        for group, wrong, right in ((using.jobs, "acancel", "cancel"), (using.queues, "aapply", "apply")):
            with pytest.raises(AttributeError, match=f"sync: use {right}, not {wrong}"):
                getattr(group, wrong)
        with pytest.raises(AttributeError, match="has no 'nonsense'"):
            using.jobs.nonsense  # noqa: B018
    asynchronous: Any = AsyncAdminUsing.__new__(AsyncAdminUsing)
    AsyncAdminUsing.__init__(asynchronous, None, place)  # type: ignore[arg-type]
    for group, wrong, right in ((asynchronous.jobs, "cancel", "acancel"), (asynchronous.queues, "apply", "aapply")):
        with pytest.raises(AttributeError, match=f"async: use {right}, not {wrong}"):
            getattr(group, wrong)
