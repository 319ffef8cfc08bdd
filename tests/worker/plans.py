"""The plan that a worker's prepared statement really has, seen through EXPLAIN EXECUTE in the worker's own session."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from tailrace.db import Connection, Database


@dataclass(frozen=True)
class Plan:
    """An executed plan."""

    root: Mapping[str, Any]

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """All nodes."""
        return list(_walk(self.root))

    def scans(self, table: str) -> set[str]:
        """Return how a table is read: index names, or the type of a scan without an index."""
        reading = [node for node in self.nodes if node.get("Relation Name") == table and "Scan" in node["Node Type"]]
        return {node.get("Index Name", node["Node Type"]) for node in reading}

    @property
    def buffers(self) -> int:
        """Pages touched."""
        return int(self.root["Shared Hit Blocks"]) + int(self.root["Shared Read Blocks"])

    def removed(self) -> int:
        """Return how many rows filters threw away."""
        return int(sum(node.get("Rows Removed by Filter", 0) * node.get("Actual Loops", 1) for node in self.nodes))


class Prepared:
    """One block, prepared in a session as the worker prepares it."""

    def __init__(self, conn: Connection, database: Database, name: str, params: Mapping[str, Any]) -> None:
        """Prepare by running it once; what it does is rolled back.

        Args:
            conn: A session with the worker's settings, in autocommit.
            database: Gives the blocks.
            name: Such as claim.claim_batch.
            params: Its parameters.
        """
        self._conn, self.params = conn, params
        text = database.blocks[name]
        self._order = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
        before = self._names()
        with undone(conn):
            conn.execute(text, params, prepare=True)
        [self._name] = self._names() - before

    def _names(self) -> set[str]:
        return {n for (n,) in self._conn.execute("select name from pg_prepared_statements", prepare=False)}

    def explain(self, **changed: Any) -> Plan:
        """Run it, roll it back, and return its plan."""
        values = {**self.params, **changed}
        call = sql.SQL("explain (analyze, buffers, timing off, format json) execute {} ({})").format(
            sql.Identifier(self._name), sql.SQL(", ").join(sql.Placeholder() * len(self._order))
        )
        with undone(self._conn):
            row = psycopg.ClientCursor(self._conn).execute(call, [values[n] for n in self._order]).fetchone()
        assert row is not None
        return Plan(row[0][0]["Plan"])


@contextmanager
def undone(conn: Connection) -> Iterator[None]:
    """Roll back without psycopg's knowledge: it would forget its prepared statements."""
    conn.pgconn.exec_(b"begin")
    try:
        yield
    finally:
        conn.pgconn.exec_(b"rollback")


def _walk(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from _walk(inner)
