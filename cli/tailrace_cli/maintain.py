"""`tailrace maintain`: the routines that keep the tables clean, where no worker or controller runs them."""

from __future__ import annotations

import dataclasses
import signal
import threading
from typing import Any

import click

from tailrace import logs
from tailrace.errors import InvalidOption
from tailrace.maintenance import ROUTINES, RoutineResult, routines, run_forever, run_once
from tailrace.settings import WorkerSettings
from tailrace_cli.failures import ExitStatus
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.output import Column
from tailrace_cli.settings_options import given_flags, settings_options

__all__ = ["add_to"]

_COLUMNS = (Column("routine"), Column("result"), Column("seconds", right=True), Column("counts"), Column("error"))
_SETTINGS = ("reaper_seconds", "log_format", "log_level")


def add_to(group: click.Group) -> None:
    """Add the command to a group."""

    @command(
        group,
        "maintain",
        example="tailrace maintain\ntailrace maintain reaper --once\ntailrace maintain sweep --full",
        params=settings_options(WorkerSettings, without=set(WorkerSettings.model_fields) - set(_SETTINGS)),
    )
    @click.argument("names", metavar="[ROUTINE]...", nargs=-1)
    @click.option("--queue", "queues", multiple=True, metavar="NAME", help="Not in this release: routines look at every queue.")
    @click.option("--once", is_flag=True, help="Run each routine once and end.")
    @click.option("-n", "--dry-run", is_flag=True, help="Count what one run would do and change nothing.")
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
        """Run maintenance: reaper, sweep, cron, statistics, housekeeping; all of them unless some are named.

        Runs each at its period until SIGTERM or Ctrl-C. Workers do the same when nobody else does. Any number may run.
        """
        if queues:
            raise InvalidOption("not in this release", field="queue", hint="Leave it out: routines look at every queue")
        settings = WorkerSettings.load({**given_flags(flags), **invocation.overrides()})
        logs.configure(form=settings.log_format, level=settings.log_level)
        chosen = routines(names, reaper_seconds=settings.reaper_seconds)
        database = settings.database("tailrace")
        invocation.connect(database).close()  # unreachable or not migrated is told at once
        stop = _stopped_by_signals()
        if once or dry_run or full:
            return _report(invocation, run_once(database, chosen, dry_run=dry_run, full=full, stop=stop))
        run_forever(database, chosen, stop)
        return ExitStatus.DONE


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _report(invocation: Invocation, results: list[RoutineResult]) -> int:
    rows = [{**dataclasses.asdict(result), "seconds": round(result.seconds, 3)} for result in results]
    columns = [column for column in _COLUMNS if column.name != "error" or any(result.error for result in results)]
    invocation.show_list(rows, columns=columns, key="routine", empty=f"known routines: {', '.join(ROUTINES)}")
    return ExitStatus.FAILED if any(result.result == "error" for result in results) else ExitStatus.DONE
