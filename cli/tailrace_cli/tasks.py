"""`tailrace tasks`: what an application can run, and the shape of its payloads."""

from __future__ import annotations

import click

from tailrace.app import load_app
from tailrace_cli.arguments import NAME
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.output import Column

__all__ = ["add_to"]

_COLUMNS = (Column("name"), Column("queue"), Column("parameters"), Column("schema", wide=True))


def add_to(group: click.Group) -> None:
    """Add the command to a group."""

    @command(group, "tasks", example="tailrace tasks shop.jobs:app -o json > tasks.json")
    @click.argument("app", metavar="MODULE:APP", type=NAME)
    @pass_invocation
    def tasks(invocation: Invocation, *, app: str) -> None:
        """List the tasks of an application with the JSON schema of their payloads.

        For producers in other languages, and to review what a change does to payloads. Connects to nothing.
        """
        found = load_app(app)
        found.load()
        rows = []
        for name in sorted(found.tasks):
            task = found.tasks[name]
            schema = task.schema()
            required = schema.get("required", ())
            parameters = [word if word in required else f"{word}?" for word in schema.get("properties", ())]
            rows.append({"name": task.name, "queue": task.queue, "parameters": parameters, "schema": schema})
        invocation.show_list(rows, columns=_COLUMNS, key="name", empty="the application has no tasks")
