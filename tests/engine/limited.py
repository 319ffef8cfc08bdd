"""Claims of a limited queue as a worker sends them, for the tests of the functions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from tests.engine.rows import Rows

_tokens = itertools.count(8_000_000_000_000_000_001)
LOWEST = float("-inf")


@dataclass
class Claim:
    """What one claim brought."""

    token: int
    jobs: list[int]
    told: dict[str, Any]
    rows: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass
class Claimer:
    """One worker that knows the limits of queue q: task t unless said otherwise, each task a class of its own."""

    rows: Rows
    limits: int = 0
    queue_most: int | None = None
    classes: dict[str, int | None] = field(default_factory=lambda: {"t": None})
    """Tasks with the limits of their own."""

    def know(self) -> Claimer:
        """Learn the limits that hold now."""
        self.limits = int(self.rows.value("select coalesce((select limits from tailrace.queue where name = 'q'), 0)"))
        found: dict[str, int] = dict(
            self.rows.conn.execute(
                "select m.name, m.most from tailrace.queue q cross join tailrace.limits_v1(q.settings) m where q.name = 'q'"
            ).fetchall()
        )
        self.queue_most = found.pop("", None)
        self.classes = {task: found.get(task) for task in self.classes}
        return self

    def claim(
        self,
        n: int = 10,
        *,
        shares: Sequence[int] | None = None,
        ids: Sequence[int] = (),
        suspect: bool = False,
        priorities: Sequence[int] = (10, 0, -10),
    ) -> Claim:
        """Claim from the lowest floor on."""
        token, tasks = next(_tokens), list(self.classes)
        numbers = [number for number in range(1, len(tasks) + 1) for _ in priorities]
        found = self.rows.conn.execute(
            """select id, token, attempts, task, payload, timeout, priority, mark, run_at, extra from tailrace.claim_limited_v1(
                 'q', 'w', %(token)s, %(limits)s, %(tasks)s, %(classes)s, '{}', %(names)s::text[], %(mosts)s::int[],
                 %(shares)s::int[],
                 %(queue)s::int, %(n)s, %(numbers)s::int[], %(priorities)s::int[], %(lows)s::float8[], %(zeros)s::bigint[],
                 %(ids)s::bigint[], %(suspect)s)""",
            {
                "token": token,
                "limits": self.limits,
                "tasks": tasks,
                "classes": list(range(1, len(tasks) + 1)),
                "names": [task if self.classes[task] is not None else None for task in tasks],
                "mosts": list(self.classes.values()),
                "shares": list(shares) if shares is not None else [n] * len(tasks),
                "queue": self.queue_most,
                "n": n,
                "numbers": numbers,
                "priorities": list(priorities) * len(tasks),
                "lows": [LOWEST] * len(numbers),
                "zeros": [0] * len(numbers),
                "ids": list(ids),
                "suspect": suspect,
            },
        ).fetchall()
        told = found.pop()
        assert told[0] is None
        return Claim(token, [row[0] for row in found], told[9], found)

    def turn(self, n: int = 10, *, ended: Sequence[tuple[str, int]] = (), suspect: bool = False) -> Claim:
        """Take a turn at the groups; `ended`: groups whose last member has just ended here, with the token that held them."""
        token, tasks = next(_tokens), list(self.classes)
        found = self.rows.conn.execute(
            """select * from tailrace.turn_limited_v1(
                 'q', 'w', %(token)s, %(limits)s, %(tasks)s, %(classes)s, '{}', '{}', %(names)s::text[], %(mosts)s::int[],
                 %(shares)s::int[], %(queue)s::int, %(ended)s::text[], %(tenants)s::text[], %(tokens)s::bigint[], '{}',
                 %(n)s, 400, '', '', %(suspect)s)""",
            {
                "token": token,
                "limits": self.limits,
                "tasks": tasks,
                "classes": list(range(1, len(tasks) + 1)),
                "names": [task if self.classes[task] is not None else None for task in tasks],
                "mosts": list(self.classes.values()),
                "shares": [n] * len(tasks),
                "queue": self.queue_most,
                "ended": [name for name, _ in ended],
                "tenants": ["" for _ in ended],
                "tokens": [held for _, held in ended],
                "n": n,
                "suspect": suspect,
            },
        ).fetchall()
        told = found.pop()
        assert told[0] is None
        return Claim(token, [row[0] for row in found], told[9], found)


def apply(rows: Rows, *, settle: bool = True, **settings: Any) -> None:
    """Give queue q settings, and make its limits sure unless the test is about that."""
    rows.conn.execute("select tailrace.apply_queue('q', %s, 'cli')", [Jsonb(settings)])
    if settle:
        assert settled(rows)


def settled(rows: Rows) -> bool:
    """Try to make the limits sure, and say whether they are."""
    waiting = rows.value("select tailrace.settle_limits_v1('q')")
    return not waiting and bool(rows.value("select limits_sure from tailrace.queue where name = 'q'"))


def in_use(rows: Rows, name: str = "") -> int:
    """How many jobs run under a limit, by the view."""
    return int(rows.value("select in_use from tailrace.limits where queue = 'q' and kind = 'concurrency' and name = %s", [name]))


def slots(rows: Rows, name: str = "") -> list[tuple[int, int, int]]:
    """The slots that are taken: (n, job, token), judged as a claim does."""
    return rows.conn.execute(
        """select s.n, s.job, s.token from tailrace.limit_slot s where s.queue = 'q' and s.name = %s
           and exists (select from tailrace.job j where j.id = s.job and j.token = s.token) order by s.n""",
        [name],
    ).fetchall()
