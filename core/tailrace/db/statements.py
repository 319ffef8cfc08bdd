"""Operations as pure statements, and two thin drivers for them.

The text comes from named blocks of `.sql` files, so SQL stands in one place; `run` and `arun` work on anybody's psycopg
connection and never commit. `connection` renders the blocks for the schema of its database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Generic, NoReturn, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from tailrace.db.refusals import translate
from tailrace.errors import InvalidOption

__all__ = ["Blocks", "Statement", "arun", "quote_schema", "render", "run"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Rows = Sequence[tuple[Any, ...]]

_PREFIX: Final = re.compile(r"\btailrace\.")
_HEADER: Final = re.compile(r"^-- name:[ \t]*(\w+)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Statement(Generic[T_co]):
    """One statement to send, and how to read what comes back.

    Attributes:
        text: SQL with `%(name)s` placeholders, rendered for a schema.
        params: The values by name.
        read: Makes the result from the rows, which are tuples.
    """

    text: str
    params: Mapping[str, Any]
    read: Callable[[Rows], T_co]


def quote_schema(schema: str) -> str:
    """Return the schema's name as a quoted identifier.

    Args:
        schema: The bare name, in any characters but NUL.

    Raises:
        InvalidOption: The name is empty, longer than 63 bytes, begins with pg_ or holds NUL.
    """
    if not schema or "\0" in schema or len(schema.encode()) > 63:
        raise InvalidOption("must be 1 to 63 bytes of UTF-8 without NUL", field="schema", hint="Use a shorter name")
    if schema.startswith("pg_"):
        raise InvalidOption("must not begin with pg_, which PostgreSQL keeps for itself", field="schema", hint="Use another name")
    return '"' + schema.replace('"', '""') + '"'


def render(text: str, schema: str) -> str:
    """Return SQL written for the schema `tailrace` with every `tailrace.` replaced by the quoted name of another.

    Args:
        text: SQL in which the prefix stands before each of our objects, and nowhere else.
        schema: The bare name of the schema.
    """
    prefix = quote_schema(schema) + "."
    return _PREFIX.sub(lambda _: prefix, text)


class Blocks(Mapping[str, str]):
    """The named blocks of `db/sql/*.sql`, rendered for one schema: `blocks["claim.claim_batch"]`."""

    def __init__(self, schema: str) -> None:
        """Keep the schema; a block is rendered when it is first asked for.

        Args:
            schema: The bare name of the schema.

        Raises:
            InvalidOption: The name cannot be a schema's.
        """
        # A percent sign begins a placeholder in what psycopg reads.
        self._prefix = quote_schema(schema).replace("%", "%%") + "."
        self._rendered: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        text = self._rendered.get(name)
        if text is None:
            try:
                raw = _raw_blocks()[name]
            except KeyError:
                raise KeyError(f"no SQL block {name!r}; known: {', '.join(sorted(_raw_blocks()))}") from None
            text = self._rendered[name] = _PREFIX.sub(lambda _: self._prefix, raw)
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(_raw_blocks())

    def __len__(self) -> int:
        return len(_raw_blocks())


@lru_cache(maxsize=1)
def _raw_blocks() -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in files("tailrace.db").joinpath("sql").iterdir():
        if not entry.name.endswith(".sql"):
            continue
        stem = entry.name.removesuffix(".sql")
        parts = _HEADER.split(entry.read_text(encoding="utf-8"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if f"{stem}.{name}" in found:
                raise ValueError(f"{entry.name}: two blocks are named {name!r}")
            found[f"{stem}.{name}"] = _statement_of(body)
    return found


def _statement_of(body: str) -> str:
    """The statement without the comment lines around it and its final semicolon."""
    lines = body.strip().splitlines()
    while lines and (not lines[0].strip() or lines[0].startswith("--")):
        del lines[0]
    while lines and (not lines[-1].strip() or lines[-1].startswith("--")):
        del lines[-1]
    return "\n".join(lines).rstrip().removesuffix(";")


def run(conn: psycopg.Connection[Any], statement: Statement[T]) -> T:
    """Send a statement on a sync connection and read its rows; commits nothing.

    Args:
        conn: Anybody's psycopg connection, whatever its row or cursor factory.
        statement: What to send.

    Raises:
        TailraceError: What the database's refusal means; see `refusals.translate`.
    """
    try:
        try:
            return _send(conn, statement)
        except psycopg.errors.FeatureNotSupported:
            if not _may_send_again(conn):
                raise
            conn.execute("deallocate all")
            return _send(conn, statement)
    except psycopg.Error as exc:
        _raise_translated(exc, conn)


async def arun(conn: psycopg.AsyncConnection[Any], statement: Statement[T]) -> T:
    """Send a statement on an async connection and read its rows; commits nothing.

    Args:
        conn: Anybody's psycopg connection, whatever its row or cursor factory.
        statement: What to send.

    Raises:
        TailraceError: What the database's refusal means; see `refusals.translate`.
    """
    try:
        try:
            return await _asend(conn, statement)
        except psycopg.errors.FeatureNotSupported:
            if not _may_send_again(conn):
                raise
            await conn.execute("deallocate all")
            return await _asend(conn, statement)
    except psycopg.Error as exc:
        _raise_translated(exc, conn)


def _send(conn: psycopg.Connection[Any], statement: Statement[T]) -> T:
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        return statement.read(cursor.execute(statement.text, statement.params).fetchall())


async def _asend(conn: psycopg.AsyncConnection[Any], statement: Statement[T]) -> T:
    async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute(statement.text, statement.params)
        return statement.read(await cursor.fetchall())


def _may_send_again(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether nothing of a transaction was lost: a plan kept over a migration ("cached plan must not change") harms once."""
    return conn.autocommit and conn.prepare_threshold is not None and conn.info.transaction_status == TransactionStatus.IDLE


def _raise_translated(exc: psycopg.Error, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> NoReturn:
    better = translate(exc, address=_address(conn))
    if better is exc:
        raise exc
    raise better from exc


def _address(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> str:
    try:
        info = conn.info
        return f"{info.host}:{info.port}/{info.dbname}"
    except psycopg.Error:  # the connection is gone, and with it what it knew
        return "(closed connection)"
