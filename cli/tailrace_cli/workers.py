"""`tailrace workers`: the processes that the database knows."""

from __future__ import annotations

import click

from tailrace_cli.arguments import NAME
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.output import Column

__all__ = ["add_to"]

_COLUMNS = (
    Column("id"),
    Column("alive"),
    Column("state"),
    Column("queues"),
    Column("slots", right=True),
    Column("jobs", right=True),
    Column("version"),
    Column("started"),
    Column("until", wide=True),
    Column("lease_seconds", wide=True, right=True),
    Column("leases", wide=True, right=True),
    Column("pod", wide=True),
    Column("death", wide=True),
    Column("tasks", wide=True),
)


@click.group()
def workers() -> None:
    """Worker processes."""


def add_to(group: click.Group) -> None:
    """Add the commands to a group."""
    group.add_command(workers)


@command(workers, "list", example="tailrace workers list --queue webhooks")
@click.option("--queue", type=NAME, help="Only those that serve this queue.")
@pass_invocation
def list_workers(invocation: Invocation, *, queue: str | None) -> None:
    """List workers, living and lately dead."""
    found = invocation.administer(lambda admin: admin.workers.list(queue=queue))
    invocation.show_list(found, columns=_COLUMNS, key="id", empty="no workers")
