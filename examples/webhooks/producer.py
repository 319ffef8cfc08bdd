"""Takes the shop's events: a business row and the delivery's job in one transaction.

Both become visible with the commit, and neither exists after a rollback. `events` has what is taken, `app` the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psycopg

from examples.webhooks.app import deliver
from examples.webhooks.events import Event

Connection = psycopg.Connection[Any]

ABANDONED_FROM = 900_000
"""Ids of events whose transaction is rolled back on purpose start here."""

_SCHEMA_FILE = Path(__file__).with_name("schema.sql")
_INSERT = """
insert into shop.event (event_id, kind, order_number, customer, amount_cents, currency, occurred_at, job_id)
values (%(event_id)s, %(kind)s, %(order_number)s, %(customer)s, %(amount_cents)s, %(currency)s, %(occurred_at)s, %(job_id)s)
"""


class PaymentDeclinedError(Exception):
    """The shop changes its mind in the middle of a transaction."""


def create_schema(conn: Connection) -> None:
    """Create the shop's table."""
    with conn.transaction():
        conn.execute(_SCHEMA_FILE.read_bytes())


def take(conn: Connection, event: Event, *, receiver: str) -> int:
    """Store an event and enqueue its delivery, inside the caller's transaction.

    Args:
        conn: A connection with an open transaction.
        event: What happened.
        receiver: Where customers listen, such as "http://127.0.0.1:8080".

    Returns:
        The job's id.
    """
    receipt = deliver.using(conn).enqueue(event_id=event.event_id, url=f"{receiver}/hooks/{event.customer}")
    conn.execute(_INSERT, {**asdict(event), "job_id": receipt.id})
    return receipt.id


def take_all(conn: Connection, events: Iterable[Event], *, receiver: str, after_each: Callable[[int], None] | None = None) -> int:
    """Take each event in a transaction of its own.

    Args:
        conn: A connection without an open transaction.
        events: What happened.
        receiver: Where customers listen.
        after_each: Called after each commit with the number of commits so far.

    Returns:
        How many were committed.
    """
    taken = 0
    for event in events:
        with conn.transaction():
            take(conn, event, receiver=receiver)
        taken += 1
        if after_each is not None:
            after_each(taken)
    return taken


def abandon(conn: Connection, events: Iterable[Event], *, receiver: str) -> int:
    """Take events and roll each back: no row and no delivery must come of it.

    Args:
        conn: A connection without an open transaction.
        events: The pattern; each gets an id of its own from 900,000 on.
        receiver: Where customers listen.

    Returns:
        How many were rolled back.
    """
    abandoned = 0
    for event in events:
        try:
            with conn.transaction():
                take(conn, replace(event, event_id=ABANDONED_FROM + event.event_id), receiver=receiver)
                raise PaymentDeclinedError
        except PaymentDeclinedError:
            abandoned += 1
    return abandoned
