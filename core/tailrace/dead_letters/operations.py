"""A change of many dead letters, batch by batch: what to send next, how long to wait, what it has done so far.

It sends nothing itself: `words` drives it on a connection that blocks, `async_words` on one that is awaited. Each batch
commits by itself, so stopping anywhere leaves whole batches, and the same change goes on later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tailrace.db import Statement
from tailrace.dead_counters import Tally
from tailrace.dead_letters.filters import DeadLetterFilter, parted
from tailrace.dead_letters.records import BulkChange, TaskCount
from tailrace.dead_letters.statements import Begun, DeadLetterStatements, Step
from tailrace.errors import InvalidOption

__all__ = ["Operation"]

_BATCH: Final = 1000
"""Some 35 ms and 4 MB of the server's log, which commits of others that come just then wait for."""
_MOST_PROBLEMS: Final = 1000
_ASK_EACH_SECONDS: Final = 0.2


class Operation:
    """One change of many."""

    def __init__(self, statements: DeadLetterStatements, tally: Tally, verb: str, words: Mapping[str, Any]) -> None:
        """Check the words; nothing is sent.

        Args:
            statements: Of the schema.
            tally: Counts what is done, for the metrics.
            verb: requeue, delete, resolve or note.
            words: Filter, bounds and options as keyword arguments.

        Raises:
            InvalidOption: Nothing narrows the set and no state is named, or an argument is wrong.
        """
        self._statements, self._tally, self._verb = statements, tally, verb
        self._how, bulk, which = parted(verb, words)
        self._which = DeadLetterFilter.of(which)
        if not {name for name, value in which.items() if value is not None}:
            raise InvalidOption("give ids or a filter", field=verb, hint="For all dead letters say state='dead'")
        _check_state(verb, self._which.state)
        self._max_jobs, self._anew = bulk.get("max_jobs"), bool(bulk.get("anew"))
        self.progress: Callable[[BulkChange], None] | None = bulk.get("progress")
        """Called after each batch."""
        self.dry_run = bool(bulk.get("dry_run"))
        """Only count."""
        self._stop: Callable[[], bool] | None = bulk.get("stop")
        self._throttle = _positive("throttle", bulk.get("throttle"))
        if self._max_jobs is not None and (type(self._max_jobs) is not int or self._max_jobs < 1):
            raise InvalidOption("must be a whole number above 0", field="max_jobs", hint="Leave it out for all")
        self.result = BulkChange(verb, 0, 0, (), finished=False, dry_run=self.dry_run)
        """What it has done so far."""
        self._due = time.monotonic()

    # ---- what to send ------------------------------------------------------------------------------------------------
    def count(self) -> Statement[tuple[int, tuple[TaskCount, ...]]]:
        """How many the filter selects now, and the tasks of most of them."""
        return self._statements.count(self._which)

    def begin(self) -> Statement[Begun]:
        """The first thing to send."""
        return self._statements.begin(self._verb, self._which, self._how, max_jobs=self._max_jobs, anew=self._anew)

    def step(self) -> Statement[Step]:
        """The next batch."""
        return self._statements.step(self._number, self._batch)

    def stop(self) -> Statement[str]:
        """Sent when the rest is left for later; not needed for the rest to be found."""
        return self._statements.stop(self._number)

    # ---- what came back ----------------------------------------------------------------------------------------------
    def counted(self, found: tuple[int, tuple[TaskCount, ...]]) -> BulkChange:
        """Take the answer to `count`; return the result of a dry run.

        Args:
            found: What came.
        """
        n = found[0] if self._max_jobs is None else min(found[0], self._max_jobs)
        self.result = replace(self.result, done=n, tasks=found[1], finished=True)
        return self.result

    def begun(self, answer: Begun) -> None:
        """Take the answer to `begin`.

        Args:
            answer: What came.
        """
        self.result = replace(
            self.result,
            operation=answer.operation,
            as_of=answer.as_of,
            resumed=answer.resumed,
            done=answer.done,
            failed=answer.failed,
        )

    def took(self, answer: Step) -> None:
        """Take the answer to `step`: count it, and tell the progress.

        Args:
            answer: What came.
        """
        self._tally.add(self._verb, answer.counts)
        problems = (self.result.problems + answer.problems)[:_MOST_PROBLEMS]
        self.result = replace(
            self.result, done=answer.done, failed=answer.failed, problems=problems, finished=answer.state != "running"
        )
        if self.progress is not None:
            self.progress(self.result)

    def pauses(self) -> Iterator[float]:
        """Yield what to sleep before the next batch, in seconds: the throttle is kept and a wish to stop is soon heard."""
        now = time.monotonic()
        if self._throttle is not None:
            self._due = max(self._due, now) + self._batch / self._throttle
        while not self.stopped and (left := self._due - time.monotonic()) > 0:
            yield min(left, _ASK_EACH_SECONDS)

    @property
    def stopped(self) -> bool:
        """Whether the rest should be left for later."""
        return self._stop is not None and self._stop()

    @property
    def _number(self) -> int:
        if self.result.operation is None:
            raise RuntimeError("an operation that has not begun has no batches")
        return self.result.operation

    @property
    def _batch(self) -> int:
        """Half a second's worth under a throttle, so that it is even and a stop is soon heard."""
        return _BATCH if self._throttle is None else max(1, min(_BATCH, int(self._throttle / 2)))


def _check_state(verb: str, state: str) -> None:
    """Refuse what the database would, so that a dry run does too."""
    if verb in ("requeue", "resolve") and state != "dead":
        raise InvalidOption("only dead ones can be changed", field="state", hint="Leave it out")
    if verb == "delete" and state in ("requeued", "all"):
        raise InvalidOption("those whose jobs live cannot be deleted", field="state", hint="Give dead or resolved")


def _positive(field: str, value: float | None) -> float | None:
    if value is not None and (type(value) not in (int, float) or not value > 0):
        raise InvalidOption("must be a number above 0", field=field, hint="So many a second; leave it out for no limit")
    return value
