"""A connection that is refused says why by its class: away, wrong user or password, no such database, no right to connect."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.errors import AuthenticationFailed, DatabaseNotFound, DatabaseUnavailable, PrivilegeMissing, TailraceError
from tailrace.names.conditions import Reason
from tests.rig.logins import MakeLogin
from tests.rig.servers import RigDatabase


async def refusal(dsn: str) -> TailraceError:
    """What connecting says, sync and async alike."""
    place = Database(url=SecretStr(dsn))
    with pytest.raises(TailraceError) as waited:
        place.connect()
    with pytest.raises(TailraceError) as awaited:
        await place.aconnect()
    assert type(waited.value) is type(awaited.value)
    assert str(waited.value) == str(awaited.value)
    return waited.value


async def test_a_wrong_password(database: RigDatabase, make_login: MakeLogin) -> None:
    """l2: neither password nor user are repeated."""
    login = make_login(database)
    old = login.password
    dsn = login.dsn
    login.rotate()
    error = await refusal(dsn)
    assert type(error) is AuthenticationFailed
    assert error.reason is Reason.AUTHENTICATION_FAILED
    assert error.retryable
    assert "password authentication failed for the user" in str(error)
    assert old not in str(error)
    assert login.name not in str(error)


async def test_an_unknown_user(database: RigDatabase) -> None:
    error = await refusal(make_conninfo(database.dsn, user="no such user", password="x"))
    assert type(error) is AuthenticationFailed
    assert "no such user" not in str(error)


async def test_a_user_who_may_not_log_in(database: RigDatabase, make_login: MakeLogin) -> None:
    login = make_login(database)
    with database.connect() as conn:
        conn.execute(sql.SQL("alter role {} nologin").format(sql.Identifier(login.name)))
    assert type(await refusal(login.dsn)) is AuthenticationFailed


async def test_no_such_database(database: RigDatabase) -> None:
    error = await refusal(make_conninfo(database.dsn, dbname="no-such-database"))
    assert type(error) is DatabaseNotFound
    assert error.reason is Reason.DATABASE_NOT_FOUND
    assert "no-such-database" in str(error)


async def test_no_right_to_connect(database: RigDatabase, make_login: MakeLogin) -> None:
    login = make_login(database)
    with database.connect() as conn:
        conn.execute(sql.SQL("revoke connect on database {} from public").format(sql.Identifier(database.name)))
    error = await refusal(login.dsn)
    assert type(error) is PrivilegeMissing
    assert error.reason is Reason.PRIVILEGE_MISSING


async def test_nobody_listens(database: RigDatabase) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = await refusal(make_conninfo(database.dsn, port=str(taken.getsockname()[1])))
    assert type(error) is DatabaseUnavailable
    assert error.reason is Reason.DATABASE_UNAVAILABLE


def test_a_root_certificate_stands_beside_the_file_with_the_connection_string(database: RigDatabase, tmp_path: Path) -> None:
    """A mounted Secret: its connection string names a key, which is a file in the same folder."""
    (tmp_path / "uri").write_text(make_conninfo(database.dsn, sslmode="disable", sslrootcert="ca.crt"))
    (tmp_path / "ca.crt").write_text("-")
    with Database(url_file=tmp_path / "uri").connect() as conn:
        assert conn.info.get_parameters()["sslrootcert"] == str(tmp_path / "ca.crt")
    (tmp_path / "ca.crt").unlink()
    with Database(url_file=tmp_path / "uri").connect() as conn:
        assert conn.info.get_parameters()["sslrootcert"] == "ca.crt"
