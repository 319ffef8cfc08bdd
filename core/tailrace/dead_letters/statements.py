"""The statements behind the words on dead letters: pure, one call each.

Looks and changes are SQL functions, so that a notebook, a runbook and the command line do the same. A page reads a bounded
number of index entries: where what is asked for is rare it may have fewer rows than its limit and still go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from tailrace.db import Blocks, Jsonb, Statement
from tailrace.dead_letters.filters import DeadLetterFilter, parted, sql_options
from tailrace.dead_letters.records import DeadLetter, DeadLetterInfo, DeadLetterStats, Problem, TaskCount
from tailrace.errors import InvalidOption, NotFound
from tailrace.jobs.records import Change
from tailrace.pages import DEFAULT_LIMIT, Page, check_id, check_limit, cursor, read_cursor

__all__ = ["Begun", "DeadLetterStatements", "Done", "Step", "how_of"]

T = TypeVar("T")
_LISTS = [field.name for field in fields(DeadLetter)]
_ERRORS, _HISTORY = _LISTS.index("errors"), _LISTS.index("history")
_TASKS = [field.name for field in fields(DeadLetterStats)].index("tasks")
_MOST_IDS = 1000
_LOOKED_AT = 500  # rows for a page; they may lie on as many pages of the table, 15 µs each where they are in the system's cache


@dataclass(frozen=True)
class Done:
    """What became of given ones, and how many of each queue and task there were."""

    changes: tuple[Change, ...]
    counts: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Begun:
    """A change of many that may take its batches."""

    operation: int
    as_of: datetime
    done: int
    failed: int
    resumed: bool


@dataclass(frozen=True)
class Step:
    """What one batch did, and how the whole stands."""

    state: str
    done: int
    failed: int
    counts: tuple[tuple[str, str, int], ...]
    problems: tuple[Problem, ...]


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
            return _whole(rows[0])

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
        params = self._page_params(which, limit, after)
        return Statement(
            self._blocks["dead_letter.list"], params, lambda rows: _page(rows, limit, lambda row: DeadLetterInfo(*row))
        )

    def export(self, which: DeadLetterFilter, *, limit: int, after: str | None) -> Statement[Page[DeadLetter]]:
        """The same page with everything.

        Args:
            which: The filter.
            limit: 1 to 500.
            after: The cursor of the page before.
        """
        params = self._page_params(which, limit, after)
        return Statement(self._blocks["dead_letter.export"], params, lambda rows: _page(rows, limit, _whole))

    def _page_params(self, which: DeadLetterFilter, limit: int, after: str | None) -> dict[str, Any]:
        check_limit(limit)
        last = read_cursor(after, str, int)
        return {
            "filter": Jsonb(which.as_json()),
            "after_time": None if last is None else _cursor_time(last[0]),
            "after_id": None if last is None else last[1],
            "n": limit + 1,
            "examine": _LOOKED_AT,
        }

    def count(self, which: DeadLetterFilter) -> Statement[tuple[int, tuple[TaskCount, ...]]]:
        """How many dead letters a list of this filter has in all, and which ten tasks have the most of them.

        Args:
            which: The filter.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> tuple[int, tuple[TaskCount, ...]]:
            found = rows[0][0]
            return int(found["n"]), tuple(TaskCount(item["task"], item["dead"]) for item in found["tasks"])

        return Statement(self._blocks["dead_letter.count"], {"filter": Jsonb(which.as_json())}, read)

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

    def change(self, verb: str, job_ids: int | Iterable[int], how: Mapping[str, Any]) -> Statement[Done]:
        """Change dead letters by their ids; all of them or, when one cannot be, none.

        Args:
            verb: requeue, delete, resolve or note.
            job_ids: One id or up to 1,000.
            how: Options of the verb.
        """
        ids = sorted({check_id(one, field="job_id") for one in ([job_ids] if isinstance(job_ids, int) else job_ids)})
        if not 1 <= len(ids) <= _MOST_IDS:
            raise InvalidOption(f"give 1 to {_MOST_IDS} ids", field="job_id", hint="Call it several times")

        def read(rows: Sequence[tuple[Any, ...]]) -> Done:
            counts = Counter((queue, task) for _, _, queue, task in rows)
            changes = tuple(Change(job_id, outcome) for job_id, outcome, _, _ in rows)
            return Done(changes, tuple((queue, task, n) for (queue, task), n in counts.items()))

        params = {"verb": verb, "ids": ids, "options": Jsonb(sql_options(how))}
        return Statement(self._blocks["dead_letter.change"], params, read)

    def add(self, queue: str, task: str, payload: Mapping[str, Any], options: Mapping[str, Any]) -> Statement[int]:
        """Add a dead letter by hand.

        Args:
            queue: Its queue.
            task: Its task.
            payload: The task's parameters.
            options: See the SQL function.
        """
        params = {"queue": queue, "task": task, "payload": Jsonb(dict(payload)), "options": Jsonb(sql_options(options))}
        return Statement(self._blocks["dead_letter.add"], params, lambda rows: int(rows[0][0]))

    def begin(
        self, verb: str, which: DeadLetterFilter, how: Mapping[str, Any], *, max_jobs: int | None, anew: bool
    ) -> Statement[Begun]:
        """Begin a change of all that a filter selects now, or go on with one that was broken off.

        Args:
            verb: requeue, delete, resolve or note.
            which: The filter.
            how: Options of the verb.
            max_jobs: The most to change; None = all.
            anew: Do not go on with an old one.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> Begun:
            begun = rows[0][0]
            as_of = datetime.fromisoformat(begun["as_of"])
            return Begun(begun["id"], as_of, begun["done"], begun["failed"], begun["resumed"])

        options = {**sql_options(how), **({} if max_jobs is None else {"max_jobs": max_jobs})}
        params = {"verb": verb, "filter": Jsonb(which.as_json()), "options": Jsonb(options), "anew": anew}
        return Statement(self._blocks["dead_letter.begin"], params, read)

    def step(self, operation: int, batch: int) -> Statement[Step]:
        """One batch of a change of many.

        Args:
            operation: Its number.
            batch: The most rows.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> Step:
            report = rows[0][0]
            counts = tuple((item["queue"], item["task"], item["n"]) for item in report["counts"])
            problems = tuple(Problem(item["job_id"], item["outcome"], item["detail"]) for item in report["problems"])
            return Step(report["state"], report["done"], report["failed"], counts, problems)

        return Statement(self._blocks["dead_letter.step"], {"operation": operation, "batch": batch}, read)

    def stop(self, operation: int) -> Statement[str]:
        """Stop a change of many; the same one begun again goes on.

        Args:
            operation: Its number.
        """
        return Statement(self._blocks["dead_letter.stop"], {"operation": operation}, lambda rows: str(rows[0][0]))


