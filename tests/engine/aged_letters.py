"""Dead letters for the tests of what walks them: written as they are, with an age."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.engine.rows import Rows

DAY = 86_400.0

_INSERT = """
insert into tailrace.dead_letter
  (job_id, state, queue, task, key, payload, priority, run_at, max_attempts, reason, error_type, fingerprint, total_attempts,
   first_failed_at, failed_at, resolved_at, resolution, created_at)
select nextval(pg_get_serial_sequence('tailrace.job', 'id')), %(state)s, %(queue)s, %(task)s, %(key)s, '{"n": 1}', 0, x.at, 5,
  %(reason)s, %(error_type)s, 'f', 5, x.at, x.at,
  case when %(state)s = 'resolved' then clock_timestamp() - %(resolved)s * interval '1 s' end,
  case when %(state)s = 'resolved' then 'succeeded' end, x.at
from (select clock_timestamp() - %(age)s * interval '1 s' as at) x returning job_id
"""


def letter(rows: Rows, *, age: float = 0, resolved: float | None = None, **columns: Any) -> int:
    """Insert a dead letter that failed `age` seconds ago and return its number; `resolved`: and was resolved so long ago."""
    given = {"queue": "q", "task": "t", "key": None, "reason": "max_attempts", "error_type": "network", **columns}
    state = "dead" if resolved is None else "resolved"
    return int(rows.value(_INSERT, {"state": state, "age": age, "resolved": resolved or 0, **given}))


def settings(rows: Rows, queue: str = "q", **fields: Any) -> None:
    """Store a queue's settings, as `queues apply` does."""
    rows.conn.execute(
        "insert into tailrace.queue (name, settings) values (%s, %s)"
        " on conflict (name) do update set settings = excluded.settings",
        [queue, Jsonb(fields)],
    )


def counted(report: dict[str, Any]) -> dict[str, int]:
    """The rows of a routine's report: how many by result."""
    found: dict[str, int] = {}
    for row in report["rows"]:
        found[row["result"]] = found.get(row["result"], 0) + row["n"]
    return found
