"""`tailrace queues`: look at queues, hold them, give them settings, empty them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import click

from tailrace.admin import AdminUsing
from tailrace.errors import TailraceError
from tailrace.jobs import Change
from tailrace_cli.arguments import DURATION, NAME
from tailrace_cli.failures import ExitStatus, describe
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.listing import dry_run_option, yes_option
from tailrace_cli.output import Column
from tailrace_cli.queue_files import read_queues

__all__ = ["add_to"]

_COLUMNS = (
    Column("queue"),
    Column("held"),
    Column("held_until"),
    Column("workers", right=True),
    Column("running", right=True),
    Column("dead", right=True),
    Column("managed_by"),
    Column("read_at", wide=True),
)
_STATES = ("ready", "scheduled", "retrying", "blocked", "held", "unclaimable", "running", "stale")


@click.group()
def queues() -> None:
    """Queues, their settings and holds."""


def add_to(group: click.Group) -> None:
    """Add the commands to a group."""
    group.add_command(queues)


@command(queues, "list", example="tailrace queues list -o json")
@pass_invocation
def list_queues(invocation: Invocation) -> None:
    """List every queue that has settings, jobs or dead letters.

    Counts are those of the last reading of the statistics; `queues show` counts now.
    """
    found = invocation.administer(lambda admin: admin.queues.list())
    invocation.show_list(found, columns=_COLUMNS, key="queue", empty="no queues")


@command(queues, "show", example="tailrace queues show webhooks")
@click.argument("queue", type=NAME)
@pass_invocation
def show(invocation: Invocation, queue: str) -> None:
    """Show one queue: its jobs by state now, limits and rates in use and free, dead letters, demand, schedules, settings."""

    def work(admin: AdminUsing) -> dict[str, Any]:
        details, stats = admin.queues.show(queue), admin.queues.stats(queue)
        record = {field.name: getattr(details, field.name) for field in dataclasses.fields(details)}
        record["jobs"] = {state: getattr(stats, state) for state in (*_STATES, "total")}
        for name in ("oldest_ready_age", "next_due_in", "dead", "oldest_dead_age", "running"):
            record[name] = getattr(stats, name)
        for name in ("arrivals", "run_seconds", "demand"):  # averages: only the statistics know them
            record[name] = (details.reading or {}).get(name)
        record["read_at"] = stats.read_at
        record["limits"] = [dataclasses.asdict(limit) for limit in details.limits]
        record["schedules"] = [one.name for one in admin.schedules.list(queue)]
        del record["reading"]
        return record

    invocation.show_one(invocation.administer(work), key="queue")


@command(
    queues,
    "apply",
    example="tailrace queues apply -f queue.yaml\nkubectl get jobqueue webhooks -o yaml | tailrace queues apply -f -",
)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A JobQueue in YAML or JSON; - reads stdin. Can be repeated.",
)
@dry_run_option
@yes_option
@pass_invocation
def apply(invocation: Invocation, *, files: tuple[str, ...], dry_run: bool, yes: bool) -> int:
    """Write the settings of JobQueue files into the database.

    Life without Kubernetes: latency target, stop and exhausted policy, lease, job defaults, tasks, limits and rates,
    schedules. What concerns pods and scaling is checked and left alone. A queue that a controller manages refuses it.
    All files are checked before anything is written.
    """
    del yes
    wanted = read_queues(files)
    names = [resource.queue for resource in wanted]
    if dry_run:
        parts = [
            {"queue": resource.queue, "outcome": "would be applied", "settings": resource.spec.database_part()}
            for resource in wanted
        ]
        invocation.show_list(
            parts, columns=[Column("queue"), Column("outcome"), Column("settings", wide=True)], key="queue", empty="nothing to do"
        )
        return ExitStatus.DONE
    by_name = dict(zip(names, wanted, strict=True))
    return _each(invocation, names, lambda admin, name: admin.queues.apply(by_name[name]))


@command(queues, "hold", example="tailrace queues hold webhooks --for 10m")
@click.argument("names", metavar="QUEUE...", type=NAME, nargs=-1)
@click.option("--for", "span", type=DURATION, help="How long, such as 10m or 2h. [default: until it is resumed]")
@click.option("--all", "everything", is_flag=True, help="Every queue there is.")
@dry_run_option
@yes_option
@pass_invocation
def hold(
    invocation: Invocation, *, names: tuple[str, ...], span: timedelta | None, everything: bool, dry_run: bool, yes: bool
) -> int:
    """Stop workers from claiming; what runs goes on, and enqueueing works."""
    chosen = _chosen(invocation, names, everything=everything)
    if dry_run:
        return _show(invocation, [Change(name, "would be held") for name in chosen])
    if everything:
        invocation.confirm(f"This holds {len(chosen)} queues", yes=yes)
    return _each(invocation, chosen, lambda admin, name: admin.queues.hold(name, seconds=span))


@command(queues, "resume", example="tailrace queues resume webhooks")
@click.argument("names", metavar="QUEUE...", type=NAME, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every queue that people hold.")
@dry_run_option
@yes_option
@pass_invocation
def resume(invocation: Invocation, *, names: tuple[str, ...], everything: bool, dry_run: bool, yes: bool) -> int:
    """Let workers claim again."""
    chosen = _chosen(invocation, names, everything=everything, held=True)
    if dry_run:
        return _show(invocation, [Change(name, "would be resumed") for name in chosen])
    if everything:
        invocation.confirm(f"This resumes {len(chosen)} queues", yes=yes)
    return _each(invocation, chosen, lambda admin, name: admin.queues.resume(name))


@command(queues, "purge", example="tailrace queues purge webhooks --dry-run\ntailrace queues purge webhooks --yes")
@click.argument("queue", type=NAME)
@click.option("--force", is_flag=True, help="Also while live workers serve it.")
@dry_run_option
@yes_option
@pass_invocation
def purge(invocation: Invocation, *, queue: str, force: bool, dry_run: bool, yes: bool) -> None:
    """Cancel every waiting job of a queue; running ones and dead letters stay."""

    def look(admin: AdminUsing) -> int:
        admin.queues.show(queue)  # an unknown queue is told before the question
        return admin.jobs.count(queue=queue, state="waiting")

    waiting = invocation.administer(look)
    columns = [Column("queue"), Column("outcome"), Column("jobs", right=True)]
    if dry_run:
        row = {"queue": queue, "outcome": "would be purged", "jobs": waiting}
    else:
        invocation.confirm(f"This cancels the waiting jobs of queue {queue!r} for good ({waiting} now)", yes=yes)
        row = {
            "queue": queue,
            "outcome": "purged",
            "jobs": invocation.administer(lambda admin: admin.queues.purge(queue, force=force)),
        }
    invocation.show_list([row], columns=columns, key="queue", empty="")


def _chosen(invocation: Invocation, names: tuple[str, ...], *, everything: bool, held: bool = False) -> list[str]:
    if bool(names) == everything:
        raise click.UsageError("name the queues, or give --all")
    if names:
        return list(dict.fromkeys(names))
    found = invocation.administer(lambda admin: admin.queues.list())
    return [queue.queue for queue in found if not held or queue.held_until is not None]


def _each(invocation: Invocation, names: Sequence[str], change: Callable[[AdminUsing, str], Change]) -> int:
    done: list[Change] = []
    status = ExitStatus.DONE

    def work(admin: AdminUsing) -> None:
        nonlocal status
        for name in names:
            try:
                done.append(change(admin, name))
            except TailraceError as error:
                text, failed = describe(error, verbose=invocation.verbose)
                if failed == ExitStatus.UNREACHABLE:
                    raise
                invocation.warn(f"tailrace: {text}")
                status = failed if len(names) == 1 else ExitStatus.FAILED

    invocation.administer(work)
    _show(invocation, done)
    return status


def _show(invocation: Invocation, changes: Sequence[Change]) -> int:
    rows = [{"queue": change.target, "outcome": change.outcome, "until": change.at} for change in changes]
    columns = [Column("queue"), Column("outcome"), Column("until", wide=not any(row["until"] for row in rows))]
    invocation.show_list(rows, columns=columns, key="queue", empty="no queues were changed")
    return ExitStatus.DONE
