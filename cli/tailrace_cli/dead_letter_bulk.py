"""Changes of many dead letters at the command line: the question before, the progress, and a Ctrl-C that leaves whole batches."""

from __future__ import annotations

import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import click

from tailrace.admin import AdminUsing
from tailrace.dead_letters import BulkChange
from tailrace_cli.failures import ExitStatus
from tailrace_cli.invocation import Invocation
from tailrace_cli.listing import dry_run_option, yes_option
from tailrace_cli.progress import Progress, progress_of

__all__ = ["Bulk", "bulk_options"]

F = TypeVar("F", bound=Callable[..., Any])

_PAST = {"requeue": "requeued", "resolve": "resolved", "delete": "deleted", "note": "noted"}
_MOST_LINES = 20


def bulk_options(function: F) -> F:
    """Add what changes of many take besides their filter."""
    for option in (
        click.option("--anew", is_flag=True, help="Begin anew instead of going on with the same command that was broken off."),
        click.option("--throttle", type=float, metavar="N", help="At most N a second."),
        click.option("--max-jobs", type=int, metavar="N", help="At most N, oldest failures first."),
        click.option("--all", "everything", is_flag=True, help="All that are dead."),
    ):
        function = option(function)
    return dry_run_option(yes_option(function))


class Bulk:
    """One such command."""

    def __init__(
        self,
        verb: str,
        which: dict[str, Any],
        how: dict[str, Any],
        *,
        everything: bool,
        max_jobs: int | None,
        throttle: float | None,
        anew: bool,
        dry_run: bool,
        yes: bool,
    ) -> None:
        """Take what was typed.

        Args:
            verb: requeue, resolve, delete or note.
            which: The filter.
            how: Options of the verb.
            everything: --all.
            max_jobs: The most to change.
            throttle: The most in a second.
            anew: Do not go on with an old one.
            dry_run: Change nothing.
            yes: Do not ask.
        """
        self._verb, self._which, self._how, self._everything = verb, which, how, everything
        self._bounds = {"max_jobs": max_jobs, "throttle": throttle, "anew": anew}
        self.dry_run, self.yes = dry_run, yes

    def refuse_beside_ids(self) -> None:
        """Refuse filters and bounds where ids are given.

        Raises:
            click.UsageError: There are some.
        """
        names = [*self._which, *(name for name, value in self._bounds.items() if value), *(["all"] if self._everything else [])]
        if names:
            raise click.UsageError(f"--{names[0].replace('_', '-')} cannot stand beside ids: give ids or filters")

    def carry_out(self, invocation: Invocation) -> int:
        """Count, ask, change, tell; return the exit status.

        Args:
            invocation: Prints.

        Raises:
            click.UsageError: Nothing narrows the set, or nobody can be asked.
        """
        if not self._which and not self._everything:
            raise click.UsageError("say which: give ids, a filter, or --all")
        which = {"state": "dead", **self._which} if self._everything else self._which
        result = invocation.administer(lambda admin: self._work(invocation, admin, which))
        self._tell(invocation, result)
        if not result.finished:
            return ExitStatus.INTERRUPTED
        return ExitStatus.FAILED if result.failed else ExitStatus.DONE

    def _work(self, invocation: Invocation, admin: AdminUsing, which: dict[str, Any]) -> BulkChange:
        words = {**which, **self._how, **self._bounds}
        change = partial(getattr(admin.dead_letters, self._verb), *([None] if self._verb == "note" else []), **words)
        looked: BulkChange = change(dry_run=True)
        if self.dry_run or looked.done == 0:
            return looked if self.dry_run else dataclasses.replace(looked, dry_run=False)
        invocation.confirm(f"This {self._verb}s {looked.done:,} dead letters{_warning(self._verb, self._how)}", yes=self.yes)
        with _interruptible() as stop, progress_of(invocation, _PAST[self._verb], looked.done) as bar:
            result: BulkChange = change(progress=_feed(invocation, bar), stop=stop.is_set)
            return result

    def _tell(self, invocation: Invocation, result: BulkChange) -> None:
        for problem in result.problems[:_MOST_LINES]:
            invocation.warn(f"tailrace: {problem.job_id}: {problem.outcome}: {problem.detail}")
        if result.failed > _MOST_LINES:
            invocation.warn(f"tailrace: {result.failed:,} in all could not be {_PAST[self._verb]}")
        if not result.finished:
            invocation.say(f"stopped after {result.done:,}; the same command goes on from there")
        record = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        record["outcome"] = f"would be {_PAST[self._verb]}" if result.dry_run else _PAST[self._verb]
        for name in ("tasks", "problems"):
            record[name] = [dataclasses.asdict(item) for item in record[name]]
        if invocation.form in ("table", "wide"):
            order = ("outcome", "done", "failed", "tasks", "operation", "as_of", "resumed", "finished")
            record = {name: record[name] for name in order if record[name] not in (None, [], ())}
        invocation.show_one(record, key="done")


def _warning(verb: str, how: dict[str, Any]) -> str:
    if verb == "delete":
        return " for good"
    return " and replaces waiting jobs that hold their keys" if how.get("force") else ""


def _feed(invocation: Invocation, bar: Progress) -> Callable[[BulkChange], None]:
    told = False

    def progress(result: BulkChange) -> None:
        nonlocal told
        if result.resumed and not told:
            invocation.say(
                f"going on with operation {result.operation} of {result.as_of:%Y-%m-%d %H:%M:%S %Z}; --anew begins anew"
            )
        told = True
        bar.show(result.done, result.failed)

    return progress


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or TERM into a wish to stop; the second ends the command at once, with whole batches too."""
    stop = threading.Event()

    def wish(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    old = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
