"""The controller migrates: with its own credential, or with the Secret's if that owns the schema; else it names the command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tailrace.db.migrate import migrate
from tailrace.db.migration_files import MIGRATIONS, Migration
from tailrace.errors import MigrationFailed, MigrationPending, PrivilegeMissing, SchemaMissing, SchemaTooNew, SchemaTooOld
from tailrace.names.conditions import Reason
from tailrace_controller.databases import Release
from tests.operator.databases import OWNER, databases, target_of
from tests.rig.logins import MakeLogin, RigLogin
from tests.rig.servers import RigDatabase

EXPAND = Migration(9000, "expand", "create table tailrace.expanded (n int);")
CONTRACT = Migration(9001, "contract", "-- min_worker: 9.0\ncreate table tailrace.contracted (n int);")
BROKEN = Migration(9002, "broken", "select 1 / 0;")


def release(*more: Migration) -> Release:
    return Release(migrations=[*MIGRATIONS, *more])


@pytest.fixture
def login(database: RigDatabase, make_login: MakeLogin) -> RigLogin:
    """What a Secret holds: a user with the worker's role."""
    return make_login(database, "tailrace_worker")


def credentials(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


# ---- who may ---------------------------------------------------------------------------------------------------------
async def test_a_worker_may_not_and_is_told_the_command(empty_database: RigDatabase, make_login: MakeLogin) -> None:
    login = make_login(empty_database)
    async with databases() as them:
        here = them.at(target_of(login))
        with pytest.raises(SchemaMissing, match="run: tailrace migrate") as caught:
            await here.migrate()
        assert caught.value.reason is Reason.SCHEMA_MISSING
        with pytest.raises(SchemaMissing):
            await here.look()
    assert empty_database.value("select count(*) from pg_namespace where nspname = 'tailrace'") == 0


async def test_the_controllers_own_credential_migrates(
    empty_database: RigDatabase, make_login: MakeLogin, tmp_path: Path
) -> None:
    """Found by host, port and database; the Secret's user only has to be able to log in."""
    login = make_login(empty_database)
    own = _owner(empty_database).url
    folder = credentials(tmp_path / "own", other="host=elsewhere user=x", nonsense="-", ours=own)
    async with databases(credentials=folder) as them:
        here = them.at(target_of(login))
        with pytest.raises(PrivilegeMissing):
            await here.migrate()  # it is migrated, and the Secret's user has no role yet
        login.grant("tailrace_worker")
        assert (await here.look()).schema_version == MIGRATIONS[-1].version
        assert (await here.settle(OWNER, "q", {})).outcome == "created"


async def test_without_it_the_secrets_own_user_migrates_what_it_owns(empty_database: RigDatabase, make_login: MakeLogin) -> None:
    login = make_login(empty_database)
    login.may_create()
    async with databases() as them:
        facts = await them.at(target_of(login)).migrate()
        assert facts.schema_version == MIGRATIONS[-1].version
        assert (await them.at(target_of(login)).migrate()).installation_id == facts.installation_id, "again: nothing to do"


async def test_a_credential_that_is_given_counts_for_its_own_schema(empty_database: RigDatabase, make_login: MakeLogin) -> None:
    login = make_login(empty_database)
    async with databases() as them:
        with pytest.raises(PrivilegeMissing):
            await them.at(target_of(login, schema="odd one")).migrate(admin=target_of(empty_database, schema="odd one"))
    assert empty_database.value('select count(*) from "odd one".migration') == len(MIGRATIONS)


async def test_a_schema_that_fits_and_waits_is_worked_with(login: RigLogin) -> None:
    """Policy Manual, or no right: the queue is served meanwhile, and the status names the command."""
    async with databases(release=release(EXPAND)) as them:
        here = them.at(target_of(login))
        facts = await here.look()
        assert facts.pending is not None
        assert facts.pending.reason is Reason.MIGRATION_PENDING
        assert "9000_expand" in str(facts.pending)
        assert (await here.settle(OWNER, "q", {})).outcome == "created"
        with pytest.raises(MigrationPending, match="tailrace migrate"):
            await here.migrate()
        facts = await here.migrate(admin=target_of(login.database))
        assert (facts.schema_version, facts.pending) == (9000, None)


async def test_a_schema_that_is_too_old_says_so_until_it_is_migrated(empty_database: RigDatabase, make_login: MakeLogin) -> None:
    migrate(empty_database.dsn, until=4)
    login = make_login(empty_database)
    async with databases() as them:
        here = them.at(target_of(login))
        with empty_database.connect() as conn:
            conn.execute(f"grant usage on schema tailrace to {login.name}")
            conn.execute(f"grant select on tailrace.migration to {login.name}")
        for word in (here.look, here.migrate):
            with pytest.raises(SchemaTooOld, match="tailrace migrate") as caught:
                await word()
            assert caught.value.reason is Reason.SCHEMA_TOO_OLD
        with pytest.raises(PrivilegeMissing):
            await here.migrate(admin=target_of(empty_database))
        login.grant("tailrace_worker")
        assert (await here.look()).pending is None


# ---- steps that wait, fail or are strange ------------------------------------------------------------------------------
async def test_a_step_that_drops_something_waits_for_older_workers(login: RigLogin) -> None:
    login.database.query(
        "insert into tailrace.worker (id, until, version, queues, tasks, slots)"
        " values ('old', now() - interval '3 days', '0.1.0', '{q}', '{t}', 1)"
    )
    async with databases(release=release(EXPAND, CONTRACT)) as them:
        here, admin = them.at(target_of(login)), target_of(login.database)
        facts = await here.migrate(admin=admin)
        assert (facts.schema_version, facts.pending) == (9000, None), "nobody has to do anything about the second"
        login.database.query("update tailrace.worker set until = now() - interval '8 days'")
        assert (await here.look()).pending is not None
        assert (await here.migrate(admin=admin)).schema_version == 9001


async def test_a_step_that_fails_is_told_and_tried_again(login: RigLogin) -> None:
    admin = target_of(login.database)
    async with databases(release=release(BROKEN)) as them:
        for _ in range(2):
            with pytest.raises(MigrationFailed, match="9002_broken: division by zero") as caught:
                await them.at(target_of(login)).migrate(admin=admin)
        assert caught.value.reason is Reason.MIGRATION_FAILED
        assert (await them.at(target_of(login)).look()).pending is not None
    async with databases() as them:
        assert (await them.at(target_of(login)).migrate(admin=admin)).pending is None


async def test_a_newer_schema_is_not_touched(login: RigLogin) -> None:
    login.database.query(
        "insert into tailrace.migration (version, name, checksum, min_controller) values (9001, 'x', 'x', '99.0')"
    )
    async with databases(release=release(EXPAND)) as them:
        with pytest.raises(SchemaTooNew):
            await them.at(target_of(login)).migrate(admin=target_of(login.database))
    assert login.database.value("select count(*) from tailrace.migration where version = 9000") == 0


async def test_edited_migrations_are_refused(login: RigLogin) -> None:
    login.database.query("update tailrace.migration set checksum = 'x' where version = 5")
    async with databases(release=release(EXPAND)) as them:
        with pytest.raises(MigrationFailed, match="text differs"):
            await them.at(target_of(login)).migrate(admin=target_of(login.database))


async def test_many_queues_of_one_database_migrate_it_once(empty_database: RigDatabase, make_login: MakeLogin) -> None:
    owner = make_login(empty_database)
    owner.may_create()
    async with databases() as one, databases() as two:
        found = await asyncio.gather(*(them.at(target_of(owner)).migrate() for them in (one, two) for _ in range(4)))
    assert len({facts.installation_id for facts in found}) == 1
    assert empty_database.value("select count(*) from tailrace.migration") == len(MIGRATIONS)


async def test_who_cannot_log_in_makes_nobody_migrate(empty_database: RigDatabase, make_login: MakeLogin, tmp_path: Path) -> None:
    """l3: the controller's right is not for those who only know an address."""
    login = make_login(empty_database)
    wrong = target_of(login.dsn.replace(login.password, "guessed"))
    folder = credentials(tmp_path / "own", ours=_owner(empty_database).url)
    async with databases(credentials=folder) as them:
        with pytest.raises(Exception, match="password authentication failed"):
            await them.at(wrong).migrate()
    assert empty_database.value("select count(*) from pg_namespace where nspname = 'tailrace'") == 0


def _owner(database: RigDatabase) -> RigLogin:
    """The server's first user, as a credential of the controller."""
    given = conninfo_to_dict(database.dsn)
    return RigLogin(database, str(given["user"]), str(given.get("password") or ""))
