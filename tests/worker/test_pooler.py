"""Behind PgBouncer in transaction mode: nothing prepared, set or listened to stays in a session that others use next."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import SecretStr

from tailrace import App, NewJob
from tailrace.db import Database, is_pooled
from tailrace.db.migrate import migrate
from tailrace.errors import InvalidOption
from tests.rig.pgbouncer import POOL_SIZE, PgBouncer, StartPooler
from tests.rig.processes import StartProcess, StartWorker
from tests.rig.servers import RigDatabase, Server
from tests.rig.waiting import eventually
from tests.worker.scene import PATIENCE, SLACK, Scene

JOBS = 10_000
LONG_LEASE = 12.0
TROUBLE = re.compile(
    r"prepared statement|does not exist|already exists|current transaction is aborted|no transaction in progress"
)
HOW: Mapping[str, Mapping[str, str]] = {"refused": {}, "ignored": {"ignore_startup_parameters": "extra_float_digits,options"}}
"""What a pooler does with start-up settings."""


@pytest.fixture
def own(private_server: Server, worker_process: StartWorker, tmp_path: Path) -> Scene:
    """A scene on a server whose log is its own."""
    return Scene(private_server.migrated(), worker_process, tmp_path / "scene")


def left_behind(pooler: PgBouncer) -> list[tuple[object, ...]]:
    """Return what each of the pooler's server sessions has kept: asked in transactions that are open at the same time."""
    places = [Database(url=SecretStr(pooler.dsn)).connect(role="test", autocommit=False) for _ in range(POOL_SIZE)]
    statement = """select (select count(*) from pg_prepared_statements), (select count(*) from pg_listening_channels()),
                          (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
                          (select string_agg(name || '=' || setting, ' ') from pg_settings where source = 'session'
                           and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'IntervalStyle',
                                            'standard_conforming_strings', 'transaction_isolation', 'transaction_read_only',
                                            'transaction_deferrable')),
                          current_setting('search_path')"""
    found = [conn.execute(statement).fetchone() or () for conn in places]
    for conn in places:
        conn.close()
    return found


def trouble(server: Server, since: int = 0) -> list[str]:
    """Return the lines of the server's log that speak of statements or transactions of somebody else."""
    text = server.postgres.log_file.read_text(errors="replace")[since:]
    return [line for line in text.splitlines() if TROUBLE.search(line)]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", HOW)
def test_ten_thousand_jobs_through_two_server_sessions(
    own: Scene, private_server: Server, pgbouncer: StartPooler, process: StartProcess, how: str
) -> None:
    """d1, d3: several workers, a producer's pool, the command line and maintenance; heartbeat and LISTEN go the direct way."""
    pooler = pgbouncer(own.database, **HOW[how])
    own.database.query("create extension if not exists plpgsql")
    since = private_server.postgres.log_file.stat().st_size
    env = {"TAILRACE_DATABASE_URL": pooler.dsn, "TAILRACE_DIRECT_DATABASE_URL": own.database.dsn}
    workers = [own.worker("--slots", "5", dsn=pooler.dsn, env=env, lease=LONG_LEASE) for _ in range(3)]
    with App("faults", database_url=pooler.dsn) as app:
        jobs = [int(receipt.id) for receipt in app.enqueue_many([NewJob("quick", {}, queue="faults")] * (JOBS - 200))]
        jobs += [int(app.enqueue(NewJob("quick", {}, queue="faults")).id) for _ in range(200)]
        running = [process("-m", "tailrace_cli", *words, env=env) for words in COMMANDS]
        assert [one.wait(60) for one in running] == [0] * len(running), [one.output for one in running]
        own.wait_gone(90)
        own.ran_once(jobs)
        sessions = f"select count(*) from pg_stat_activity where datname = '{own.database.name}' and application_name like %s"
        assert own.database.value(sessions, ["tailrace heartbeat"]) == len(workers)
        assert own.database.value(sessions, ["tailrace listen"]) == len(workers)
        eventually(
            lambda: own.database.value("select count(*) from tailrace.waiter where until > now()") > 0, what="idle workers"
        )
        began = time.monotonic()
        last = int(app.enqueue(NewJob("quick", {}, queue="faults")).id)
        own.wait_line("start", last)
        assert time.monotonic() - began < SLACK
    assert not [e for w in workers for e in w.events() if e.get("event") in ("claim_failed", "database_away", "listener_pooled")]
    assert [kept[:4] for kept in left_behind(pooler)] == [(0, 0, 0, None)] * POOL_SIZE
    assert {kept[4] for kept in left_behind(pooler)} == {own.database.value("show search_path")}
    assert not trouble(private_server, since)
    for worker in workers:
        worker.terminate()
        assert worker.wait(SLACK) == 0
    assert own.database.value("select count(*) from tailrace.worker") == 0


