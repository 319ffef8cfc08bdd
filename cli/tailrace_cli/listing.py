"""Lists and batches: pages up to a limit, and the same change for many ids.

A list ends at its limit and says so on stderr, with the cursor for more. A batch goes on after a row that fails, tells each
failure, and ends with status 1 then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click

from tailrace.admin import AdminUsing
from tailrace.errors import DatabaseUnavailable, TailraceError
from tailrace.jobs import Change
from tailrace.pages import DEFAULT_LIMIT, MAX_LIMIT, Page
from tailrace_cli.arguments import ID
from tailrace_cli.failures import ExitStatus, describe
from tailrace_cli.invocation import Invocation
from tailrace_cli.output import Column

__all__ = ["Pages", "change_each", "dry_run_option", "ids_argument", "page_options", "yes_option"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def page_options(function: F) -> F:
    """Add --limit, --all and --after to a list."""
    function = click.option("--after", metavar="CURSOR", help="Go on behind a page; the cursor was told at its end.")(function)
    function = click.option("--all", "everything", is_flag=True, help="All rows, however many.")(function)
    return click.option("--limit", type=int, default=DEFAULT_LIMIT, show_default=True, help=f"How many rows, 1 to {MAX_LIMIT}.")(
        function
    )


def yes_option(function: F) -> F:
    """Add --yes, which answers the question."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


def dry_run_option(function: F) -> F:
    """Add --dry-run, which changes nothing."""
    return click.option("-n", "--dry-run", is_flag=True, help="Say what would be done and change nothing.")(function)


def ids_argument(function: F) -> F:
    """Add the argument ID…; `-` reads ids from stdin."""
    return click.argument("ids", metavar="ID...", type=ID, nargs=-1, required=True)(function)


@dataclass
class Pages(Generic[T]):
    """Reads pages until the limit, or to the end."""

    fetch: Callable[[int, str | None], Page[T]]
    """Gives a page for a limit and a cursor."""
    limit: int
    """The rows to read."""
    everything: bool
    """Read to the end."""
    after: str | None = None
    """The cursor to begin behind; when done, that of the next page, if there is one."""

    def __iter__(self) -> Iterator[T]:
        left = self.limit  # a page may be short and still go on
        while True:
            page = self.fetch(MAX_LIMIT if self.everything else left, self.after)
            self.after = page.after
            yield from page
            left -= len(page)
            if page.after is None or (left <= 0 and not self.everything):
                return

    def tell_rest(self, invocation: Invocation, shown: int) -> None:
        """Say on stderr that there are more rows.

        Args:
            invocation: Says it.
            shown: How many were printed.
        """
        if self.after is not None:
            first = "first is" if shown == 1 else f"first {shown} are"
            invocation.say(f"only the {first} shown; add --all for all, or --after {self.after} for the next")


def change_each(
    invocation: Invocation, ids: Sequence[int], change: Callable[[AdminUsing, int], Change | Sequence[Change]]
) -> int:
    """Change rows one by one, print what became of each and return the exit status.

    Args:
        invocation: Prints.
        ids: The rows.
        change: Does it for one row.
    """
    done: list[dict[str, Any]] = []
    status = ExitStatus.DONE

    def work(admin: AdminUsing) -> None:
        nonlocal status
        for one in ids:
            try:
                result = change(admin, one)
            except DatabaseUnavailable:
                raise
            except TailraceError as error:
                text, failed = describe(error, verbose=invocation.verbose)
                invocation.warn(f"tailrace: {one}: {text}")
                status = failed if len(ids) == 1 else ExitStatus.FAILED
                continue
            for item in [result] if isinstance(result, Change) else result:
                done.append({"id": item.target, "outcome": item.outcome, "at": item.at})

    try:
        invocation.administer(work)
    finally:
        columns = [Column("id", right=True), Column("outcome"), Column("at", wide=not any(row["at"] for row in done))]
        invocation.show_list(done, columns=columns, key="id", empty="nothing was changed")
    return status
