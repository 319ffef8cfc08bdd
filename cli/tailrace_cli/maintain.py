"""`tailrace maintain`: the routines that keep the tables clean, where no worker or controller runs them."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
from collections.abc import Mapping
from typing import Any

import click

from tailrace import logs
from tailrace.maintenance import ROUTINES, RoutineResult, routines, run_forever, run_once
from tailrace.settings import WorkerSettings
from tailrace_cli.arguments import NAME
from tailrace_cli.failures import ExitStatus
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.output import Column, as_record
from tailrace_cli.settings_options import given_flags, settings_options

__all__ = ["add_to"]

_COLUMNS = (Column("routine"), Column("result"), Column("seconds", right=True), Column("counts"), Column("error"))
_EXAMPLE = """
tailrace maintain
tailrace maintain retention auto_requeue --queue webhooks --dry-run
tailrace maintain sweep --full
"""
_QUEUE_HELP = (
    "For this queue only; may be given again. Such runs leave what is of no queue to others, and workers go on doing the "
    "maintenance of the rest."
)
_SETTINGS = ("reaper_seconds", "log_format", "log_level")


def add_to(group: click.Group) -> None:
    """Add the command to a group."""

    @command(
        group,
        "maintain",
        example=_EXAMPLE,
        params=settings_options(WorkerSettings, without=set(WorkerSettings.model_fields) - set(_SETTINGS)),
    )
    @click.argument("names", metavar="[ROUTINE]...", nargs=-1)
    @click.option("--queue", "queues", type=NAME, multiple=True, help=_QUEUE_HELP)
    @click.option("--once", is_flag=True, help="Run each routine once and end.")
    @click.option("-n", "--dry-run", is_flag=True, help="Say what one run would do now, and change nothing.")
    @click.option("--full", is_flag=True, help="One run without a time budget; the sweep walks the whole table.")
    @pass_invocation
    def maintain(
        invocation: Invocation,
        *,
        names: tuple[str, ...],
        queues: tuple[str, ...],
        once: bool,
        dry_run: bool,
        full: bool,
        **flags: Any,
    ) -> int:
        """Run maintenance: all routines unless some are named.

        They are reaper, sweep, cron, retention, auto_requeue, statistics and housekeeping. Each runs at its period until
        SIGTERM or Ctrl-C; with -o json each run is a line. Workers do the same when nobody else does. Any number may run.
        """
        settings = WorkerSettings.load({**given_flags(flags), **invocation.overrides()})
        logs.configure(form=settings.log_format, level=settings.log_level)
        chosen = routines(names, reaper_seconds=settings.reaper_seconds)
        database = settings.database("tailrace")
        invocation.connect(database).close()  # unreachable or not migrated is told at once
        stop = _stopped_by_signals()
        if once or dry_run or full:
            status = _report(invocation, run_once(database, chosen, queues=queues, dry_run=dry_run, full=full, stop=stop))
            return ExitStatus.INTERRUPTED if stop.is_set() else status
        run_forever(database, chosen, stop, queues=queues, on_result=_line if invocation.form in ("json", "jsonl") else None)
        return ExitStatus.DONE


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _report(invocation: Invocation, results: list[RoutineResult]) -> int:
    rows = [{**dataclasses.asdict(result), "seconds": round(result.seconds, 3)} for result in results]
    columns = [column for column in _COLUMNS if column.name != "error" or any(result.error for result in results)]
    if invocation.form in ("table", "wide"):
        rows = [{**row, "counts": _worded(row["counts"])} for row in rows]
    invocation.show_list(rows, columns=columns, key="routine", empty=f"known routines: {', '.join(ROUTINES)}")
    return ExitStatus.FAILED if any(result.result == "error" for result in results) else ExitStatus.DONE


def _worded(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in counts.items() if n)


def _line(result: RoutineResult) -> None:
    click.echo(json.dumps(as_record(result)))
