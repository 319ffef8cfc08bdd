"""Sessions behind a pooler in transaction mode: what they are given instead of what they cannot keep.

Such a session belongs to us for one transaction. What it prepared, set or listened to would stay in a server session that
somebody else uses next, so it prepares nothing, and settings come first in each transaction and end with it. `connection`
tells such a session by `prepare_threshold`, which is None.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg

from tailrace.db.statements import Blocks

__all__ = ["asettled", "is_pooled", "settings_of", "settled"]


def is_pooled(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Return whether a connection that `Database` opened is lent by a pooler for one transaction at a time.

    Args:
        conn: The connection.
    """
    return conn.prepare_threshold is None


def settings_of(options: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the parameters of block session.set_local.

    Args:
        options: Settings by name.
    """
    return {"names": list(options), "texts": list(options.values())}


@contextmanager
def settled(conn: psycopg.Connection[Any], blocks: Blocks, options: Mapping[str, str]) -> Iterator[None]:
    """Make one transaction under these settings, in one round trip, where the session is pooled; else do nothing.

    Read rows after it: reading inside costs one more round trip.

    Args:
        conn: An autocommitting connection that was opened with the same options.
        blocks: The blocks of its schema.
        options: Settings by name, such as {"lock_timeout": "500ms"}.
    """
    if not is_pooled(conn):
        yield
        return
    with conn.pipeline(), conn.transaction():
        conn.execute(blocks["session.set_local"], settings_of(options))
        yield


@asynccontextmanager
async def asettled(conn: psycopg.AsyncConnection[Any], blocks: Blocks, options: Mapping[str, str]) -> AsyncIterator[None]:
    """Do what `settled` does.

    Args:
        conn: An autocommitting connection that was opened with the same options.
        blocks: The blocks of its schema.
        options: Settings by name.
    """
    if not is_pooled(conn):
        yield
        return
    async with conn.pipeline(), conn.transaction():
        await conn.execute(blocks["session.set_local"], settings_of(options))
        yield
