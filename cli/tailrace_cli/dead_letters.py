"""`tailrace dead-letters` (alias `dlq`): look at jobs that cannot go on; `dead_letter_changes` puts them back or away."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import click

from tailrace.admin import AdminUsing
from tailrace.dead_letters import DeadLetter, DeadLetterInfo
from tailrace_cli import dead_letter_changes
from tailrace_cli.arguments import ID, NAME, read_ids
from tailrace_cli.dead_letter_filters import filter_options, read_filter
from tailrace_cli.failures import ExitStatus
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.listing import Pages, page_options
from tailrace_cli.output import Column

__all__ = ["add_to"]

_COLUMNS = (
    Column("job_id", right=True),
    Column("state", wide=True),
    Column("queue"),
    Column("task"),
    Column("reason"),
    Column("error_type"),
    Column("failed_at"),
    Column("error"),
    Column("total_attempts", wide=True, right=True),
    Column("dead_count", wide=True, right=True),
    Column("requeued_count", wide=True, right=True),
    Column("key", wide=True),
    Column("tenant", wide=True),
    Column("first_failed_at", wide=True),
    Column("fingerprint", wide=True),
)
_LONGEST_ERROR = 80


@click.group("dead-letters")
def dead_letters() -> None:
    """Jobs that cannot go on (alias: dlq)."""


def add_to(group: click.Group) -> None:
    """Add the commands to a group, under both names."""
    dead_letter_changes.add_to(dead_letters)
    group.add_command(dead_letters)
    alias = click.Group("dlq", commands=dead_letters.commands, help=dead_letters.help, hidden=True)
    group.add_command(alias)


@command(
    dead_letters,
    "list",
    example="tailrace dead-letters list --queue webhooks --reason timeout\n"
    "tailrace dead-letters list --text 'no route' --failed-after 1h",
)
@filter_options
@click.option("--count", is_flag=True, help="Print how many there are instead.")
@page_options
@pass_invocation
def list_dead_letters(
    invocation: Invocation, *, count: bool, limit: int, everything: bool, after: str | None, **given: Any
) -> None:
    """List dead letters, newest failure first.

    A page reads a bounded number of rows, so a rare text or a rare mix of filters may need several, which this command
    reads by itself until the limit is reached.
    """
    which = read_filter(given)

    def work(admin: AdminUsing) -> None:
        if count:
            click.echo(admin.dead_letters.count(**which))
            return
        pages = Pages(lambda n, cursor: admin.dead_letters.list(limit=n, after=cursor, **which), limit, everything, after)
        rows = (_row(item, form=invocation.form) for item in pages)
        shown = invocation.show_list(rows, columns=_COLUMNS, key="job_id", empty="no dead letters")
        pages.tell_rest(invocation, shown)

    invocation.administer(work)


@command(dead_letters, "show", example="tailrace dead-letters show 42 -o json")
@click.argument("job_id", metavar="ID", type=ID)
@pass_invocation
def show(invocation: Invocation, job_id: int) -> None:
    """Show one dead letter with its payload, errors, notes and history."""
    (only,) = read_ids([job_id])[:1]
    invocation.show_one(invocation.administer(lambda admin: admin.dead_letters.get(only)), key="job_id")


@command(dead_letters, "stats", example="tailrace dead-letters stats --queue webhooks")
@click.option("--queue", type=NAME, help="Of this queue only. [default: all]")
@pass_invocation
def stats(invocation: Invocation, *, queue: str | None) -> None:
    """Count dead letters: by state, and of the dead ones tasks, queues, attempts, requeues and ages."""
    found = invocation.administer(lambda admin: admin.dead_letters.stats(queue))
    record = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    record["tasks"] = [dataclasses.asdict(item) for item in found.tasks]
    invocation.show_one(record, key="dead")


@command(
    dead_letters,
    "export",
    example="tailrace dead-letters export --queue webhooks > dead.jsonl\ntailrace dead-letters export --all -o csv > dead.csv",
)
@filter_options
@click.option("--all", "everything", is_flag=True, help="Every dead letter there is.")
@pass_invocation
def export(invocation: Invocation, *, everything: bool, **given: Any) -> int:
    """Write dead letters with everything, newest failure first: one JSON object a line, or -o csv.

    It reads page by page, so it may run beside workers and needs no memory.
    """
    which = read_filter(given)
    if not which and not everything:
        raise click.UsageError("say which: give a filter, or --all")
    if everything:
        which.setdefault("state", "all")
    if invocation.form in ("table", "wide"):
        invocation.form = "jsonl"

    def work(admin: AdminUsing) -> int:
        letters: Iterator[DeadLetter] = admin.dead_letters.export(**which)
        columns = [Column(field.name) for field in dataclasses.fields(DeadLetter)]
        return invocation.show_list(letters, columns=columns, key="job_id", empty="")

    invocation.say(f"{invocation.administer(work):,} dead letters")
    return ExitStatus.DONE


def _row(item: DeadLetterInfo, *, form: str) -> dict[str, Any]:
    """The record; tables and CSV get the words of its last error as a column."""
    row = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    if form not in ("json", "jsonl"):
        text = str((item.last_error or {}).get("message") or "")
        row["error"] = text[: _LONGEST_ERROR - 1] + "…" if form == "table" and len(text) > _LONGEST_ERROR else text
    return row
