"""Dead letters for the engine's tests: made as the engine makes them, or many at once, and what is known of them."""

from __future__ import annotations

import json
from typing import Any

from tests.engine.rows import Rows

FILL = """
insert into tailrace.dead_letter (job_id, queue, task, tenant, key, payload, priority, run_at, max_attempts, reason, error_type,
  fingerprint, errors, meta, total_attempts, first_failed_at, failed_at, created_at)
select g, 'q' || g %% 3, 't' || g %% 4, case g %% 5 when 0 then 'acme' else '' end,
  case when g %% 2 = 0 then 'k' || g %% 7 || '-' || g end, jsonb_build_object('n', g),
  0, now(), 5, (array['max_attempts', 'permanent', 'timeout'])[1 + g %% 3],
  (array['network', 'unknown', 'timeout', 'validation'])[1 + g %% 4], 'f' || g %% 6,
  jsonb_build_array(jsonb_build_object('type', 'Boom', 'message', 'Say "hi" to ' || g || '.')),
  jsonb_build_object('shard', g %% 4),
  1 + g %% 5, now(), timestamptz '2026-01-01 00:00+00' + (g / 3) * interval '1 minute', now()
from generate_series(%(first)s::int, %(last)s::int) g
"""


class Letters:
    """Makes and reads dead letters."""

    def __init__(self, rows: Rows) -> None:
        """Use the tables of a connection.

        Args:
            rows: Of a migrated database.
        """
        self.rows = rows
        rows.worker()

    def bury(self, **columns: Any) -> int:
        """Let a job die of a permanent error, and return its id."""
        ident = self.rows.job(**{"attempts": 1, "max_attempts": 1, **columns})
        token = self.rows.lease([ident], queue=str(columns.get("queue", "q")))
        assert self.rows.fail(ident, token, "permanent") == "dead"
        return ident

    def kill(self, ident: int) -> None:
        """Let a waiting job be claimed and die."""
        token = self.rows.claim(ident)
        assert self.rows.fail(ident, token, "permanent") == "dead"

    def succeed(self, ident: int) -> None:
        """Let a waiting job be claimed and succeed."""
        token = self.rows.claim(ident)
        assert self.rows.settle({"id": ident, "token": token, "kind": "success"}) == {ident: "succeeded"}

    def fill(self, n: int, first: int = 10_001) -> None:
        """Insert many of mixed kinds, three of each minute."""
        self.rows.conn.execute(FILL, {"first": first, "last": first + n - 1})

    # ---- calls -------------------------------------------------------------------------------------------------------
    def change(self, verb: str, *ids: int, **options: Any) -> dict[int, str]:
        """Change given ones, all or none."""
        found = self.rows.conn.execute(
            "select job_id, outcome from tailrace.change_dead_letters_v1(%s, %s, %s::jsonb)",
            [verb, list(ids), json.dumps(options)],
        )
        return dict(found.fetchall())

    def each(self, verb: str, *ids: int, as_of: str = "infinity", **options: Any) -> dict[int, tuple[str, str | None]]:
        """Change each of given ones that can be changed."""
        found = self.rows.conn.execute(
            "select job_id, outcome, detail"
            " from unnest(tailrace.change_each_v1(%s, %s, tailrace.change_options_v1(%s, %s::jsonb), %s))",
            [verb, list(ids), verb, json.dumps(options), as_of],
        )
        return {ident: (outcome, detail) for ident, outcome, detail in found.fetchall()}

    def by_filter(self, verb: str, queue: str | None = "q", **words: Any) -> dict[int, tuple[str, str | None]]:
        """Call requeue_dead_letters and its like."""
        found = self.rows.conn.execute(
            f"select job_id, outcome, detail from tailrace.{verb}_dead_letters(%s, %s::jsonb)", [queue, json.dumps(words)]
        )
        return {ident: (outcome, detail) for ident, outcome, detail in found.fetchall()}

    def begin(
        self, verb: str = "requeue", options: dict[str, Any] | None = None, *, anew: bool = False, **which: Any
    ) -> dict[str, Any]:
        """Begin a change of many."""
        return dict(
            self.rows.value(
                "select tailrace.begin_operation_v1(%s, %s::jsonb, %s::jsonb, %s)",
                [verb, json.dumps(which or {"state": "dead"}), json.dumps(options or {}), anew],
            )
        )

    def step(self, operation: int, batch: int = 1000) -> dict[str, Any]:
        """One batch of it."""
        return dict(self.rows.value("select tailrace.step_operation_v1(%s, %s)", [operation, batch]))

    def run(
        self, verb: str = "requeue", *, batch: int = 1000, options: dict[str, Any] | None = None, **which: Any
    ) -> dict[str, Any]:
        """All of a change of many; the last report, with the problems of all."""
        operation, problems = self.begin(verb, options, **which)["id"], []
        for _ in range(1000):
            report = self.step(operation, batch)
            problems += report["problems"]
            if report["state"] != "running":
                return {**report, "problems": problems}
        raise AssertionError("it does not end")

    # ---- looks -------------------------------------------------------------------------------------------------------
    def find(
        self, *, n: int = 50, forward: bool = False, after: tuple[Any, int] | None = None, examine: int = 4000, **which: Any
    ) -> Page:
        """A page of ids, and where it goes on."""
        found = self.rows.conn.execute(
            "select * from tailrace.find_dead_letters_v1(%s::jsonb, %s, %s, %s, %s, %s)",
            [json.dumps(which), forward, n, after and after[0], after and after[1], examine],
        ).fetchall()
        return [(ident, at) for ident, at, _, _ in found if ident is not None], (found[0][2], found[0][3]) if found[0][
            3
        ] else None

    def of(self, ident: int, columns: str) -> Any:
        """Columns of one."""
        row = self.rows.conn.execute(f"select {columns} from tailrace.dead_letter where job_id = %s", [ident]).fetchall()[0]
        return row[0] if len(row) == 1 else row

    def events(self, ident: int) -> list[str]:
        """The events of its history."""
        return [event["event"] for event in self.of(ident, "history")]

    def states(self) -> dict[str, int]:
        """How many there are in each state."""
        return dict(self.rows.conn.execute("select state, count(*)::int from tailrace.dead_letter group by 1").fetchall())

    def stats(self, queue: str | None = None) -> tuple[Any, ...]:
        """The counts by the function."""
        return tuple(self.rows.conn.execute("select * from tailrace.dead_letter_stats(%s)", [queue]).fetchall()[0])

    def counted(self, queue: str | None = None) -> tuple[Any, ...]:
        """The same counts from the rows themselves."""
        return tuple(self.rows.conn.execute(_COUNTED, {"queue": queue}).fetchall()[0])


Page = tuple[list[tuple[int, Any]], tuple[Any, int] | None]

_COUNTED = """
with d as (select * from tailrace.dead_letter where %(queue)s::text is null or queue = %(queue)s),
top as (select task, count(*) as n from d where state = 'dead' group by task order by count(*) desc, task limit 10)
select count(*) filter (where state = 'dead'), count(distinct task) filter (where state = 'dead'),
  count(distinct queue) filter (where state = 'dead'), coalesce(avg(total_attempts) filter (where state = 'dead'), 0)::float8,
  coalesce(sum(requeued_count) filter (where state = 'dead'), 0)::bigint, min(failed_at) filter (where state = 'dead'),
  max(failed_at) filter (where state = 'dead'),
  (select coalesce(jsonb_agg(jsonb_build_object('task', task, 'dead', n) order by n desc, task), '[]') from top),
  count(*) filter (where state = 'requeued'), count(*) filter (where state = 'resolved')
from d
"""
