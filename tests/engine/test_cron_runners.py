"""Any number of runners fires each tick once: real processes, some of them killed, stopped or cut off in the middle."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tailrace.maintenance import Cron, CronConfig, Loop
from tests.engine.rows import Rows
from tests.engine.timetable import Timetable
from tests.rig.processes import RealProcess, StartProcess
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually


@pytest.fixture
def times(rows: Rows, database: RigDatabase) -> Timetable:
    """A database with a schedule that fires each second, and no worker: its jobs are the ledger."""
    made = Timetable(rows, database)
    made.apply({"name": "pulse", "everySeconds": 1, "overlap": "Allow"})
    return made


def start(process: StartProcess, database: RigDatabase, n: int) -> list[RealProcess]:
    env = {"TAILRACE_DATABASE_URL": database.dsn, "TAILRACE_LOG_FORMAT": "json"}
    return [process("-m", "tailrace_cli", "maintain", "cron", env=env) for _ in range(n)]


def ticks(times: Timetable) -> list[datetime]:
    return [datetime.fromisoformat(job["meta"]["tick"]) for job in times.jobs("pulse")]


def wait_ticks(times: Timetable, n: int, timeout: float = 30) -> None:
    more = len(ticks(times)) + n
    eventually(lambda: len(ticks(times)) >= more, timeout, what=f"{n} more ticks")


def check_once(times: Timetable) -> None:
    """Every second from the first to the last has its job, and none has two."""
    with times.rows.conn.transaction():  # the runners fire on
        times.rows.conn.execute("set transaction isolation level repeatable read")
        found, row = ticks(times), times.row("pulse")
    assert sorted(found) == [found[0] + timedelta(seconds=n) for n in range(len(found))]
    assert (row["fired"], row["missed"], row["skipped"]) == (len(found), 0, 0)


@pytest.mark.parametrize("n", [2, 5])
def test_several_runners_fire_each_tick_once(times: Timetable, process: StartProcess, database: RigDatabase, n: int) -> None:
    """CJ-21: with two and with five; a tick comes within about a second of its time."""
    started = start(process, database, n)
    wait_ticks(times, 6)
    assert all(one.running for one in started), [one.output for one in started]
    check_once(times)
    wait_ticks(times, 3)  # those before were made up for when the first runner came
    late = [(job["created_at"] - datetime.fromisoformat(job["meta"]["tick"])).total_seconds() for job in times.jobs("pulse")]
    assert min(late[-3:]) < 1


def test_killed_and_frozen_runners_lose_and_double_nothing(
    times: Timetable, process: StartProcess, database: RigDatabase
) -> None:
    """CJ-21: one is killed, one is frozen, one goes on."""
    one, two, _three = start(process, database, 3)
    wait_ticks(times, 2)
    two.stop()
    one.kill9()
    wait_ticks(times, 4)
    two.cont()
    wait_ticks(times, 3)
    check_once(times)


SLOW = """
create function public.slow() returns trigger language plpgsql as $$ begin
  if not exists (select from public.gate where open) then perform pg_sleep(60); end if; return new; end $$;
create table public.gate (open boolean); insert into public.gate values (false);
create trigger slow before insert on tailrace.job for each row execute function public.slow();
"""
AT_IT = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and query like '%fire_schedules%'"
CUT = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'"


def test_a_runner_that_dies_in_the_middle_of_a_tick(times: Timetable, process: StartProcess, database: RigDatabase) -> None:
    """CJ-21: last_tick and the job are one transaction: what was cut off is fired by another, once."""
    times.rows.conn.execute(SLOW)
    (one,) = start(process, database, 1)
    eventually(lambda: times.rows.value(AT_IT) == 1, 20, what="a runner in the middle of a tick")
    one.kill9()
    assert ticks(times) == []
    times.rows.conn.execute("update public.gate set open = true")
    times.rows.conn.execute(CUT)  # the server ends the statement of a client that is gone
    start(process, database, 2)
    wait_ticks(times, 4)
    check_once(times)


def test_a_runner_finds_its_database_again(times: Timetable, process: StartProcess, database: RigDatabase) -> None:
    start(process, database, 2)
    wait_ticks(times, 2)
    database.terminate_backends("tailrace maintain")
    wait_ticks(times, 4)
    check_once(times)


# ---- in place of a runner -------------------------------------------------------------------------------------------
@pytest.fixture
def standing_in(times: Timetable) -> Iterator[Any]:
    """Start loops as workers do, with a period of a second; all are stopped at the end."""
    started: list[tuple[threading.Thread, threading.Event]] = []

    def begin() -> threading.Event:
        stop = threading.Event()
        loop = Loop(times.place, [Cron(CronConfig(interval_seconds=1))], stand_in=True)
        started.append((threading.Thread(target=loop.run, args=(stop,)), stop))
        started[-1][0].start()
        return stop

    yield begin
    for thread, stop in started:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()


def test_workers_fire_when_nobody_else_does(times: Timetable, standing_in: Any) -> None:
    """One of them at a time, and another when it is gone."""
    stops = [standing_in() for _ in range(3)]
    wait_ticks(times, 3)
    for stop in stops[:2]:
        stop.set()
    wait_ticks(times, 5)
    check_once(times)
