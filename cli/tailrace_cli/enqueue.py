"""`tailrace enqueue`: put one job in from the shell."""

from __future__ import annotations

import json
from typing import Any

import click

from tailrace.db import Connection, Database, run
from tailrace.enqueue.new_job import Receipt
from tailrace.enqueue.options import option_values
from tailrace.enqueue.statements import PreparedJob, enqueue_one
from tailrace.json_text import encode
from tailrace.policy import ON_DUPLICATE
from tailrace_cli.arguments import DURATION, JSON_OBJECT, NAME, TIME, read_text
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.output import Column

__all__ = ["add_to"]


def add_to(group: click.Group) -> None:
    """Add the command to a group."""

    @command(
        group,
        "enqueue",
        example='tailrace enqueue webhooks deliver \'{"event_id": 1, "url": "https://example.org"}\' --delay 10m\n'
        'echo \'{"scope": "all"}\' | tailrace enqueue reports build_report -',
    )
    @click.argument("queue", type=NAME)
    @click.argument("task", type=NAME)
    @click.argument("payload", metavar="JSON|-")
    @click.option("--priority", type=int, help="-1000 to 1000, high first. [default: the queue's]")
    @click.option("--delay", type=DURATION, help="Start this much later, such as 90s or 1h30m.")
    @click.option("--run-at", type=TIME, help="Start not before then, in ISO 8601 with its zone; excludes --delay.")
    @click.option("--key", type=NAME, help="At most one live job of queue, task and tenant has it.")
    @click.option("--on-duplicate", type=click.Choice(sorted(ON_DUPLICATE)), help="When a live job has the key. [default: skip]")
    @click.option("--tenant", type=NAME, help="Whose job it is. [default: nobody's]")
    @click.option("--max-attempts", type=int, help="Runs in total, at least 1. [default: the queue's]")
    @click.option("--timeout", type=DURATION, help="The longest run; 0 = no limit. [default: the queue's]")
    @click.option("--expires-in", type=DURATION, help="Start within this time or never.")
    @click.option("--meta", type=JSON_OBJECT, help="Small facts beside the payload, a JSON object of at most 8 KiB.")
    @pass_invocation
    def enqueue(invocation: Invocation, *, queue: str, task: str, payload: str, **options: Any) -> None:
        """Store one job.

        Nothing knows the application here, so its payload is checked when it runs. Prints the id and the outcome: created,
        replaced, skipped or in_progress; the last two changed nothing and give the job that holds the key. With
        --on-duplicate after, a job is kept while the holder runs, and follows it.
        """
        value = JSON_OBJECT.convert(read_text() if payload == "-" else payload, None, None)
        values = option_values(options)
        key = values.pop("key", None)
        job = PreparedJob(queue, task, encode(value), json.dumps(values), key=key)
        database = invocation.database()
        with invocation.connect(database, checked=False) as conn:
            receipt = _store(conn, database, job)
        invocation.show_list([receipt], columns=[Column("id", right=True), Column("outcome")], key="id", empty="")


def _store(conn: Connection, database: Database, job: PreparedJob) -> Receipt:
    return run(conn, enqueue_one(database.blocks, job))
