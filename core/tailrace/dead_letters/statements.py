"""The statements behind the words on dead letters: pure, one call each.

Lists walk the index of each queue and state, newest failure first; a requeue is the SQL function, which keeps the one
rule that matters: a job lives at most once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from tailrace.db import Blocks, Statement
from tailrace.dead_letters.records import (
    DEAD_LETTER_STATES,
    REASONS,
    DeadLetter,
    DeadLetterInfo,
    DeadLetterStats,
    TaskCount,
)
from tailrace.errors import InvalidOption, NotFound
from tailrace.jobs.records import Change
from tailrace.pages import DEFAULT_LIMIT, Page, check_id, check_limit, page_reader, read_cursor

__all__ = ["DeadLetterFilter", "DeadLetterStatements"]

_LISTS = [field.name for field in fields(DeadLetter)]
_ERRORS, _HISTORY = _LISTS.index("errors"), _LISTS.index("history")
_TASKS = [field.name for field in fields(DeadLetterStats)].index("tasks")
_MOST_IDS = 1000


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
    """With this text in errors or notes, in any case of letters."""

    def params(self) -> dict[str, Any]:
        """The values for a statement.

        Raises:
            InvalidOption: State or reason is none, or a time has no zone.
        """
        if self.state not in (*DEAD_LETTER_STATES, "all"):
            raise InvalidOption("is unknown", field="state", hint=f"one of {', '.join(DEAD_LETTER_STATES)} or all")
        if self.reason is not None and self.reason not in REASONS:
            raise InvalidOption("is unknown", field="reason", hint=f"one of {', '.join(REASONS)}")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("failed_after", "failed_before"):
            if values[name] is not None and values[name].tzinfo is None:
                raise InvalidOption("must have a time zone", field=name, hint="Use an aware datetime")
        states = list(DEAD_LETTER_STATES) if self.state == "all" else [self.state]
        del values["state"]
        return {**values, "states": states}


class DeadLetterStatements:
    """Builds statements for one schema."""

    def __init__(self, blocks: Blocks) -> None:
        """Take the SQL.

        Args:
            blocks: Of the database's schema.
        """
        self._blocks = blocks

    def get(self, job_id: int) -> Statement[DeadLetter]:
        """One dead letter.

        Args:
            job_id: The job's id.
        """
        check_id(job_id, field="job_id")

        def read(rows: Sequence[tuple[Any, ...]]) -> DeadLetter:
            if not rows:
                raise NotFound(f"no dead letter {job_id}", field="job_id", hint="its job may live, or its retention be over")
            values = list(rows[0])
            for place in (_ERRORS, _HISTORY):
                values[place] = tuple(values[place] or ())
            return DeadLetter(*values)

        return Statement(self._blocks["dead_letter.get"], {"job_id": job_id}, read)

    def list(
        self, which: DeadLetterFilter, *, limit: int = DEFAULT_LIMIT, after: str | None = None
    ) -> Statement[Page[DeadLetterInfo]]:
        """A page of dead letters, newest failure first.

        Args:
            which: The filter.
            limit: 1 to 500.
            after: The cursor of the page before.
        """
        check_limit(limit)
        last = read_cursor(after, str, int)
        params = {
            **which.params(),
            "after_time": None if last is None else _cursor_time(last[0]),
            "after_id": None if last is None else last[1],
            "n": limit + 1,
        }
        reader = page_reader(lambda row: DeadLetterInfo(*row), _key, limit)
        return Statement(self._blocks["dead_letter.list"], params, reader)

    def count(self, which: DeadLetterFilter) -> Statement[int]:
        """How many dead letters a list of this filter has in all.

        Args:
            which: The filter.
        """
        return Statement(self._blocks["dead_letter.count"], which.params(), lambda rows: int(rows[0][0]))

    def stats(self, queue: str | None) -> Statement[DeadLetterStats]:
        """Counts.

        Args:
            queue: One queue; None = all.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> DeadLetterStats:
            values = list(rows[0])
            values[_TASKS] = tuple(TaskCount(item["task"], item["dead"]) for item in values[_TASKS])
            return DeadLetterStats(*values)

        return Statement(self._blocks["dead_letter.stats"], {"queue": queue}, read)

    def requeue(self, job_ids: int | Iterable[int], *, force: bool) -> Statement[tuple[Change, ...]]:
        """Put jobs back under their ids; all of them or, when one cannot be, none.

        Args:
            job_ids: One id or up to 1,000.
            force: Replace a waiting holder of the same key.
        """
        ids = sorted({check_id(one, field="job_id") for one in ([job_ids] if isinstance(job_ids, int) else job_ids)})
        if not 1 <= len(ids) <= _MOST_IDS:
            raise InvalidOption(f"give 1 to {_MOST_IDS} ids", field="job_id", hint="Requeue in several calls")
        return Statement(
            self._blocks["dead_letter.requeue"],
            {"ids": ids, "force": force},
            lambda rows: tuple(Change(job_id, outcome) for job_id, outcome in rows),
        )


def _key(item: DeadLetterInfo) -> tuple[str, int]:
    return item.failed_at.astimezone(UTC).isoformat(), item.job_id


def _cursor_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption("is no cursor of this list", field="after", hint="Give the `after` of the page before") from None
