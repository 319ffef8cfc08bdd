"""One queue's database as a reconcile asks it, on a real server, with a worker's rights."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.errors import (
    AuthenticationFailed,
    DatabaseChanged,
    DatabaseNotFound,
    InvalidOption,
    PrivilegeMissing,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    TailraceError,
)
from tailrace.names.conditions import Reason
from tailrace_controller.databases import Owner
from tests.engine.rows import Rows
from tests.operator.databases import OWNER, databases, target_of
from tests.rig.logins import MakeLogin, RigLogin
from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import aeventually


@pytest.fixture
def login(database: RigDatabase, make_login: MakeLogin) -> RigLogin:
    """What a Secret holds: a user with the worker's role."""
    return make_login(database, "tailrace_worker")


# ---- looking ---------------------------------------------------------------------------------------------------------
async def test_a_look_tells_what_the_database_is(database: RigDatabase, login: RigLogin) -> None:
    async with databases() as them:
        facts = await them.at(target_of(login)).look()
    assert facts.installation_id == database.value("select id::text from tailrace.installation")
    assert facts.address.endswith(f"/{database.name}")
    assert facts.schema_version == database.value("select max(version) from tailrace.migration")
    assert facts.server_version[0].isdigit()
    assert facts.pending is None


async def test_another_installation_behind_the_secret_is_known(database: RigDatabase, login: RigLogin) -> None:
    """By its marker, whatever the address says."""
    async with databases() as them:
        here = await them.at(target_of(login)).look()
        here.must_be(None)
        here.must_be(here.installation_id)
        database.query("delete from tailrace.installation; insert into tailrace.installation default values")
        there = await them.at(target_of(login)).look()
    with pytest.raises(DatabaseChanged, match=here.installation_id) as caught:
        there.must_be(here.installation_id)
    assert caught.value.reason is Reason.DATABASE_CHANGED


async def test_a_missing_role_is_told_with_the_grant_and_heals(database: RigDatabase, login: RigLogin) -> None:
    async with databases() as them:
        login.revoke("tailrace_worker")
        with pytest.raises(PrivilegeMissing) as caught:
            await them.at(target_of(login)).look()
        assert caught.value.reason is Reason.PRIVILEGE_MISSING
        assert "tailrace_worker" in str(caught.value)
        assert login.name not in str(caught.value)
        login.grant("tailrace_worker")
        assert (await them.at(target_of(login)).look()).installation_id


async def test_one_missing_right_is_named(database: RigDatabase, make_login: MakeLogin) -> None:
    reader = make_login(database, "tailrace_reader")
    async with databases() as them:
        with pytest.raises(PrivilegeMissing, match="settle_queue_v1"):
            await them.at(target_of(reader)).look()


@pytest.mark.parametrize(
    ("statement", "error", "reason"),
    [
        ("drop schema tailrace cascade", SchemaMissing, Reason.SCHEMA_MISSING),
        ("delete from tailrace.migration", SchemaMissing, Reason.SCHEMA_MISSING),
        ("delete from tailrace.migration where version > 5", SchemaTooOld, Reason.SCHEMA_TOO_OLD),
        ("delete from tailrace.installation", SchemaMissing, Reason.SCHEMA_MISSING),
        (
            "insert into tailrace.migration (version, name, checksum, min_controller) values (9000, 'x', 'x', '99.0')",
            SchemaTooNew,
            Reason.SCHEMA_TOO_NEW,
        ),
    ],
)
async def test_a_schema_that_does_not_fit(
    database: RigDatabase, login: RigLogin, statement: str, error: type[TailraceError], reason: Reason
) -> None:
    database.query(statement)
    async with databases() as them:
        with pytest.raises(error) as caught:
            await them.at(target_of(login)).look()
    assert caught.value.reason is reason
    assert database.name in str(caught.value)


async def test_the_schema_of_the_next_release_is_worked_with(database: RigDatabase, login: RigLogin) -> None:
    """A roll-back of the controller must work."""
    database.query("insert into tailrace.migration (version, name, checksum, min_controller) values (9000, 'x', 'x', '0.1')")
    async with databases() as them:
        here = them.at(target_of(login))
        assert (await here.look()).schema_version == 9000
        assert (await here.settle(OWNER, "q", {})).outcome == "created"


async def test_another_schema_is_another_installation(database: RigDatabase, login: RigLogin) -> None:
    async with databases() as them:
        with pytest.raises(SchemaMissing, match="tailrace migrate --schema 'other'"):
            await them.at(target_of(login, schema="other")).look()


# ---- the queue -------------------------------------------------------------------------------------------------------
async def test_a_queue_is_settled_looked_at_and_orphaned(login: RigLogin, conn: Connection) -> None:
    rows = Rows(conn)
    newer = Owner(cluster="c1", uid="u2", namespace="team-b", name="webhooks", generation=3)
    async with databases() as them:
        here = them.at(target_of(login))
        assert (await here.settle(OWNER, "q", {"slots": 1})).outcome == "created"
        assert (await here.settle(OWNER, "q", {"slots": 1})).outcome == "unchanged"
        assert (await here.settle(newer, "q", {"slots": 2})).owner == OWNER
        assert (await here.facts(["q", "other"]))["q"].owner == OWNER
        assert [one.queue for one in await here.owned("c1")] == ["q"]
        assert await here.orphan("q", OWNER)
        assert (await here.owned("c1"))[0].orphaned
        assert (await here.settle(newer, "q", {"slots": 2})).adopted == "orphaned"
    assert rows.value("select settings from tailrace.queue") == {"slots": 2}


