"""Where the database is: sessions as we need them, secrets that stay secret, rotation, and poolers."""

from __future__ import annotations

import select
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.db.addresses import complete, parse, shown
from tailrace.errors import DatabaseUnavailable, TailraceError
from tests.rig.processes import StartProcess
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

SETTINGS = (
    "select current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only'),"
    " current_setting('timezone'), current_setting('client_encoding'), current_setting('lock_timeout'),"
    " current_setting('application_name')"
)
SECRET = "hunter2%/x"


def place(database: RigDatabase, **options: str) -> Database:
    return Database(url=SecretStr(make_conninfo(database.dsn, **options)))


# ---- sessions --------------------------------------------------------------------------------------------------------
async def test_sessions_do_not_depend_on_defaults_of_the_role_or_database(database: RigDatabase) -> None:
    """A role whose default is serializable or read only would make the claim fail with 40001 or 25006."""
    database.query(f"alter database {database.name} set default_transaction_isolation = 'serializable'")
    database.query(f"alter database {database.name} set timezone = 'Asia/Tokyo'")
    database.query(f"alter database {database.name} set default_transaction_read_only = on")
    wanted = ("read committed", "off", "UTC", "UTF8", "500ms", "tailrace beat")
    where = place(database, options="-c work_mem=5MB", target_session_attrs="any")
    with where.connect(role="beat", options={"lock_timeout": "500ms"}) as conn:
        assert conn.execute(SETTINGS).fetchone() == wanted
        assert conn.execute("show work_mem").fetchone() == ("5MB",)
        with conn.transaction():
            assert conn.execute("show transaction_isolation").fetchone() == ("read committed",)
            conn.execute("insert into tailrace.queue (name) values ('q')")
    async with await where.aconnect(role="beat", options={"lock_timeout": "500ms"}) as aconn:
        assert await (await aconn.execute(SETTINGS)).fetchone() == wanted


def test_defaults_yield_to_the_connection_string_and_to_libpq(monkeypatch: pytest.MonkeyPatch) -> None:
    given = conninfo_to_dict(complete(parse("host=h connect_timeout=3"), application_name="a", options=None))
    assert (given["connect_timeout"], given["target_session_attrs"], given["application_name"]) == ("3", "read-write", "a")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "any")
    assert "target_session_attrs" not in conninfo_to_dict(complete({}, application_name="a", options=None))


def test_values_of_options_may_hold_blanks_and_backslashes(database: RigDatabase) -> None:
    with place(database).connect(options={"search_path": '"a b", "c\\d"'}) as conn:
        assert conn.execute("show search_path").fetchone() == ('"a b", "c\\d"',)


# ---- addresses and secrets -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://me:s3cret@db.example:6432/app?sslmode=require", "db.example:6432/app"),
        ("postgresql://me:s3cret@a,b:6000/app", "a:5432,b:6000/app"),
        ("host=/var/run/postgresql dbname=x password=s3cret", "/var/run/postgresql:5432/x"),
        ("service=main password=s3cret", "service main"),
    ],
)
def test_the_address_is_told_without_user_or_password(url: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGSERVICE", raising=False)
    where = Database(url=SecretStr(url))
    assert where.address == shown(parse(url)) == address
    assert "s3cret" not in repr(where) + str(where)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2%/x@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 password='hunter2%/x",
        "postgresql://user:hunter2%25%2Fx@127.0.0.1:1/db",
        "nonsense hunter2%/x",
    ],
)
async def test_no_error_shows_the_secret(url: str) -> None:
    where = Database(url=SecretStr(url))
    for asynchronous in (False, True):
        with pytest.raises(TailraceError) as caught:
            await where.aconnect() if asynchronous else where.connect()
        told = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + where.address
        assert SECRET not in told
        assert "hunter2" not in told


def test_a_wrong_password_is_a_database_that_is_not_available(database: RigDatabase) -> None:
    with pytest.raises(DatabaseUnavailable) as caught:
        place(database, password=SECRET).connect()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert database.name in str(caught.value)
    assert caught.value.retryable


