"""The rig itself: fresh databases, a server that may crash, a network that may break."""

from __future__ import annotations

import contextlib
import signal
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.rig.processes import StartProcess
from tests.rig.proxy import MakeProxy
from tests.rig.servers import Connection, RigDatabase, Server
from tests.rig.waiting import aeventually, eventually


def test_databases_are_fresh_and_apart(server: Server, empty_database: RigDatabase) -> None:
    other = server.create()
    try:
        empty_database.query("create table only_here (n int)")
        assert other.value("select count(*) from pg_class where relname = 'only_here'") == 0
        assert other.value("select current_setting('server_encoding')") == "UTF8"
    finally:
        server.drop(other)


def test_backends_can_be_ended_by_application(empty_database: RigDatabase) -> None:
    with empty_database.connect(application_name="tailrace test") as victim, empty_database.connect() as bystander:
        assert empty_database.terminate_backends() == 1
        with pytest.raises(psycopg.OperationalError):
            victim.execute("select 1")
        bystander.execute("select 1")


@pytest.mark.parametrize("how", ["kill", "stop", "immediate"])
def test_a_private_server_keeps_committed_rows(private_server: Server, how: str) -> None:
    database = private_server.create()
    database.query("create table kept as select 1 as n")
    port = private_server.postgres.port
    if how == "kill":
        private_server.postgres.kill()
        private_server.postgres.start()
    else:
        private_server.postgres.restart("fast" if how == "stop" else "immediate")
    assert private_server.postgres.port == port
    assert database.value("select n from kept") == 1


def test_eventually_returns_the_answer_or_tells_the_last_one() -> None:
    answers = iter([0, 0, 7])
    assert eventually(lambda: next(answers)) == 7
    with pytest.raises(AssertionError, match=r"the moon did not come true in 0\.05 s: last answer 0"):
        eventually(lambda: 0, 0.05, what="the moon")


async def test_aeventually_takes_coroutines() -> None:
    answers = iter([0, 3])

    async def ask() -> int:
        return next(answers)

    assert await aeventually(ask) == 3


def test_processes_are_stopped_continued_and_killed(process: StartProcess) -> None:
    ticking = process("-c", "import json, sys, time\nprint(json.dumps({'event': 'up', 'n': 1}))\ntime.sleep(60)")
    assert ticking.wait_event("up")["n"] == 1
    ticking.stop()
    ticking.cont()
    assert ticking.kill9() == -signal.SIGKILL
    with pytest.raises(AssertionError, match="before 'never'"):
        ticking.wait_event("never")


def test_output_of_a_process_is_in_the_message(process: StartProcess) -> None:
    failing = process("-c", "import sys; sys.exit('no such thing')")
    assert failing.wait() == 1
    with pytest.raises(AssertionError, match="no such thing"):
        failing.wait_event("up")


def test_the_proxy_cuts_and_refuses(empty_database: RigDatabase, proxy_to: MakeProxy) -> None:
    proxy = proxy_to(empty_database.dsn)
    cut = psycopg.connect(proxy.dsn, application_name="a", autocommit=True)
    kept = psycopg.connect(proxy.dsn, application_name="b", autocommit=True)
    with contextlib.closing(cut), contextlib.closing(kept):
        proxy.cut("a")
        with pytest.raises(psycopg.OperationalError):
            cut.execute("select 1")
        kept.execute("select 1")
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(proxy.dsn)
    proxy.resume()
    with psycopg.connect(proxy.dsn) as again:
        again.execute("select 1")


def test_a_paused_proxy_is_silent_until_resumed(empty_database: RigDatabase, proxy_to: MakeProxy) -> None:
    proxy = proxy_to(empty_database.dsn)
    with psycopg.connect(proxy.dsn, autocommit=True) as conn, ThreadPoolExecutor() as threads:
        proxy.pause()
        waiting = threads.submit(conn.execute, "select 1")
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(proxy.dsn, connect_timeout=2)
        assert not waiting.done()
        proxy.resume()
        assert waiting.result(10).fetchone() == (1,)


@pytest.mark.parametrize("pipelined", [False, True])
def test_the_answer_to_a_commit_is_lost_after_it_happened(
    empty_database: RigDatabase, proxy_to: MakeProxy, pipelined: bool
) -> None:
    proxy = proxy_to(empty_database.dsn)
    empty_database.query("create table noted (n int)")
    with psycopg.connect(proxy.dsn, application_name="tailrace work") as conn, psycopg.connect(proxy.dsn) as other:
        proxy.lose_answer(application="tailrace work")
        other.execute("insert into noted values (0)")
        other.commit()
        with pytest.raises(psycopg.OperationalError):
            _insert(conn, pipelined=pipelined)
        assert proxy.lost_answers == 1
    assert empty_database.query("select n from noted order by n") == [(0,), (1,)]


def _insert(conn: Connection, *, pipelined: bool) -> None:
    if pipelined:
        with conn.pipeline(), conn.transaction():
            conn.execute("insert into noted values (1)")
    else:
        with conn.transaction():
            conn.execute("insert into noted values (1)")