async def test_wrong_settings_are_the_resources_fault(login: RigLogin) -> None:
    """They are no sign of a database that is away."""
    async with databases() as them:
        here = them.at(target_of(login))
        with pytest.raises(InvalidOption):
            await here.settle(OWNER, "q", {"stopPolicy": "Maybe"})
        assert (await here.settle(OWNER, "q", {})).outcome == "created"
        assert [state.reached for state in them.states()] == [True]


@pytest.mark.parametrize(
    ("reason", "attempts"),
    [("Evicted: Error, exit code 137", 0), ("Deleted: Completed, exit code 0", 0), ("Preempted: Error", 0), ("OOMKilled", 1)],
)
async def test_a_proof_of_death_is_applied_as_its_reason_says(
    login: RigLogin, conn: Connection, reason: str, attempts: int
) -> None:
    rows = Rows(conn)
    rows.worker(until=50)
    _, [ident] = rows.running()
    async with databases() as them:
        here = them.at(target_of(login))
        assert await here.worker_died("w", reason=reason) == 1
        assert await here.worker_died("w", reason=reason) == 0
        assert await here.worker_died("nobody", reason=reason) == 0
    row = rows.row(ident)
    assert row is not None
    assert (row["attempts"], row["token"]) == (attempts, None)
    assert rows.value("select death from tailrace.worker where id = 'w'") == reason


async def test_a_job_that_is_locked_for_a_moment_is_taken_over_too(login: RigLogin, conn: Connection) -> None:
    rows = Rows(conn)
    rows.worker(until=50)
    _, [ident] = rows.running()
    with login.database.connect(autocommit=False) as other:
        other.execute("select from tailrace.job where id = %s for update", [ident])
        async with databases() as them:
            told = asyncio.create_task(them.at(target_of(login)).worker_died("w", reason="Error"))
            await aeventually(lambda: login.database.value("select death from tailrace.worker"), what="the first try")
            other.rollback()
            assert await told == 1


# ---- secrets ---------------------------------------------------------------------------------------------------------
async def test_a_rotated_password_is_taken_up_at_once(login: RigLogin) -> None:
    """g4: the Secret still has the old one, then the new one; no pause of the old one delays the new one."""
    async with databases() as them:
        login.rotate()
        old = target_of(login)
        login.rotate()
        for _ in range(3):
            with pytest.raises(AuthenticationFailed) as caught:
                await them.at(old).look()
        assert caught.value.reason is Reason.AUTHENTICATION_FAILED
        assert (await them.at(target_of(login)).look()).installation_id


async def test_a_wrong_name_is_told_and_heals(login: RigLogin) -> None:
    target = target_of(login)
    wrong = target_of(login.dsn.replace(login.database.name, "nowhere"))
    async with databases() as them:
        with pytest.raises(DatabaseNotFound) as caught:
            await them.at(wrong).look()
        assert caught.value.reason is Reason.DATABASE_NOT_FOUND
        assert (await them.at(target).look()).installation_id


async def test_who_does_not_know_the_password_uses_nobodys_connection(login: RigLogin) -> None:
    """l1, l3: another JobQueue names the same user with a wrong password while a connection of the right one is open."""
    intruder = target_of(login.dsn.replace(login.password, "guessed"))
    async with databases() as them:
        for _ in range(2):
            assert (await them.at(target_of(login)).settle(OWNER, "q", {})).owner == OWNER
            with pytest.raises(AuthenticationFailed):
                await them.at(intruder).facts(["q"])
        assert (await them.at(target_of(login)).look()).installation_id, "and his failures harm nobody"


# ---- maintenance -----------------------------------------------------------------------------------------------------
async def test_places_for_maintenance_follow_the_login_that_works(login: RigLogin, make_login: MakeLogin) -> None:
    other = make_login(login.database, "tailrace_worker")
    async with databases() as them:
        assert them.targets() == []
        first = target_of(login)
        await them.at(first).look()
        await them.at(target_of(other)).look()
        assert len(them.targets()) == 1, "two users of one installation are one place"
        place = them.place(them.targets()[0])
        login.rotate()
        with pytest.raises(AuthenticationFailed):
            await them.at(target_of(login.dsn.replace(login.password, "wrong"))).look()
        with place.connect() as conn:
            assert conn.info.user == other.name
        await them.at(target_of(login)).look()
        with place.connect() as conn:
            assert conn.info.user == login.name
        await them.keep([])
        assert them.targets() == []


async def test_a_queue_of_the_command_line_is_the_resources_from_its_first_reconcile(login: RigLogin, conn: Connection) -> None:
    conn.execute("select tailrace.apply_queue('q', '{\"a\": 1}', 'cli')")
    async with databases() as them:
        assert (await them.at(target_of(login)).settle(OWNER, "q", {})).adopted == "cli"
    rows = Rows(conn)
    assert rows.value("select managed_by from tailrace.queue") == "controller"
