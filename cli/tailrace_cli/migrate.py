"""`tailrace migrate`: bring the schema to what this release needs."""

from __future__ import annotations

from typing import Any

import click

from tailrace import logs
from tailrace.db.migrate import migrate, pending, printed
from tailrace_cli.failures import ExitStatus
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.output import Column

__all__ = ["add_to"]

_COLUMNS = (Column("version", right=True), Column("name"), Column("outcome"), Column("applied_at", wide=True))


def add_to(group: click.Group) -> None:
    """Add the command to a group."""

    @command(
        group,
        "migrate",
        example="tailrace migrate\ntailrace migrate --check && echo current\ntailrace migrate --sql > tailrace.sql",
    )
    @click.option("--check", "only_check", is_flag=True, help="Change nothing; exit status 1 if something is to be done.")
    @click.option("--sql", "only_print", is_flag=True, help="Print the whole DDL and connect to nothing.")
    @pass_invocation
    def migrate_schema(invocation: Invocation, *, only_check: bool, only_print: bool) -> int:
        """Create or update Tailrace's schema.

        Safe to run at any time and by several at once: one works, the others wait. Each step is one transaction that gives up
        its wait for locks after 2 s and tries again. Connects by TAILRACE_DIRECT_DATABASE_URL where it is set.
        """
        if only_check and only_print:
            raise click.UsageError("--check and --sql exclude each other")
        database = invocation.database()
        if only_print:
            click.echo(printed(database.schema), nl=False)
            return ExitStatus.DONE
        if only_check:
            missing = pending(database)
            rows: list[dict[str, Any]] = [
                {"version": step.version, "name": step.name, "outcome": "pending", "applied_at": None} for step in missing
            ]
            _show(invocation, rows, nothing="the schema is current")
            return ExitStatus.FAILED if missing else ExitStatus.DONE
        logs.configure(level="info" if invocation.verbose else "warning")
        applied = migrate(database)
        _show(
            invocation,
            [{"version": one.version, "name": one.name, "outcome": "applied", "applied_at": one.applied_at} for one in applied],
            nothing="the schema was current already",
        )
        return ExitStatus.DONE


def _show(invocation: Invocation, rows: list[dict[str, Any]], *, nothing: str) -> None:
    invocation.show_list(rows, columns=_COLUMNS, key="name", empty=nothing)
