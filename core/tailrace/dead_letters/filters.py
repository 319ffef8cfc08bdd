"""Which dead letters, and how they are changed: the keyword arguments of the words, as the SQL functions take them.

The rules are checked by the database, which other languages ask too; here is what can be told before anything is sent.
Neighbours: `statements`, `operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypedDict

from tailrace.dead_letters.records import DEAD_LETTER_STATES, REASONS, BulkChange
from tailrace.errors import InvalidOption
from tailrace.jobs.statements import seconds_of

__all__ = [
    "BulkWords",
    "DeadLetterFilter",
    "FilterWords",
    "RequeueBulkWords",
    "RequeueWords",
    "ResolveBulkWords",
    "ResolveWords",
    "parted",
    "sql_options",
]


class FilterWords(TypedDict, total=False):
    """The filter of a list, as keyword arguments; see `DeadLetterFilter`."""

    queue: str | None
    task: str | None
    key: str | None
    tenant: str | None
    reason: str | None
    error_type: str | None
    fingerprint: str | None
    state: str
    failed_after: datetime | None
    failed_before: datetime | None
    text: str | None
    meta: Mapping[str, Any] | None


class RequeueWords(TypedDict, total=False):
    """How to requeue."""

    force: bool
    """Replace a waiting holder of the same key; a running one is never touched."""
    delay: float | timedelta | None
    """Due that much later; excludes run_at."""
    run_at: datetime | None
    """Due then; aware."""
    payload: Mapping[str, Any] | None
    """Another payload; the old one goes to the history."""
    set: Mapping[str, Any] | None
    """Values by path, such as {"customer.id": 7}; excludes payload."""
    note: str | None
    """Append this note."""


class ResolveWords(TypedDict, total=False):
    """How to resolve."""

    resolution: str | None
    """How it was dealt with; default "by hand"."""
    note: str | None
    """Append this note."""


class BulkWords(FilterWords, total=False):
    """What a change of many takes besides its filter."""

    max_jobs: int | None
    """Change at most so many."""
    dry_run: bool
    """Count them and change nothing."""
    throttle: float | None
    """At most so many a second."""
    progress: Callable[[BulkChange], None] | None
    """Called after each batch."""
    stop: Callable[[], bool] | None
    """Asked between batches, five times a second under a throttle: true leaves the rest for later."""
    anew: bool
    """Begin anew instead of going on with the same change that was broken off."""


class RequeueBulkWords(BulkWords, RequeueWords, total=False):
    """Filter, bounds and options of a requeue of many."""


class ResolveBulkWords(BulkWords, ResolveWords, total=False):
    """Filter, bounds and options of a resolve of many."""


@dataclass(frozen=True)
class DeadLetterFilter:
    """Which dead letters; what is None does not narrow."""

    queue: str | None = None
    """Of this queue."""
    task: str | None = None
    """Of this task."""
    key: str | None = None
    """With this key."""
    tenant: str | None = None
    """Of this tenant; empty = of none."""
    reason: str | None = None
    """Here for this reason."""
    error_type: str | None = None
    """With this kind of last error."""
    fingerprint: str | None = None
    """Of this kind of failure."""
    state: str = "dead"
    """dead, requeued, resolved, or `all`."""
    failed_after: datetime | None = None
    """Failed at this time or later; aware."""
    failed_before: datetime | None = None
    """Failed at this time or earlier; aware."""
    text: str | None = None
    """With this text in the values of its errors or in its notes, in any case of letters."""
    meta: Mapping[str, Any] | None = None
    """With these members in its meta."""

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> DeadLetterFilter:
        """Return the filter of keyword arguments.

        Args:
            words: As somebody gave them.

        Raises:
            InvalidOption: One is unknown.
        """
        known = [field.name for field in fields(cls)]
        for name in words:
            if name not in known:
                raise InvalidOption("is no filter of dead letters", field=name, hint=f"one of {', '.join(known)}")
        return cls(**words)

    def as_json(self) -> dict[str, Any]:
        """The filter as the SQL functions take it, without what does not narrow.

        Raises:
            InvalidOption: State or reason is none, or a time has no zone.
        """
        if self.state not in (*DEAD_LETTER_STATES, "all"):
            raise InvalidOption("is unknown", field="state", hint=f"one of {', '.join(DEAD_LETTER_STATES)} or all")
        if self.reason is not None and self.reason not in REASONS:
            raise InvalidOption("is unknown", field="reason", hint=f"one of {', '.join(REASONS)}")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("failed_after", "failed_before"):
            if values[name] is not None:
                values[name] = _time_text(name, values[name])
        return {name: value for name, value in values.items() if value is not None}


_BULK: Final = frozenset(BulkWords.__annotations__) - frozenset(FilterWords.__annotations__)
_HOW: Final = {
    "requeue": frozenset(RequeueWords.__annotations__),
    "resolve": frozenset(ResolveWords.__annotations__),
    "note": frozenset({"note"}),
    "delete": frozenset[str](),
}


def parted(verb: str, words: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return keyword arguments as options of the verb, bounds of a change of many, and filter.

    Args:
        verb: requeue, delete, resolve or note.
        words: As somebody gave them.
    """
    how = {name: value for name, value in words.items() if name in _HOW[verb] and value is not None}
    bulk = {name: value for name, value in words.items() if name in _BULK}
    which = {name: value for name, value in words.items() if name not in _HOW[verb] and name not in _BULK}
    return how, bulk, which


def sql_options(how: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a change as the SQL functions take them.

    Args:
        how: Keyword arguments, without what is None.

    Raises:
        InvalidOption: A duration or a time is none.
    """
    options = dict(how)
    for name in ("delay", "timeout"):
        if options.get(name) is not None:
            options[name] = seconds_of(options[name], field=name)
    if "run_at" in options:
        options["run_at"] = _time_text("run_at", options["run_at"])
    return options


def _time_text(field: str, value: datetime) -> str:
    if value.tzinfo is None:
        raise InvalidOption("must have a time zone", field=field, hint="Use an aware datetime")
    return value.astimezone(UTC).isoformat()
