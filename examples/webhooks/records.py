"""Reads what the database says about the run, for the display and for the ledger.

Only rows that everybody may read with psql: the shop's table and the tables of Tailrace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import psycopg

from examples.webhooks.ledger import DatabaseRecord

QUEUE = "webhooks"

_LOOK = """
select (select count(*) from tailrace.job where queue = %(queue)s),
       (select count(*) from tailrace.job where queue = %(queue)s and attempts > 0 and token is null),
       (select count(*) from tailrace.dead_letter where queue = %(queue)s and state = 'dead'),
       array(select id from tailrace.job where queue = %(queue)s and lost > 0)
"""
_HELD = "select coalesce(array_agg(id), '{}') from tailrace.lease, unnest(ids) as id where starts_with(worker, %(worker)s)"
_WORKERS = """
select count(*) from unnest(%(names)s::text[]) as name
where exists (select from tailrace.worker where starts_with(id, name) and until > clock_timestamp())
"""
_DEAD = "select job_id from tailrace.dead_letter where queue = %(queue)s and state = 'dead' order by job_id"
_ENDS = """
select what, sum(n)::bigint
from (select queue, what, n from tailrace.tally union all select queue, what, n from tailrace.total) as counted
where queue = %(queue)s group by what
"""


@dataclass(frozen=True, slots=True)
class Sight:
    """The queue at one moment.

    Attributes:
        live: Jobs that wait or run.
        retrying: Those that failed before and wait for another attempt.
        dead: Dead letters.
    """

    live: int
    retrying: int
    dead: int


@dataclass(slots=True)
class Witness:
    """Looks at the database again and again, and remembers what success would erase.

    Attributes:
        connection: An autocommit connection.
        held: Ids of jobs that the killed worker held.
        taken_over: Ids of jobs that the reaper gave back.
        victim: The worker that is about to be killed, once it is chosen.
    """

    connection: psycopg.Connection[Any]
    held: set[int] = field(default_factory=set)
    taken_over: set[int] = field(default_factory=set)
    victim: str | None = None

    @classmethod
    def connect(cls, dsn: str) -> Self:
        """Open a connection of its own."""
        return cls(psycopg.connect(dsn, autocommit=True, application_name="webhooks demo"))

    def look(self) -> Sight:
        """Read the queue, and note jobs that were taken over."""
        live, retrying, dead, lost = self._row(_LOOK, queue=QUEUE)
        self.taken_over.update(lost)
        if self.victim is not None:
            self.held.update(self.held_by(self.victim))
        return Sight(live, retrying, dead)

    def held_by(self, worker: str) -> list[int]:
        """Return the ids of the jobs in a worker's leases; its id begins with the name and ends at random."""
        return list(self._row(_HELD, worker=worker)[0])

    def workers(self, names: list[str]) -> int:
        """Count those of the workers that are known to the database and alive."""
        return int(self._row(_WORKERS, names=names)[0])

    def dead_letters(self) -> list[int]:
        """Return the ids of the jobs in the dead letters."""
        return [job for (job,) in self.connection.execute(_DEAD, {"queue": QUEUE})]

    def final(self) -> DatabaseRecord:
        """Read everything that the ledger needs."""
        with self.connection.transaction():
            self.connection.execute("set transaction isolation level repeatable read, read only")
            jobs = self.connection.execute("select event_id, job_id from shop.event").fetchall()
            ends = self.connection.execute(_ENDS, {"queue": QUEUE}).fetchall()
            letters = self.connection.execute("select job_id, state from tailrace.dead_letter").fetchall()
            (live,) = self._row("select count(*) from tailrace.job")
        return DatabaseRecord(jobs=dict(jobs), live=live, ends=dict(ends), dead_letters=dict(letters))

    def _row(self, statement: str, **parameters: object) -> tuple[Any, ...]:
        return tuple(self.connection.execute(statement, parameters).fetchall()[0])