def how_of(verb: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a change of given ones.

    Args:
        verb: requeue, delete, resolve or note.
        words: Keyword arguments.

    Raises:
        InvalidOption: One belongs to a change of many, or is unknown.
    """
    how, bulk, which = parted(verb, words)
    for name in (*bulk, *which):
        raise InvalidOption("cannot stand beside ids", field=name, hint="Give ids or a filter, not both")
    return how


def _whole(row: Sequence[Any]) -> DeadLetter:
    values = list(row)
    for place in (_ERRORS, _HISTORY):
        values[place] = tuple(values[place] or ())
    return DeadLetter(*values)


def _page(rows: Sequence[tuple[Any, ...]], limit: int, row: Callable[[Sequence[Any]], T]) -> Page[T]:
    """The first two columns say how far the walk came; a row without a job says only that."""
    found = [values[2:] for values in rows if values[2] is not None]
    items = tuple(row(values) for values in found[:limit])
    if len(found) > limit:
        last: Any = items[-1]
        return Page(items, cursor(*_key(last)))
    until_time, until_id = rows[0][:2] if rows else (None, None)
    return Page(items, None if until_id is None else cursor(until_time.astimezone(UTC).isoformat(), until_id))


def _key(item: DeadLetterInfo) -> tuple[str, int]:
    return item.failed_at.astimezone(UTC).isoformat(), item.job_id


def _cursor_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption("is no cursor of this list", field="after", hint="Give the `after` of the page before") from None
