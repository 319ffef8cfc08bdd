"""`tailrace leases`: who runs what, and taking it from somebody by hand."""

from __future__ import annotations

import click

from tailrace.admin import AdminUsing
from tailrace.leases import LeaseInfo
from tailrace_cli.arguments import ID, NAME, read_ids
from tailrace_cli.failures import ExitStatus
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.listing import Pages, dry_run_option, page_options, yes_option
from tailrace_cli.output import Column

__all__ = ["add_to"]

_COLUMNS = (
    Column("token", right=True),
    Column("state"),
    Column("queue"),
    Column("worker"),
    Column("jobs", right=True),
    Column("claimed_at"),
    Column("until"),
    Column("age", wide=True, right=True),
    Column("remaining", wide=True, right=True),
    Column("ids", wide=True),
)
_REMEDIES = {
    "live": "its worker lives; --force takes it all the same, and the run counts as lost",
    "busy": "its rows are locked; try again",
    "missing": "there is no such lease",
}


@click.group()
def leases() -> None:
    """Leases: a worker's right to the jobs it claimed."""


def add_to(group: click.Group) -> None:
    """Add the commands to a group."""
    group.add_command(leases)


@command(leases, "list", example="tailrace leases list --queue webhooks -o wide")
@click.option("--queue", type=NAME, help="Of this queue only.")
@click.option("--worker", type=NAME, help="Of this worker only.")
@page_options
@pass_invocation
def list_leases(
    invocation: Invocation, *, queue: str | None, worker: str | None, limit: int, everything: bool, after: str | None
) -> None:
    """List leases by token."""

    def work(admin: AdminUsing) -> None:
        pages = Pages(
            lambda n, cursor: admin.leases.list(queue=queue, worker=worker, limit=n, after=cursor), limit, everything, after
        )
        shown = invocation.show_list(pages, columns=_COLUMNS, key="token", empty="no leases")
        pages.tell_rest(invocation, shown)

    invocation.administer(work)


@command(leases, "release", example="tailrace leases release 7231460217 --force --yes")
@click.argument("tokens", metavar="TOKEN...", type=ID, nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also from a worker that lives: its write is refused, and the run counts as lost.")
@dry_run_option
@yes_option
@pass_invocation
def release(invocation: Invocation, *, tokens: tuple[int | str, ...], force: bool, dry_run: bool, yes: bool) -> int:
    """Take leases from their workers, so that the jobs run again.

    The reaper does so by itself once a worker is not heard of for a lease; this does it now.
    """
    chosen = read_ids(tokens)
    columns = [Column("token", right=True), Column("result"), Column("queue"), Column("worker"), Column("jobs", right=True)]
    if dry_run:
        found = {item.token: item for item in _all(invocation)}
        would = [found[token] for token in chosen if token in found]
        rows = [
            {
                "token": item.token,
                "result": "would be released" if force or item.state != "live" else "live: would be refused",
                "queue": item.queue,
                "worker": item.worker,
                "jobs": item.jobs,
            }
            for item in would
        ]
        invocation.show_list(rows, columns=columns, key="token", empty="there are no such leases")
        return ExitStatus.DONE if len(would) == len(chosen) else ExitStatus.FAILED
    invocation.confirm(f"This takes {len(chosen)} leases from their workers{', living ones too' if force else ''}", yes=yes)
    results = invocation.administer(lambda admin: admin.leases.release(chosen, force=force))
    invocation.show_list(results, columns=columns, key="token", empty="nothing was released")
    for item in results:
        if item.result in _REMEDIES:
            invocation.warn(f"tailrace: lease {item.token} was not released: {_REMEDIES[item.result]}")
    return ExitStatus.DONE if all(item.result == "released" for item in results) else ExitStatus.FAILED


def _all(invocation: Invocation) -> list[LeaseInfo]:
    return invocation.administer(
        lambda admin: list(Pages(lambda n, cursor: admin.leases.list(limit=n, after=cursor), 500, everything=True))
    )
