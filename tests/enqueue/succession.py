"""Holders of keys and their successors, for the tests of mode `after`."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.enqueue.conftest import Shop
from tests.rig.servers import RigDatabase

TOKEN = 7
STATES = "select id, payload ->> 'text', key_slot, state from tailrace.jobs order by id"


def hold(database: RigDatabase, job: int, *, until: str = "1 h", max_attempts: int = 5) -> None:
    """A worker claims the job."""
    database.query(
        """insert into tailrace.worker (id, until, version, queues, tasks, slots)
           values ('w', clock_timestamp() + %s::interval, '', '{webhooks}', '{plain}', 1)""",
        [until],
    )
    database.query("insert into tailrace.lease (token, worker, queue, ids) values (%s, 'w', 'webhooks', %s)", [TOKEN, [job]])
    statement = "update tailrace.job set token = %s, attempts = attempts + 1, max_attempts = %s where id = %s"
    database.query(statement, [TOKEN, max_attempts, job])


def settle(job: int, kind: str, **more: Any) -> tuple[str, list[Any]]:
    outcome = {"id": job, "token": TOKEN, "kind": kind, **more}
    return "select result from tailrace.settle_v1('w', %s)", [Jsonb([outcome])]


def slots(database: RigDatabase) -> list[tuple[str, int]]:
    """Texts and key_slots of what is live."""
    return database.query("select payload ->> 'text', key_slot from tailrace.job order by id")


def successor_of(shop: Shop, database: RigDatabase, **held: Any) -> tuple[int, int]:
    """A running holder and its successor."""
    holder = shop.plain.using(key="k").enqueue("one")
    hold(database, holder.id, **held)
    return holder.id, shop.plain.using(key="k", on_duplicate="after").enqueue("two").id


def followed(database: RigDatabase, successor: int) -> None:
    """Check that the successor has the place and is due from now on.

    Raises:
        AssertionError: It does not.
    """
    row = database.query("select id, key_slot, state <> 'blocked', run_at > created_at from tailrace.jobs where key = 'k'")
    assert row == [(successor, 0, True, True)]