COMMANDS = (
    ("migrate", "--check"),
    ("migrate",),
    ("maintain", "--once"),
    ("queues", "list", "-o", "json"),
    ("jobs", "list", "-o", "json"),
    ("workers", "list", "-o", "json"),
    ("maintain", "--once", "--full"),
)


def test_without_a_direct_address_workers_poll(own: Scene, private_server: Server, pgbouncer: StartPooler) -> None:
    """d1, d3: heartbeat, rescans and maintenance share the pooler; nobody listens, nobody registers for wake-ups."""
    pooler = pgbouncer(own.database)
    since = private_server.postgres.log_file.stat().st_size
    workers = [own.worker("--slots", "4", dsn=pooler.dsn, lease=LONG_LEASE) for _ in range(2)]
    jobs = own.fill("quick", 1000)
    own.wait_gone()
    own.ran_once(jobs)
    for worker in workers:
        assert worker.events("listener_pooled")
    assert own.database.value("select count(*) from tailrace.waiter") == 0
    eventually(lambda: own.database.value("select count(*) from tailrace.job") == 0, what="an empty queue")
    began = time.monotonic()
    job = own.enqueue("quick")
    own.wait_line("start", job)
    assert time.monotonic() - began < 1.2 + SLACK
    running = own.enqueue("gated", gate="go")
    failing = own.enqueue("fails", gate="go", options={"max_attempts": 1})
    for one in (running, failing):
        own.wait_line("start", one)
    own.open("go")
    own.wait_gone()
    assert own.database.query("select job_id, reason from tailrace.dead_letter") == [(failing, "max_attempts")]
    reaped = "select last_success is not null from tailrace.maintenance where routine = 'reaper'"
    eventually(lambda: own.database.value(reaped), PATIENCE, what="the reaper")
    assert [kept[:4] for kept in left_behind(pooler)] == [(0, 0, 0, None)] * POOL_SIZE
    assert not trouble(private_server, since)


def test_a_restart_behind_the_pooler(own: Scene, private_server: Server, pgbouncer: StartPooler) -> None:
    """CJ-06, FQ-21: the pooler's word for a lost server is understood: what was running ends once."""
    pooler = pgbouncer(own.database, server_login_retry="1")
    running = own.enqueue("gated", gate="go")
    worker = own.worker("--slots", "3", dsn=pooler.dsn, lease=LONG_LEASE)
    own.wait_line("start", running)
    jobs = own.fill("quick", 400)
    eventually(lambda: len(own.lines("start")) > 50, PATIENCE, what="some work")
    private_server.postgres.restart("immediate")
    jobs += own.fill("quick", 100)
    own.open("go")
    own.wait_gone()
    own.ran_once([running, *jobs])
    eventually(lambda: worker.get("/readyz")[0] == 200, PATIENCE, what="readiness")


def test_migrations_want_the_direct_way(empty_database: RigDatabase, pgbouncer: StartPooler) -> None:
    """d1: the migrator's lock belongs to a session, which a pooler does not give."""
    pooler = pgbouncer(empty_database)
    with pytest.raises(InvalidOption, match="TAILRACE_DIRECT_DATABASE_URL"):
        migrate(Database(url=SecretStr(pooler.dsn)))
    assert empty_database.query("select nspname from pg_namespace where nspname = 'tailrace'") == []
    assert migrate(Database(url=SecretStr(pooler.dsn), direct_url=SecretStr(empty_database.dsn)))
    assert migrate(Database(url=SecretStr(pooler.dsn))) == []


@pytest.mark.parametrize("how", HOW)
async def test_a_pooler_is_known_whatever_it_does_with_settings(database: RigDatabase, pgbouncer: StartPooler, how: str) -> None:
    """d1: by its refusal, or since the process that answers is not the one that said welcome."""
    pooler = pgbouncer(database, **HOW[how])
    place = Database(url=SecretStr(pooler.dsn), direct_url=SecretStr(database.dsn))
    with place.connect() as conn, place.connect(direct=True) as direct:
        assert (is_pooled(conn), is_pooled(direct)) == (True, False)
        for _ in range(8):
            conn.execute("select 1")
        assert conn.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
    async with await place.aconnect() as aconn, await place.aconnect(direct=True) as adirect:
        assert (is_pooled(aconn), is_pooled(adirect)) == (True, False)
    with Database(url=SecretStr(database.dsn)).connect(autocommit=False) as conn:
        assert not is_pooled(conn)
        assert not conn.autocommit
