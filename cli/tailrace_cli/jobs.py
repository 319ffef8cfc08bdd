"""`tailrace jobs`: look at live jobs and change them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from tailrace.admin import AdminUsing
from tailrace.jobs import JOB_STATES, Change
from tailrace_cli.arguments import DURATION, ID, JSON_OBJECT, NAME, TIME, read_ids
from tailrace_cli.failures import ExitStatus
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.listing import Pages, change_each, dry_run_option, ids_argument, page_options, yes_option
from tailrace_cli.output import Column

__all__ = ["add_to"]

_COLUMNS = (
    Column("id", right=True),
    Column("state"),
    Column("queue"),
    Column("task"),
    Column("priority", right=True),
    Column("attempts", right=True),
    Column("max_attempts", right=True),
    Column("run_at"),
    Column("key"),
    Column("worker", wide=True),
    Column("tenant", wide=True),
    Column("created_at", wide=True),
    Column("expires_at", wide=True),
    Column("requeues", wide=True, right=True),
    Column("lost", wide=True, right=True),
    Column("interrupted", wide=True, right=True),
    Column("snoozes", wide=True, right=True),
)


@click.group()
def jobs() -> None:
    """Live jobs: waiting and running ones."""


def add_to(group: click.Group) -> None:
    """Add the commands to a group."""
    group.add_command(jobs)


@command(jobs, "list", example="tailrace jobs list --queue webhooks --state retrying -o json")
@click.option("--queue", type=NAME, help="Of this queue only.")
@click.option("--task", type=NAME, help="Of this task only.")
@click.option(
    "--state", type=click.Choice((*JOB_STATES, "waiting")), help="In this state only; waiting = neither running nor stale."
)
@click.option("--key", type=NAME, help="With this key only.")
@click.option("--tenant", type=NAME, help="Of this tenant only; empty = of none.")
@click.option("--count", is_flag=True, help="Print how many there are instead.")
@page_options
@pass_invocation
def list_jobs(invocation: Invocation, *, count: bool, limit: int, everything: bool, after: str | None, **which: Any) -> None:
    """List live jobs by id."""

    def work(admin: AdminUsing) -> None:
        if count:
            click.echo(admin.jobs.count(**which))
            return
        pages = Pages(lambda n, cursor: admin.jobs.list(limit=n, after=cursor, **which), limit, everything, after)
        shown = invocation.show_list(pages, columns=_COLUMNS, key="id", empty="no jobs")
        pages.tell_rest(invocation, shown)

    invocation.administer(work)


@command(jobs, "show", example="tailrace jobs show 42")
@click.argument("job_id", metavar="ID", type=ID)
@pass_invocation
def show(invocation: Invocation, job_id: int) -> None:
    """Show one live job with its payload and errors."""
    (only,) = read_ids([job_id])[:1]
    invocation.show_one(invocation.administer(lambda admin: admin.jobs.get(only)), key="id")


@command(jobs, "wait", example="tailrace jobs wait 42 --timeout 5m")
@click.argument("job_id", metavar="ID", type=ID)
@click.option(
    "--timeout", type=DURATION, default=timedelta(minutes=5), help="How long, such as 30s or 5m; 0 = only look. [default: 5m]"
)
@pass_invocation
def wait(invocation: Invocation, *, job_id: int, timeout: timedelta) -> int:
    """Wait for the end of a job and tell how it ended; the status is 1 unless it succeeded.

    What is told of an ended job: its state and result while its task keeps results or its queue a history, else `gone`.
    """
    (only,) = read_ids([job_id])[:1]
    result = invocation.administer(lambda admin: admin.jobs.get_result(only, timeout=timeout))
    invocation.show_one(result, key="state")
    return ExitStatus.DONE if result.state == "succeeded" else ExitStatus.FAILED


@command(
    jobs, "cancel", example="tailrace jobs cancel 42\ntailrace jobs list --task deliver -o name | tailrace jobs cancel - --yes"
)
@click.argument("ids", metavar="[ID...]", type=ID, nargs=-1)
@click.option("--key", type=NAME, help="Cancel the holder of this key instead; needs --queue and --task.")
@click.option("--queue", type=NAME, help="The key's queue.")
@click.option("--task", type=NAME, help="The key's task.")
@click.option("--tenant", type=NAME, default="", help="The key's tenant. [default: none]")
@dry_run_option
@yes_option
@pass_invocation
def cancel(
    invocation: Invocation,
    *,
    ids: tuple[int | str, ...],
    key: str | None,
    queue: str | None,
    task: str | None,
    tenant: str,
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove waiting jobs; ask running ones to end.

    A waiting job is gone at once (cancelled). A running one is told by its worker within a heartbeat (requested).
    """
    if key is not None:
        return _cancel_by_key(invocation, ids, key=key, queue=queue, task=task, tenant=tenant, dry_run=dry_run)
    chosen = read_ids(ids)
    if dry_run:
        return change_each(invocation, chosen, lambda admin, one: _would(admin, one, running="would be asked to end"))
    if len(chosen) > 1:
        invocation.confirm(f"This cancels {len(chosen)} jobs", yes=yes)
    return change_each(invocation, chosen, lambda admin, one: admin.jobs.cancel(one))


