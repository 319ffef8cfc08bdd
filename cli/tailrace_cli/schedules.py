"""`tailrace schedules`: what fires when, run one now, suspend and resume."""

from __future__ import annotations

from collections.abc import Callable

import click

from tailrace.admin import AdminUsing
from tailrace.jobs import Change
from tailrace_cli.arguments import NAME
from tailrace_cli.failures import ExitStatus
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.listing import dry_run_option
from tailrace_cli.output import Column

__all__ = ["add_to"]

_COLUMNS = (
    Column("queue"),
    Column("name"),
    Column("state"),
    Column("timing"),
    Column("time_zone"),
    Column("task"),
    Column("next_tick"),
    Column("last_fired_at"),
    Column("last_job", right=True),
    Column("problem"),
    Column("source", wide=True),
    Column("overlap", wide=True),
    Column("last_tick", wide=True),
    Column("fired", wide=True, right=True),
    Column("skipped", wide=True, right=True),
    Column("missed", wide=True, right=True),
    Column("failed", wide=True, right=True),
)


@click.group()
def schedules() -> None:
    """What fires when."""


def add_to(group: click.Group) -> None:
    """Add the commands to a group."""
    group.add_command(schedules)


@command(schedules, "list", example="tailrace schedules list --queue webhooks")
@click.option("--queue", type=NAME, help="Only those of this queue.")
@pass_invocation
def list_schedules(invocation: Invocation, *, queue: str | None) -> None:
    """List schedules with their next tick.

    They are those of JobQueues, written by `queues apply`, and those that the applications of living workers declare.
    """
    found = invocation.administer(lambda admin: admin.schedules.list(queue))
    invocation.show_list(found, columns=_COLUMNS, key="name", empty="no schedules")


@command(schedules, "show", example="tailrace schedules show webhooks nightly-report")
@click.argument("queue", type=NAME)
@click.argument("name", type=NAME)
@pass_invocation
def show(invocation: Invocation, queue: str, name: str) -> None:
    """Show one schedule: how it stands, what is wrong with it, its definition."""
    invocation.show_one(invocation.administer(lambda admin: admin.schedules.show(queue, name)), key="name")


@command(schedules, "run-now", example="tailrace schedules run-now webhooks nightly-report")
@click.argument("queue", type=NAME)
@click.argument("name", type=NAME)
@dry_run_option
@pass_invocation
def run_now(invocation: Invocation, *, queue: str, name: str, dry_run: bool) -> None:
    """Enqueue a schedule's job now, also while it is suspended. Its next tick stays where it is.

    Refused while its last job lives, if its overlap is Skip.
    """

    def work(admin: AdminUsing) -> dict[str, object]:
        found = admin.schedules.show(queue, name)
        if dry_run:
            return {"queue": queue, "name": name, "outcome": "would be enqueued", "job_id": None, "task": found.task}
        return {
            "queue": queue,
            "name": name,
            "outcome": "enqueued",
            "job_id": admin.schedules.run_now(queue, name),
            "task": found.task,
        }

    columns = [Column("queue"), Column("name"), Column("outcome"), Column("job_id", right=True), Column("task")]
    invocation.show_list([invocation.administer(work)], columns=columns, key="job_id", empty="")


@command(schedules, "suspend", example="tailrace schedules suspend webhooks nightly-report")
@click.argument("queue", type=NAME)
@click.argument("name", type=NAME)
@dry_run_option
@pass_invocation
def suspend(invocation: Invocation, *, queue: str, name: str, dry_run: bool) -> int:
    """Let a schedule fire no more until it is resumed; jobs that it has enqueued go on."""
    return _change(
        invocation, queue, name, dry_run="suspended" if dry_run else None, change=lambda a: a.schedules.suspend(queue, name)
    )


@command(schedules, "resume", example="tailrace schedules resume webhooks nightly-report")
@click.argument("queue", type=NAME)
@click.argument("name", type=NAME)
@dry_run_option
@pass_invocation
def resume(invocation: Invocation, *, queue: str, name: str, dry_run: bool) -> int:
    """Let a suspended schedule go on with its next tick; what it would have fired meanwhile is not made up for."""
    return _change(
        invocation, queue, name, dry_run="resumed" if dry_run else None, change=lambda a: a.schedules.resume(queue, name)
    )


def _change(invocation: Invocation, queue: str, name: str, *, dry_run: str | None, change: Callable[[AdminUsing], Change]) -> int:
    def work(admin: AdminUsing) -> str:
        if dry_run is None:
            return change(admin).outcome
        admin.schedules.show(queue, name)
        return f"would be {dry_run}"

    row = {"queue": queue, "name": name, "outcome": invocation.administer(work)}
    invocation.show_list([row], columns=[Column("queue"), Column("name"), Column("outcome")], key="name", empty="")
    return ExitStatus.DONE
