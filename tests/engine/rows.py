"""Rows for the engine's tests: jobs that wait or run, workers, leases, and what became of them."""

from __future__ import annotations

import itertools
import json
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tests.rig.servers import Connection

_tokens = itertools.count(7_000_000_000_000_000_001)


class Rows:
    """Writes and reads the tables by a connection, as a worker or an operator would see them."""

    def __init__(self, conn: Connection) -> None:
        """Use a connection.

        Args:
            conn: To a migrated database.
        """
        self.conn = conn

    # ---- writing -----------------------------------------------------------------------------------------------------
    def job(self, **columns: Any) -> int:
        """Insert a job, waiting unless a token is given, and return its id."""
        given = {"queue": "q", "task": "t", "payload": {"n": 1}, **columns}
        values = {name: Jsonb(value) if isinstance(value, dict | list) else value for name, value in given.items()}
        statement = sql.SQL("insert into tailrace.job ({}) values ({}) returning id").format(
            sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(sql.Placeholder() * len(values))
        )
        return int(self.value(statement, list(values.values())))

    def worker(self, name: str = "w", *, until: float = 60, lease_seconds: float = 60, state: str = "working") -> str:
        """Insert or change a worker whose lease ends in `until` seconds."""
        self.conn.execute(
            """insert into tailrace.worker (id, until, lease_seconds, version, queues, tasks, slots, state)
               values (%s, clock_timestamp() + %s * interval '1 s', %s, '1', '{q}', '{t}', 1, %s)
               on conflict (id) do update
                 set until = excluded.until, state = excluded.state, lease_seconds = excluded.lease_seconds""",
            [name, until, lease_seconds, state],
        )
        return name

    def lease(self, ids: list[int], *, worker: str = "w", token: int | None = None, queue: str = "q") -> int:
        """Insert a lease for jobs and give them its token, without charging them."""
        token = token or next(_tokens)
        self.conn.execute(
            "insert into tailrace.lease (token, worker, queue, ids) values (%s, %s, %s, %s)", [token, worker, queue, ids]
        )
        self.conn.execute("update tailrace.job set token = %s where id = any(%s)", [token, ids])
        return token

    def running(self, n: int = 1, *, worker: str = "w", **columns: Any) -> tuple[int, list[int]]:
        """Insert n jobs under one lease; attempts 1 unless said otherwise."""
        ids = [self.job(**{"attempts": 1, **columns}) for _ in range(n)]
        return self.lease(ids, worker=worker, queue=columns.get("queue", "q")), ids

    def claim(self, ident: int, *, worker: str = "w") -> int:
        """Take a waiting job as a claim does: charged, with a lease; returns the token."""
        self.conn.execute("update tailrace.job set attempts = attempts + (attempts < max_attempts)::int where id = %s", [ident])
        return self.lease([ident], worker=worker)

    # ---- calling -----------------------------------------------------------------------------------------------------
    def settle(self, *outcomes: dict[str, Any], worker: str = "w") -> dict[int, str]:
        """Call settle_v1 and return the results by job."""
        rows = self.conn.execute("select id, result from tailrace.settle_v1(%s, %s::jsonb)", [worker, json.dumps(outcomes)])
        return dict(rows.fetchall())

    def fail(self, ident: int, token: int, kind: str = "error", **more: Any) -> str:
        """Settle one outcome and return its result."""
        return self.settle({"id": ident, "token": token, "kind": kind, "delay": 0, "error": error_of("Boom"), **more})[ident]

    def reap(self, interval: float = 15, batch: int = 100, after: int | None = None) -> dict[str, Any]:
        """Call reap_v1."""
        return dict(self.value("select tailrace.reap_v1(%s::real, %s, %s)", [interval, batch, after]))

    def steady(self, seconds: float = 3600) -> None:
        """Let the reaper have been steady for some time."""
        self.conn.execute(
            """insert into tailrace.maintenance (routine, last_tick, last_success, steady_since)
               values ('reaper', clock_timestamp(), clock_timestamp(), clock_timestamp() - %(s)s * interval '1 s')
               on conflict (routine, scope) do update set last_tick = excluded.last_tick, steady_since = excluded.steady_since""",
            {"s": seconds},
        )

    def walk(self, after: int | None = -(2**63), slice_rows: int = 1000) -> dict[str, Any]:
        """Call walk_v1; by default from the beginning."""
        return dict(self.value("select tailrace.walk_v1(%s, %s)", [after, slice_rows]))

    def requeue(self, ident: int) -> None:
        """Requeue a dead letter."""
        self.conn.execute("select tailrace.requeue_dead_letter(%s)", [ident])

    # ---- reading -----------------------------------------------------------------------------------------------------
    def value(self, text: Any, parameters: Any = None) -> Any:
        """Return the first column of the first row."""
        row = self.conn.execute(text, parameters).fetchone()
        assert row is not None
        return row[0]

    def row(self, ident: int) -> dict[str, Any] | None:
        """Return a job, with `wait`: seconds until run_at."""
        return self._one(
            "select j.*, extract(epoch from run_at - clock_timestamp())::float8 as wait from tailrace.job j where id = %s", ident
        )

    def dead(self, ident: int) -> dict[str, Any] | None:
        """Return a dead letter."""
        return self._one("select * from tailrace.dead_letter where job_id = %s", ident)

    def leases(self) -> set[int]:
        """Return the tokens that have a lease."""
        return {token for (token,) in self.conn.execute("select token from tailrace.lease").fetchall()}

    def tally(self) -> dict[str, int]:
        """Return the counted ends by kind."""
        rows = self.conn.execute("select what, sum(n)::int from tailrace.tally where n <> 0 group by what").fetchall()
        return dict(rows)

    def count(self, table: str, where: str = "true") -> int:
        """Count the rows of a table."""
        return int(self.value(sql.SQL("select count(*) from tailrace.{} where ").format(sql.Identifier(table)) + sql.SQL(where)))

    def _one(self, text: str, ident: int) -> dict[str, Any] | None:
        with self.conn.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(text, [ident]).fetchone()


def error_of(kind: str, message: str = "it broke") -> dict[str, Any]:
    """An error as a worker describes it."""
    return {
        "type": kind,
        "message": message,
        "traceback": "Traceback …",
        "attempt": 1,
        "worker": "w",
        "time": "2026-01-01T00:00:00+00:00",
    }


def results(report: dict[str, Any]) -> dict[str, int]:
    """The rows of a routine's report: how many by result."""
    counted: dict[str, int] = {}
    for row in report["rows"]:
        counted[row["result"]] = counted.get(row["result"], 0) + row["n"]
    return counted