def test_libpqs_environment_is_enough(database: RigDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in conninfo_to_dict(database.dsn).items():
        monkeypatch.setenv({"dbname": "PGDATABASE"}.get(name, f"PG{name.upper()}"), str(value))
    with Database().connect() as conn:
        assert conn.info.dbname == database.name
    assert Database().address.endswith(f"/{database.name}")


def test_the_direct_url_is_taken_when_asked_for(database: RigDatabase) -> None:
    where = Database(url=SecretStr("postgresql://127.0.0.1:1/x"), direct_url=SecretStr(database.dsn))
    with where.connect(direct=True) as conn:
        assert conn.info.dbname == database.name
    with pytest.raises(DatabaseUnavailable):
        where.connect()


def test_a_rotated_secret_is_used_by_the_next_connect(database: RigDatabase, tmp_path: Path) -> None:
    file = tmp_path / "url"
    where = Database(url=SecretStr("postgresql://ignored/x"), url_file=file)
    with pytest.raises(DatabaseUnavailable, match="cannot be read"):
        where.connect()
    file.write_text("\n")
    with pytest.raises(DatabaseUnavailable, match="is empty"):
        where.connect()
    file.write_text(make_conninfo(database.dsn, password="old"))
    with pytest.raises(DatabaseUnavailable):
        where.connect()
    file.write_text(database.dsn + "\n")
    with where.connect() as conn:
        assert conn.info.dbname == database.name


# ---- behind a pooler -------------------------------------------------------------------------------------------------
@pytest.fixture
def strict_pooler(database: RigDatabase) -> Iterator[str]:
    """A relay that refuses the start-up parameter `options`, as a pooler in its default configuration does."""
    info = conninfo_to_dict(database.dsn)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=_serve, args=(listener, str(info["host"]), int(str(info["port"]))), daemon=True).start()
        yield make_conninfo(database.dsn, port=listener.getsockname()[1], sslmode="disable", gssencmode="disable")
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, host: str, port: int) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        head = client.recv(4)
        body = client.recv(int.from_bytes(head, "big") - 4)
        if b"options\0" in body:
            text = b"SFATAL\0C08P01\0Munsupported startup parameter in options: timezone\0\0"
            client.sendall(b"E" + (len(text) + 4).to_bytes(4, "big") + text)
            client.close()
            continue
        server = socket.create_connection((host, port))
        server.sendall(head + body)
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
    source.close()


async def test_a_pooler_that_refuses_settings_gets_none(strict_pooler: str) -> None:
    """d1: Behind a transaction pooler: no start-up settings, no SET that leaks to others, no prepared statement."""
    where = Database(url=SecretStr(strict_pooler))
    with where.connect(options={"lock_timeout": "500ms"}) as conn:
        assert conn.prepare_threshold is None
        assert conn.execute("show lock_timeout").fetchone() == ("0",)
        with conn.transaction():
            assert conn.execute("show transaction_isolation").fetchone() == ("read committed",)
    async with await where.aconnect() as aconn:
        assert aconn.prepare_threshold is None


# ---- pools -----------------------------------------------------------------------------------------------------------
def test_the_pool_survives_its_sessions(database: RigDatabase) -> None:
    """d2: A session that the server ended while it was idle is not handed out."""
    where = place(database)
    for _ in range(3):
        with where.pool().connection() as conn:
            assert conn.execute("select 1").fetchone() == (1,)
        assert database.terminate_backends("tailrace enqueue") >= 1
        eventually(lambda: not database.backends("tailrace enqueue"), what="the end of all sessions: a pool may have grown")
        eventually(lambda: select.select([conn], [], [], 0)[0], what="the server's farewell")
    where.close()


async def test_each_loop_has_its_pool_and_may_close_it(database: RigDatabase) -> None:
    where = place(database)
    for _ in range(2):
        pool = await where.apool()
        assert await where.apool() is pool
        async with pool.connection() as conn:
            assert conn.autocommit
        await where.aclose()
    await where.aclose()


def test_a_forked_child_does_not_use_or_end_its_parents_sessions(database: RigDatabase, process: StartProcess) -> None:
    code = """
import os
from pydantic import SecretStr
from tailrace.db import Database
where = Database(url=SecretStr(os.environ["DSN"]))
ask = lambda: where.pool().connection()
with ask() as conn:
    parent = conn.info.backend_pid
child = os.fork()
if child == 0:
    with ask() as conn:
        mine = conn.execute("select pg_backend_pid()").fetchone()[0]
    where.close()
    os._exit(0 if mine != parent else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
with ask() as conn:
    assert conn.execute("select pg_backend_pid()").fetchone()[0] == parent
where.close()
"""
    assert process("-W", "ignore::DeprecationWarning", "-c", code, env={"DSN": database.dsn}).wait(30) == 0
