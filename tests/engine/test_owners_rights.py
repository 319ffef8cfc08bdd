"""A controller needs no more than the worker's rights, and they suffice for nothing else on a queue's settings."""

from __future__ import annotations

import psycopg
import pytest

from tailrace.db import Blocks, run
from tailrace.owners import FUNCTIONS, Owner, OwnerStatements
from tests.engine.rows import Rows
from tests.rig.logins import MakeLogin
from tests.rig.servers import Connection, RigDatabase

WORDS = OwnerStatements(Blocks("tailrace"), "tailrace")
OWNER = Owner(cluster="c1", uid="u1", namespace="team-a", name="webhooks", generation=1)


def denied(database: RigDatabase, login_dsn: str) -> list[str]:
    with psycopg.connect(login_dsn, autocommit=True) as conn:
        return run(conn, WORDS.not_allowed())


def test_the_workers_role_can_do_all_that_a_controller_does(rows: Rows, database: RigDatabase, make_login: MakeLogin) -> None:
    rows.worker()
    rows.running()
    with psycopg.connect(make_login(database, "tailrace_worker").dsn, autocommit=True) as conn:
        assert run(conn, WORDS.not_allowed()) == []
        assert run(conn, WORDS.identity()) is not None
        assert run(conn, WORDS.versions()) == ["1"]
        settings = {"schedules": [{"name": "n", "everySeconds": 60, "task": "t"}], "limits": {"concurrency": 3}}
        assert run(conn, WORDS.settle(OWNER, "q", settings, None)).outcome == "created"
        assert run(conn, WORDS.owned("c1"))[0].queue == "q"
        assert run(conn, WORDS.facts(["q"]))["q"].owner == OWNER
        assert run(conn, WORDS.gone("w", reason="Error", interrupted=True)).jobs == 1
        assert run(conn, WORDS.orphan("q", OWNER)) is True
        assert run(conn, WORDS.may_migrate()) is False
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("update tailrace.queue set settings = '{}'")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select tailrace.apply_queue('q', '{}', 'controller')")


@pytest.mark.parametrize("role", ["tailrace_enqueue", "tailrace_reader"])
def test_others_may_settle_nothing(database: RigDatabase, make_login: MakeLogin, role: str) -> None:
    login = make_login(database, role)
    assert denied(database, login.dsn) == sorted(FUNCTIONS)
    with psycopg.connect(login.dsn, autocommit=True) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("select tailrace.settle_queue_v1('q', '{}', '{}', 1)")


def test_who_may_not_even_use_the_schema_lacks_them_all(database: RigDatabase, make_login: MakeLogin) -> None:
    assert denied(database, make_login(database).dsn) == sorted(FUNCTIONS)


def test_an_admin_may_too(database: RigDatabase, make_login: MakeLogin) -> None:
    assert denied(database, make_login(database, "tailrace_admin").dsn) == []


def test_who_owns_the_schema_or_may_make_it_may_migrate(conn: Connection, database: RigDatabase, make_login: MakeLogin) -> None:
    assert run(conn, WORDS.may_migrate()) is True
    login = make_login(database)
    elsewhere = OwnerStatements(Blocks("other"), "other")
    with psycopg.connect(login.dsn, autocommit=True) as own:
        assert run(own, elsewhere.may_migrate()) is False
        login.may_create()
        assert run(own, elsewhere.may_migrate()) is True
        own.execute("create schema other")
        assert run(own, elsewhere.may_migrate()) is True
        assert run(own, WORDS.may_migrate()) is False
