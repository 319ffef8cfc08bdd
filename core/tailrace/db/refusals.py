"""What the database says, as the errors of `tailrace.errors`.

The tables refuse bad rows by constraint name and the SQL functions by SQLSTATE, so that nobody has to read messages.
`statements` and `connection` use it at their edge; errors that belong to the caller's transaction pass unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import psycopg

from tailrace.errors import (
    AuthenticationFailed,
    Conflict,
    DatabaseNotFound,
    DatabaseUnavailable,
    InvalidOption,
    InvalidPayload,
    LeaseLost,
    NotFound,
    PrivilegeMissing,
    SchemaTooOld,
    TailraceError,
)

__all__ = ["SQLSTATES", "translate", "translated"]

# Raised by our SQL functions: MESSAGE "field: problem", HINT the remedy, COLUMN the field.
SQLSTATES: Final[dict[str, type[TailraceError]]] = {
    "TR001": InvalidPayload,
    "TR002": InvalidOption,
    "TR003": NotFound,
    "TR004": Conflict,
    "TR005": LeaseLost,
}
"""What our SQL functions raise, and the error it becomes; the reference page lists them."""


@dataclass(frozen=True)
class _Rule:
    """What a named constraint of a table means to the caller."""

    field: str
    problem: str
    hint: str
    error: type[TailraceError] = InvalidOption


_RULES: Final[dict[str, _Rule]] = {
    "job_priority_range": _Rule("priority", "must be between -1000 and 1000", "Pick a whole number in that range"),
    "job_attempts_range": _Rule("max_attempts", "must be at least 1, and attempts not negative", "Give 1 or more"),
    "job_run_at_range": _Rule("run_at", "must be a finite time in the years 1 to 9999", "Give an aware datetime"),
    "job_expires_range": _Rule("expires_at", "must be a finite time in the years 1 to 9999", "Give a shorter time"),
    "job_timeout_range": _Rule("timeout", "must be between 0 and 366 days", "0 means none; leave it out for the queue's"),
    "job_queue_size": _Rule("queue", "must be 1 to 128 bytes of UTF-8", "Use a shorter name"),
    "job_task_size": _Rule("task", "must be 1 to 200 bytes of UTF-8", "Use a shorter name"),
    "job_tenant_size": _Rule("tenant", "must be at most 128 bytes of UTF-8", "Use a shorter name"),
    "job_key_size": _Rule("key", "must be 1 to 512 bytes of UTF-8", "Use a digest of the long key"),
    "job_group_size": _Rule("serial_group", "must be 1 to 200 bytes of UTF-8", "Use a digest of the long name"),
    "job_key_slot_range": _Rule("key_slot", "must be 0, or 1 for a job with a key", "Leave it out"),
    "job_payload": _Rule(
        "payload",
        "must be a JSON object of at most 262144 bytes",
        "Send the parameters by name; pass large data by reference",
        InvalidPayload,
    ),
    "job_meta": _Rule("meta", "must be a JSON object of at most 8192 bytes", "Keep only small facts in meta"),
    "queue_name_check": _Rule("queue", "must be 1 to 128 bytes of UTF-8", "Use a shorter name"),
    "job_key": _Rule(
        "key", "is held by a live job of the same tenant, queue and task", "Wait for its end or cancel it", Conflict
    ),
}

_MIGRATE: Final = "Run `tailrace migrate` with the same database and schema"
_GRANT: Final = "Grant one of Tailrace's roles to the user of this connection; `tailrace doctor` prints the statements"
# A whole class of SQLSTATE: 08 the connection, 53 the server has no room, 57P the server goes or comes.
_UNAVAILABLE_CLASSES: Final = ("08", "53", "57P")
_UNAVAILABLE: Final = frozenset({"25006", "3D000", "28000", "28P01"})
# A refused connection has no SQLSTATE, only the server's words; in another language it counts as unavailable.
_AUTHENTICATION_STATES: Final = frozenset({"28000", "28P01"})
_AUTHENTICATION: Final = re.compile(
    r"password authentication failed|no pg_hba\.conf entry|authentication failed|no password supplied"
    r'|role "(?:[^"]|"")*" (?:does not exist|is not permitted to log in)'
)
_NOT_FOUND: Final = re.compile(r'database "(?:[^"]|"")*" does not exist')
_NO_CONNECT: Final = "permission denied for database"
_USER: Final = re.compile(r'\b(user|role) "(?:[^"]|"")*"')
_NO_SUCH_OBJECT: Final = frozenset({"3F000", "42P01", "42883", "42703"})
_BAD_TEXT: Final = frozenset({"22021", "22P05"})
_BAD_VALUE: Final = frozenset({"22003", "22007", "22008", "22023"})


def translate(exc: BaseException, *, address: str) -> BaseException:
    """Return the typed error that an exception of psycopg means, or the exception itself.

    Serialization failures, deadlocks, lock timeouts and cancels stay what they are: they belong to the caller's transaction.

    Args:
        exc: What a statement or a connect raised.
        address: host:port/dbname for the message; never a user or a password.
    """
    if not isinstance(exc, psycopg.Error):
        return exc
    state = exc.sqlstate
    if state is None:
        return _without_state(exc, address)
    if state in SQLSTATES:
        return _by_function(exc, SQLSTATES[state])
    if state in ("23514", "23505"):
        return _by_constraint(exc)
    if state in _UNAVAILABLE or state.startswith(_UNAVAILABLE_CLASSES):
        return _unavailable(exc, address)
    return _by_state(exc, state, address)


def _without_state(exc: psycopg.Error, address: str) -> BaseException:
    """Client-side errors: a lost or refused connection, or a value that cannot be sent."""
    if isinstance(exc, psycopg.OperationalError):
        return _unavailable(exc, address)
    if isinstance(exc, psycopg.DataError) and "NUL" in str(exc):
        return InvalidOption("a text holds the character NUL, which PostgreSQL cannot keep", hint="Remove the character")
    return exc


def _unavailable(exc: psycopg.Error, address: str) -> TailraceError:
    lines = str(exc).strip().splitlines()
    said = exc.diag.message_primary or (lines[0].removeprefix("connection failed: ") if lines else type(exc).__name__)
    if exc.sqlstate in _AUTHENTICATION_STATES or (exc.sqlstate is None and _AUTHENTICATION.search(said)):
        return AuthenticationFailed(
            f"database {address}: {_USER.sub(_nameless, said)}",
            hint="Correct user and password in the connection string, or let the server accept them",
        )
    if exc.sqlstate == "3D000" or (exc.sqlstate is None and _NOT_FOUND.search(said)):
        return DatabaseNotFound(f"database {address}: {said}", hint="Correct the name of the database, or create it")
    if exc.sqlstate is None and _NO_CONNECT in said:
        return PrivilegeMissing(f"database {address}: {said}", hint="Grant connect on the database to the user")
    return DatabaseUnavailable(f"database {address}: {said}", hint="Check that it runs and that address and secret are right")


def _nameless(found: re.Match[str]) -> str:
    return f"the {found[1]}"


def _by_function(exc: psycopg.Error, error: type[TailraceError]) -> TailraceError:
    diag = exc.diag
    problem = diag.message_primary or str(exc)
    return error(problem.removeprefix(f"{diag.column_name}: "), field=diag.column_name, hint=diag.message_hint)


def _by_constraint(exc: psycopg.Error) -> BaseException:
    rule = _RULES.get(exc.diag.constraint_name or "")
    return exc if rule is None else rule.error(rule.problem, field=rule.field, hint=rule.hint)


def _by_state(exc: psycopg.Error, state: str, address: str) -> BaseException:
    diag = exc.diag
    message = diag.message_primary or str(exc)
    if state in _NO_SUCH_OBJECT:
        return SchemaTooOld(f"database {address}: {message}", hint=_MIGRATE)
    if state == "42501":
        return PrivilegeMissing(f"database {address}: {message}", hint=_GRANT)
    if state in _BAD_TEXT:
        return InvalidPayload("holds a character that PostgreSQL cannot keep, such as NUL", field="payload", hint="Remove it")
    if state == "22P02" and "json" in message:
        return InvalidPayload("is no valid JSON", field="payload", hint="NaN and Infinity are no JSON either")
    if state in _BAD_VALUE:
        return InvalidOption(message, field=diag.column_name, hint="Give a value in the documented range")
    if state == "23502" and diag.column_name:
        return InvalidOption("must not be null", field=diag.column_name, hint="Give a value or leave it out")
    return exc


class translated:  # noqa: N801 - used like a function: `with translated(address):`
    """A context manager, sync and async, that raises what `translate` makes of a psycopg error."""

    def __init__(self, address: str) -> None:
        """Remember the address for messages.

        Args:
            address: host:port/dbname.
        """
        self._address = address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        if exc is not None:
            better = translate(exc, address=self._address)
            if better is not exc:
                raise better from exc

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        self.__exit__(kind, exc, trace)
