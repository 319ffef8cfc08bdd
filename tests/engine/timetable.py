"""A queue with schedules, and the routine that fires them: for the tests of both."""

from __future__ import annotations

import json
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from tailrace.db import Database
from tailrace.maintenance import Cron, CronConfig, NoCounters, RoutineResult, run_once
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase


class Ticks(NoCounters):
    """Counts ticks as a worker's metrics do."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], int] = {}

    def ticks(self, queue: str, result: str, n: int) -> None:
        self.seen[queue, result] = self.seen.get((queue, result), 0) + n


class Timetable:
    """Writes schedules as JobQueues and workers do, moves their past, and runs the routine."""

    def __init__(self, rows: Rows, database: RigDatabase) -> None:
        """Use a migrated database.

        Args:
            rows: Its tables.
            database: Where the routine connects.
        """
        self.rows, self.place = rows, Database(url=SecretStr(database.dsn))
        self.counted = Ticks()

    # ---- what there should be ----------------------------------------------------------------------------------------
    def apply(self, *schedules: dict[str, Any], queue: str = "q", **settings: Any) -> str:
        """Apply a JobQueue with these schedules; each needs a name, and fires task t each hour unless it says else."""
        wanted = [{"task": "t", **times_of(one), **one} for one in schedules]
        part = {**settings, "schedules": wanted} if wanted else settings
        return str(self.rows.value("select tailrace.apply_queue(%s, %s, 'cli')", [queue, Jsonb(part)]))

    def declare(self, worker: str, *schedules: dict[str, Any], until: float = 60, started: float = 0) -> None:
        """Let a worker declare these schedules of queue q; its lease ends in `until` seconds, it began `started` ago."""
        self.rows.worker(worker, until=until)
        wanted = [{"queue": "q", "task": "t", **times_of(one), **one} for one in schedules]
        self.rows.conn.execute(
            "update tailrace.worker set schedules = %s, started = clock_timestamp() - %s * interval '1 s' where id = %s",
            [Jsonb(wanted), started, worker],
        )

    def past(self, name: str, seconds: float) -> None:
        """Let a schedule's last tick be so long ago, as after an outage."""
        self.rows.conn.execute(
            "update tailrace.schedule set next_tick = null, last_tick = clock_timestamp() - %s * interval '1 s' where name = %s",
            [seconds, name],
        )

    def due(self, name: str) -> None:
        """Let exactly one tick of an hourly schedule be due."""
        self.rows.conn.execute(
            """update tailrace.schedule
               set next_tick = null, last_tick = date_trunc('hour', clock_timestamp()) - interval '1 s' where name = %s""",
            [name],
        )

    # ---- the routine -------------------------------------------------------------------------------------------------
    def run(self, **config: Any) -> dict[str, int]:
        """Run the routine once and return what it counted."""
        (result,) = self.tick(**config)
        assert result.result == "ok", result.error
        return {name: n for name, n in result.counts.items() if n}

    def tick(self, **config: Any) -> list[RoutineResult]:
        """Run the routine once and return its result."""
        return run_once(self.place, [Cron(CronConfig(**config))], counters=self.counted)

    # ---- what there is -----------------------------------------------------------------------------------------------
    def row(self, name: str) -> dict[str, Any]:
        """Return a schedule, with `ago`: seconds since its last tick."""
        found = self.find(name)
        assert found is not None, f"no schedule {name}"
        return found

    def find(self, name: str) -> dict[str, Any] | None:
        """Return a schedule, or None."""
        with self.rows.conn.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(
                """select s.*, extract(epoch from clock_timestamp() - s.last_tick)::float8 as ago, v.state
                   from tailrace.schedule s join tailrace.schedules v on v.queue = s.queue and v.name = s.name
                   where s.name = %s""",
                [name],
            ).fetchone()

    def jobs(self, name: str) -> list[dict[str, Any]]:
        """Return the live jobs of a schedule, oldest first."""
        with self.rows.conn.cursor(row_factory=dict_row) as cursor:
            return cursor.execute("select * from tailrace.job where meta ->> 'schedule' = %s order by id", [name]).fetchall()

    def plan(self, name: str, *ticks: str, **more: Any) -> dict[str, Any] | None:
        """Have one schedule's ticks fired as a runner would that has read it now; None if it was not its turn."""
        revision = self.rows.value(
            "select hashtextextended(definition::text, 0)::text from tailrace.schedule where name = %s", [name]
        )
        plan = {"queue": "q", "name": name, "revision": revision, "ticks": ticks, "next": "2100-01-01T00:00:00Z", **more}
        return self.rows.value("select tailrace.fire_schedule_v1(%s)", [json.dumps(plan)])  # type: ignore[no-any-return]


def times_of(schedule: dict[str, Any]) -> dict[str, Any]:
    """The times of a schedule that says none: each hour, and ticks of the last two are made up for."""
    return {} if {"cron", "everySeconds"} & schedule.keys() else {"everySeconds": 3600, "catchUpSeconds": 7200}
