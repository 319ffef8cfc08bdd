"""A database that is away, slow, silent or restarted: it costs its own queues little, others nothing, and heals."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tailrace.errors import AuthenticationFailed, DatabaseUnavailable
from tailrace.names.conditions import Reason
from tailrace_controller.databases import Budget, Databases, QueueDatabase, pool
from tests.operator.databases import OWNER, QUICK, databases, target_of
from tests.rig.logins import MakeLogin, RigLogin
from tests.rig.pgbouncer import StartPooler
from tests.rig.proxy import TcpProxy
from tests.rig.servers import Connection, RigDatabase, Server
from tests.rig.waiting import aeventually

CONTROLLER = "tailrace controller%"


@pytest.fixture
async def them() -> AsyncIterator[Databases]:
    """A registry whose budget a test can use up."""
    async with databases(budget=QUICK) as made:
        yield made


async def answers(here: QueueDatabase) -> bool:
    try:
        await here.look()
    except DatabaseUnavailable:
        return False
    return True


# ---- away ------------------------------------------------------------------------------------------------------------
async def test_a_server_that_stops_and_comes_back(them: Databases, private_server: Server) -> None:
    database = private_server.migrated()
    here = them.at(target_of(database))
    identity = (await here.look()).installation_id
    assert [state.reached for state in them.states()] == [True]
    private_server.postgres.stop("immediate")
    with pytest.raises(DatabaseUnavailable) as caught:
        await here.look()
    assert caught.value.reason is Reason.DATABASE_UNAVAILABLE
    assert here.address in str(caught.value)
    assert [state.reached for state in them.states()] == [False]
    private_server.postgres.start()
    await aeventually(lambda: answers(here), what="its return")
    facts = await here.look()
    facts.must_be(identity)
    assert [(state.reached, state.failures) for state in them.states()] == [(True, 0)]


async def test_who_failed_a_moment_ago_is_not_asked(tcp_proxy: TcpProxy) -> None:
    """A hundred queues of a dead database cost one connect."""
    async with databases(budget=dataclasses.replace(QUICK, first_pause_seconds=60, longest_pause_seconds=60)) as them:
        here = them.at(target_of(tcp_proxy.dsn))
        assert await answers(here)
        tcp_proxy.pause()
        began = time.monotonic()
        results = await asyncio.gather(*(answers(here) for _ in range(100)))
        assert not any(results)
        assert time.monotonic() - began < 10 * QUICK.answer_seconds, "they were asked one after the other"
        began = time.monotonic()
        assert not await answers(here)
        assert time.monotonic() - began < QUICK.answer_seconds, "it was asked"


async def test_a_silent_server_is_given_up_in_time(them: Databases, tcp_proxy: TcpProxy) -> None:
    """Behind a broken switch nothing answers, not even a cancel: an open connection, then a new one."""
    here = them.at(target_of(tcp_proxy.dsn))
    assert await answers(here)
    tcp_proxy.pause()
    for message in (f"no answer in {QUICK.answer_seconds:g} s", f"no connection in {QUICK.connect_seconds:g} s"):
        await aeventually(lambda: _refusal(here, message), 20, what=message)  # noqa: B023 - it is awaited in the loop
    tcp_proxy.resume()
    await aeventually(lambda: answers(here), what="its return")


async def _refusal(here: QueueDatabase, message: str) -> bool:
    with pytest.raises(DatabaseUnavailable) as caught:
        await here.look()
    return message in str(caught.value)


async def test_a_dead_database_delays_no_other(tcp_proxy: TcpProxy, database: RigDatabase, make_login: MakeLogin) -> None:
    patient = Budget(connect_seconds=60, answer_seconds=60, wait_seconds=60)
    async with databases(budget=patient) as them:
        dead, well = them.at(target_of(tcp_proxy.dsn)), them.at(target_of(make_login(database, "tailrace_worker")))
        assert await answers(well)
        tcp_proxy.pause()
        waiting = [asyncio.create_task(answers(dead)) for _ in range(20)]
        for _ in range(20):
            assert (await well.settle(OWNER, "q", {})).owner == OWNER
        assert not any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_restart_is_not_seen_by_who_asks_after_it(database: RigDatabase, conn: Connection) -> None:
    """An idle connection that has ended is replaced within the question."""
    async with databases() as them:
        here = them.at(target_of(database))
        await here.look()
        assert database.terminate_backends(CONTROLLER) == 1
        await here.look()
        assert [state.failures for state in them.states()] == [0]


async def test_an_answer_that_was_lost_is_asked_for_again(database: RigDatabase, tcp_proxy: TcpProxy) -> None:
    """The settings are stored, the connection breaks before we hear of it: the second time nothing is changed."""
    async with databases() as them:
        here = them.at(target_of(tcp_proxy.dsn))
        await here.look()
        tcp_proxy.lose_answer(b"settle_queue_v1")
        assert (await here.settle(OWNER, "q", {"slots": 1})).outcome in ("created", "unchanged")
        assert tcp_proxy.lost_answers == 1
    assert database.value("select count(*) from tailrace.audit where verb = 'apply'") == 1


# ---- slow ------------------------------------------------------------------------------------------------------------
async def test_a_locked_row_is_no_database_that_is_away(them: Databases, database: RigDatabase) -> None:
    here = them.at(target_of(database))
    await here.settle(OWNER, "q", {})
    with database.connect(autocommit=False) as other:
        other.execute("select from tailrace.queue where name = 'q' for update")
        waiting = asyncio.create_task(here.settle(OWNER, "q", {"slots": 1}))
        assert (await here.settle(OWNER, "other", {})).outcome == "created", "the second connection works on"
        with pytest.raises(DatabaseUnavailable, match=f"no answer in {QUICK.answer_seconds:g} s"):
            await waiting
        other.rollback()
    await aeventually(lambda: answers(here), what="the end of the pause")


async def test_a_lock_timeout_says_that_the_database_is_busy(database: RigDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pool.SESSION, "lock_timeout", "50ms")
    async with databases() as them:
        here = them.at(target_of(database))
        await here.settle(OWNER, "q", {})
        with database.connect(autocommit=False) as other:
            other.execute("select from tailrace.queue where name = 'q' for update")
            with pytest.raises(DatabaseUnavailable, match="is busy: canceling statement due to lock timeout"):
                await here.settle(OWNER, "q", {"slots": 1})
            assert [state.reached for state in them.states()] == [True]
            other.rollback()
        assert (await here.settle(OWNER, "q", {"slots": 1})).outcome == "changed"


async def test_when_both_connections_are_in_use_the_third_does_not_wait_for_ever(database: RigDatabase) -> None:
    async with databases(budget=Budget(wait_seconds=0.2)) as them:
        here = them.at(target_of(database))
        for queue in ("a", "b"):
            await here.settle(OWNER, queue, {})
        with database.connect(autocommit=False) as other:
            other.execute("select from tailrace.queue for update")
            held = [asyncio.create_task(here.settle(OWNER, queue, {"slots": 1})) for queue in ("a", "b")]
            await aeventually(lambda: len(_waiting(database)) == 2, what="two that wait for the lock")
            with pytest.raises(DatabaseUnavailable, match="all 2 connections of this controller are in use"):
                await here.look()
            other.rollback()
            assert [settled.outcome for settled in await asyncio.gather(*held)] == ["changed", "changed"]


def _waiting(database: RigDatabase) -> list[Any]:
    return database.query(
        "select pid from pg_stat_activity where application_name like %s and wait_event_type = 'Lock'", [CONTROLLER]
    )


# ---- connections -----------------------------------------------------------------------------------------------------
async def test_two_connections_at_most(database: RigDatabase, make_login: MakeLogin) -> None:
    """Whatever comes at once, also with two passwords for one user."""
    login = make_login(database, "tailrace_worker")
    first = target_of(login)
    async with databases() as them:
        await asyncio.gather(*(them.at(first).look() for _ in range(30)))
        assert len(database.backends(CONTROLLER)) <= 2
        login.rotate()
        second = target_of(login)
        await asyncio.gather(*(them.at(second).look() for _ in range(30)))
        assert len(database.backends(CONTROLLER)) <= 2
        with pytest.raises(AuthenticationFailed):
            await them.at(first).look()


async def test_what_nobody_uses_is_closed(database: RigDatabase) -> None:
    """A thousand users of one server must not hold two connections each for ever."""
    async with databases(budget=Budget(idle_seconds=0.2)) as them:
        here = them.at(target_of(database))
        await asyncio.gather(*(here.look() for _ in range(4)))
        await aeventually(lambda: not database.backends(CONTROLLER), what="no connection")
        await here.look()
        await aeventually(lambda: not database.backends(CONTROLLER), what="no connection again")


async def test_a_closed_registry_leaves_nothing_open(database: RigDatabase) -> None:
    async with databases() as them:
        here = them.at(target_of(database))
        await here.look()
        slow = asyncio.create_task(here.settle(OWNER, "q", {}))
        await them.close()
        await slow
    await aeventually(lambda: not database.backends(CONTROLLER), what="no connection")


async def test_a_cancelled_question_leaves_no_connection_in_doubt(database: RigDatabase) -> None:
    """The Lease is lost in the middle of a reconcile."""
    async with databases() as them:
        here = them.at(target_of(database))
        await here.settle(OWNER, "q", {})
        with database.connect(autocommit=False) as other:
            other.execute("select from tailrace.queue where name = 'q' for update")
            task = asyncio.create_task(here.settle(OWNER, "q", {"slots": 1}))
            await aeventually(lambda: _waiting(database), what="its wait")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            other.rollback()
        await asyncio.gather(*(here.look() for _ in range(4)))
        assert (await here.settle(OWNER, "q", {"slots": 2})).owner == OWNER


async def test_behind_a_pooler_in_transaction_mode(database: RigDatabase, pgbouncer: StartPooler) -> None:
    pooler = pgbouncer(database)
    async with databases() as them:
        here = them.at(target_of(pooler.dsn))
        for _ in range(3):
            await asyncio.gather(*(here.look() for _ in range(4)))
            assert (await here.settle(OWNER, "q", {})).owner == OWNER
        assert [state.failures for state in them.states()] == [0]


async def test_logins_of_rotated_secrets_are_forgotten(database: RigDatabase, make_login: MakeLogin) -> None:
    login: RigLogin = make_login(database, "tailrace_worker")
    async with databases() as them:
        kept = target_of(login)
        await them.at(kept).look()
        await them.at(target_of(database)).look()
        await them.keep([kept])
        assert [state.address for state in them.states()] == [kept.address]
        assert (await them.at(kept).look()).installation_id
