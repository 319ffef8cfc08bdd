"""What can go wrong, as types.

Callers tell cases apart by class, never by the words of a message. `tailrace.db.refusals` makes these from what the
database says; handlers raise the last three to say how a run ended.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import ClassVar, Final

from tailrace.names.conditions import Reason

__all__ = [
    "LONGEST_SECONDS",
    "AuthenticationFailed",
    "CompletionNotCommitted",
    "Conflict",
    "DatabaseChanged",
    "DatabaseNotFound",
    "DatabaseUnavailable",
    "InvalidDSN",
    "InvalidOption",
    "InvalidPayload",
    "LeaseLost",
    "MigrationFailed",
    "MigrationPending",
    "NoRetry",
    "NotFound",
    "PrivilegeMissing",
    "RetryAfter",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "Snooze",
    "TailraceError",
    "UnknownApp",
    "UnknownTask",
    "duration_seconds",
]

LONGEST_SECONDS: Final = 366 * 86_400.0
"""The longest duration anywhere: a leap year."""


class TailraceError(Exception):
    """The base of everything Tailrace raises; `str()` reads "field: problem (remedy)".

    Attributes:
        field: The argument, option or column that is at fault, or None.
        hint: What to do about it, or None.
        retryable: Whether the same call may succeed later with nothing changed.
        reason: What the condition of a JobQueue says of it, or None where none does.
    """

    retryable: bool = False
    reason: ClassVar[Reason | None] = None

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        """Say what is wrong.

        Args:
            message: The problem; the field is put before it unless it begins with it already.
            field: The argument, option or column at fault.
            hint: The remedy, a short imperative sentence.
        """
        self.field = field
        self.hint = hint
        text = message if field is None or message.startswith(f"{field}:") else f"{field}: {message}"
        super().__init__(text if hint is None else f"{text} ({hint})")


class InvalidPayload(TailraceError):
    """The payload does not fit the task, or is no JSON that PostgreSQL can keep."""


class InvalidOption(TailraceError, ValueError):
    """An option or argument is unknown, of the wrong type or out of its range."""


class UnknownTask(TailraceError):
    """The application has no task of this name."""


class UnknownApp(TailraceError):
    """`module:attribute` does not lead to an App."""


class NotFound(TailraceError, LookupError):
    """There is no such job, dead letter, queue or lease."""


class Conflict(TailraceError):
    """The thing exists, but its state forbids the operation."""


class LeaseLost(TailraceError):
    """The job is no longer this worker's: another may run it, so nothing was written."""


class CompletionNotCommitted(TailraceError):
    """A handler completed its job inside a transaction that was rolled back."""

    retryable = True


class SchemaTooOld(TailraceError):
    """The database lacks migrations that this release needs."""

    retryable = True
    reason = Reason.SCHEMA_TOO_OLD


class SchemaMissing(SchemaTooOld):
    """The database has no tables of Tailrace in this schema."""

    reason = Reason.SCHEMA_MISSING


class SchemaTooNew(TailraceError):
    """The database has been migrated beyond what this release can work with."""

    reason = Reason.SCHEMA_TOO_NEW


class MigrationPending(TailraceError):
    """The schema can be worked with and lacks migrations that somebody has to apply."""

    retryable = True
    reason = Reason.MIGRATION_PENDING


class MigrationFailed(TailraceError):
    """A migration was tried and failed; nothing of it was kept."""

    retryable = True
    reason = Reason.MIGRATION_FAILED


class PrivilegeMissing(TailraceError):
    """The user of the connection lacks a right in the database."""

    reason = Reason.PRIVILEGE_MISSING


class InvalidDSN(InvalidOption):
    """A connection string is none, or has a keyword, value or host that is not allowed where it stands."""

    reason = Reason.INVALID_DSN


class DatabaseChanged(TailraceError):
    """A connection string leads to another database than before."""

    reason = Reason.DATABASE_CHANGED


class DatabaseUnavailable(TailraceError, ConnectionError):
    """The database cannot be reached, or the connection broke."""

    retryable = True
    reason = Reason.DATABASE_UNAVAILABLE


class AuthenticationFailed(DatabaseUnavailable):
    """The server refuses the user or the password."""

    reason = Reason.AUTHENTICATION_FAILED


class DatabaseNotFound(DatabaseUnavailable):
    """The server answers and has no such database."""

    reason = Reason.DATABASE_NOT_FOUND


class NoRetry(Exception):
    """Raised by a handler: do not run this job again; it goes to the dead letters now."""

    def __init__(self, reason: str = "") -> None:
        """Give the reason, which the dead letter keeps.

        Args:
            reason: A short text for people.
        """
        self.reason = reason
        super().__init__(reason)


class RetryAfter(Exception):
    """Raised by a handler: run this job again after exactly this time; costs an attempt."""

    def __init__(self, delay: float | timedelta, reason: str = "") -> None:
        """Give the delay.

        Args:
            delay: Seconds or a timedelta, not negative.
            reason: A short text for people, kept in the job's errors.

        Raises:
            InvalidOption: The delay is negative, not finite or longer than 366 days.
        """
        self.seconds = duration_seconds(delay)
        self.reason = reason
        super().__init__(reason or f"again in {self.seconds:g} s")


class Snooze(Exception):
    """Raised by a handler: it is too early; run this job again after this time, at no cost."""

    def __init__(self, delay: float | timedelta) -> None:
        """Give the delay.

        Args:
            delay: Seconds or a timedelta, not negative.

        Raises:
            InvalidOption: The delay is negative, not finite or longer than 366 days.
        """
        self.seconds = duration_seconds(delay)
        super().__init__(f"again in {self.seconds:g} s")


def duration_seconds(value: object, *, field: str = "delay") -> float:
    """Return a duration in seconds.

    Args:
        value: Seconds, or a timedelta.
        field: Its name, for the message.

    Raises:
        InvalidOption: It is no duration, negative, not finite, or longer than 366 days.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value) if -1 <= value <= LONGEST_SECONDS else math.inf
    else:
        raise InvalidOption(f"must be a duration, not {type(value).__name__}", field=field, hint="Give seconds or a timedelta")
    if not 0 <= seconds <= LONGEST_SECONDS:
        raise InvalidOption("must be between 0 and 366 days", field=field, hint="Give seconds or a timedelta")
    return seconds
