"""The database, and nothing above it.

The only package that imports psycopg: where the database is, statements and their drivers, refusals as typed errors,
migrations. It knows no App and no worker; both get what they need of psycopg from here.
"""

from psycopg import errors, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.json import Json, Jsonb

from tailrace.db.connection import (
    AsyncConnection,
    AsyncConnectionPool,
    Connection,
    ConnectionPool,
    Database,
    DatabaseError,
    OperationalError,
)
from tailrace.db.pooled import asettled, is_pooled, settings_of, settled
from tailrace.db.refusals import translate, translated
from tailrace.db.statements import Blocks, Statement, arun, run

__all__ = [
    "AsyncConnection",
    "AsyncConnectionPool",
    "Blocks",
    "Connection",
    "ConnectionPool",
    "Database",
    "DatabaseError",
    "Json",
    "Jsonb",
    "OperationalError",
    "Statement",
    "TransactionStatus",
    "arun",
    "asettled",
    "errors",
    "is_pooled",
    "run",
    "settings_of",
    "settled",
    "sql",
    "translate",
    "translated",
    "tuple_row",
]