def _cancel_by_key(
    invocation: Invocation,
    ids: tuple[int | str, ...],
    *,
    key: str,
    queue: str | None,
    task: str | None,
    tenant: str,
    dry_run: bool,
) -> int:
    if ids or queue is None or task is None:
        raise click.UsageError("--key needs --queue and --task, and no ids")

    def work(admin: AdminUsing) -> list[dict[str, Any]]:
        if dry_run:
            found = admin.jobs.list(queue=queue, task=task, tenant=tenant, key=key)
            return [{"id": job.id, "outcome": f"would be cancelled ({job.state})"} for job in found]
        return [{"id": "", "outcome": admin.jobs.cancel_by_key(task, key, queue=queue, tenant=tenant).outcome, "key": key}]

    rows = [{"id": row["id"], "key": key, "outcome": row["outcome"]} for row in invocation.administer(work)]
    columns = [Column("id", right=True), Column("key"), Column("outcome")] if dry_run else [Column("key"), Column("outcome")]
    shown = invocation.show_list(
        rows if dry_run else [{"key": key, "outcome": row["outcome"]} for row in rows],
        columns=columns,
        key="id" if dry_run else "key",
        empty="no live job holds this key",
    )
    return ExitStatus.DONE if shown else ExitStatus.FAILED


@command(jobs, "run-now", example="tailrace jobs run-now 42")
@ids_argument
@dry_run_option
@yes_option
@pass_invocation
def run_now(invocation: Invocation, *, ids: tuple[int | str, ...], dry_run: bool, yes: bool) -> int:
    """Make waiting jobs due now."""
    del yes  # nothing is lost by it, so nothing is asked
    chosen = read_ids(ids)
    if dry_run:
        return change_each(invocation, chosen, lambda admin, one: _would(admin, one, waiting="would be due now"))
    return change_each(invocation, chosen, lambda admin, one: admin.jobs.run_now(one))


@command(
    jobs, "reschedule", example="tailrace jobs reschedule 42 --delay 10m\ntailrace jobs reschedule 42 --at 2026-12-01T06:00:00Z"
)
@ids_argument
@click.option("--at", "run_at", type=TIME, help="When, in ISO 8601 with its zone; a past time means now.")
@click.option("--delay", type=DURATION, help="How long from now, such as 90s, 10m, 1h30m.")
@dry_run_option
@yes_option
@pass_invocation
def reschedule(
    invocation: Invocation,
    *,
    ids: tuple[int | str, ...],
    run_at: datetime | None,
    delay: timedelta | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Move waiting jobs in time."""
    del yes
    if (run_at is None) == (delay is None):
        raise click.UsageError("give exactly one of --at and --delay")
    chosen = read_ids(ids)
    if dry_run:
        return change_each(invocation, chosen, lambda admin, one: _would(admin, one, waiting="would be rescheduled"))
    return change_each(invocation, chosen, lambda admin, one: admin.jobs.reschedule(one, run_at=run_at, delay=delay))


@command(jobs, "update", example="tailrace jobs update 42 --priority 10 --max-attempts 8")
@ids_argument
@click.option("--priority", type=int, help="-1000 to 1000, high first.")
@click.option("--max-attempts", type=int, help="Charged runs that may be, at least 1.")
@click.option("--timeout", type=DURATION, help="The longest run, such as 30s or 5m; 0 = no limit.")
@click.option("--meta", type=JSON_OBJECT, help="What the producer notes, a JSON object; replaces what is there.")
@dry_run_option
@yes_option
@pass_invocation
def update(invocation: Invocation, *, ids: tuple[int | str, ...], dry_run: bool, yes: bool, **given: Any) -> int:
    """Change settings of waiting jobs."""
    del yes
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("give at least one of --priority, --max-attempts, --timeout and --meta")
    chosen = read_ids(ids)
    if dry_run:
        return change_each(invocation, chosen, lambda admin, one: _would(admin, one, waiting="would be updated"))
    return change_each(invocation, chosen, lambda admin, one: admin.jobs.update(one, **changes))


def _would(
    admin: AdminUsing, job_id: int, *, waiting: str = "would be cancelled", running: str = "is running: would be refused"
) -> Change:
    state = admin.jobs.get(job_id).state
    return Change(job_id, running if state in ("running", "stale") else waiting)
