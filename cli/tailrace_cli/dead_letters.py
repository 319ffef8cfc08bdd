"""`tailrace dead-letters` (alias `dlq`): jobs that cannot go on, and putting them back."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from tailrace.admin import AdminUsing
from tailrace.dead_letters import DEAD_LETTER_STATES, REASONS, DeadLetterInfo
from tailrace.jobs import Change
from tailrace_cli.arguments import ID, NAME, TIME, read_ids
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.listing import Pages, change_each, dry_run_option, ids_argument, page_options, yes_option
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
    group.add_command(dead_letters)
    alias = click.Group("dlq", commands=dead_letters.commands, help=dead_letters.help, hidden=True)
    group.add_command(alias)


@command(dead_letters, "list", example="tailrace dead-letters list --queue webhooks --reason timeout")
@click.option("--queue", type=NAME, help="Of this queue only.")
@click.option("--task", type=NAME, help="Of this task only.")
@click.option("--key", type=NAME, help="With this key only.")
@click.option("--tenant", type=NAME, help="Of this tenant only; empty = of none.")
@click.option("--reason", type=click.Choice(REASONS), help="Here for this reason only.")
@click.option("--error-type", type=NAME, help="With this kind of last error only, such as network.")
@click.option("--fingerprint", type=NAME, help="Of this kind of failure only.")
@click.option(
    "--state", type=click.Choice((*DEAD_LETTER_STATES, "all")), default="dead", show_default=True, help="In this state only."
)
@click.option("--failed-after", type=TIME, help="Failed then or later.")
@click.option("--failed-before", type=TIME, help="Failed then or earlier.")
@click.option("--text", type=NAME, help="With this text in errors or notes.")
@click.option("--count", is_flag=True, help="Print how many there are instead.")
@page_options
@pass_invocation
def list_dead_letters(
    invocation: Invocation, *, count: bool, limit: int, everything: bool, after: str | None, **which: Any
) -> None:
    """List dead letters, newest failure first."""

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
    """Show one dead letter with its payload, errors and history."""
    (only,) = read_ids([job_id])[:1]
    invocation.show_one(invocation.administer(lambda admin: admin.dead_letters.get(only)), key="job_id")


@command(dead_letters, "stats", example="tailrace dead-letters stats --queue webhooks")
@click.option("--queue", type=NAME, help="Of this queue only. [default: all]")
@pass_invocation
def stats(invocation: Invocation, *, queue: str | None) -> None:
    """Count dead letters."""
    found = invocation.administer(lambda admin: admin.dead_letters.stats(queue))
    record = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    record["tasks"] = [dataclasses.asdict(item) for item in found.tasks]
    invocation.show_one(record, key="dead")


@command(
    dead_letters,
    "requeue",
    example="tailrace dead-letters requeue 42\ntailrace dead-letters list -o name | tailrace dead-letters requeue -",
)
@ids_argument
@click.option("--force", is_flag=True, help="Replace a waiting job that holds the same key; it is lost but for its payload.")
@dry_run_option
@yes_option
@pass_invocation
def requeue(invocation: Invocation, *, ids: tuple[int | str, ...], force: bool, dry_run: bool, yes: bool) -> int:
    """Put jobs back under their ids, with attempts anew."""
    chosen = read_ids(ids)
    if dry_run:
        return change_each(invocation, chosen, _would_requeue)
    if force:
        invocation.confirm(f"This requeues {len(chosen)} jobs and replaces waiting ones that hold their keys", yes=yes)
    return change_each(invocation, chosen, lambda admin, one: admin.dead_letters.requeue(one, force=force))


def _would_requeue(admin: AdminUsing, job_id: int) -> Change:
    state = admin.dead_letters.get(job_id).state
    return Change(job_id, "would be requeued" if state == "dead" else f"is {state}: would be refused")


def _row(item: DeadLetterInfo, *, form: str) -> dict[str, Any]:
    """The record; tables and CSV get the words of its last error as a column."""
    row = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    if form not in ("json", "jsonl"):
        text = str((item.last_error or {}).get("message") or "")
        row["error"] = text[: _LONGEST_ERROR - 1] + "…" if form == "table" and len(text) > _LONGEST_ERROR else text
    return row
