"""The word `tailrace dev`: its options, the checks before anything runs, signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tailrace.errors import InvalidOption, UnknownApp
from tailrace.settings import WorkerSettings
from tailrace_cli.dev.board import OURS, Board, LogHandler, open_board
from tailrace_cli.dev.place import Place, open_place, prepare, schema_of
from tailrace_cli.dev.plan import TAILRACE, Plan, Sources
from tailrace_cli.dev.session import Session
from tailrace_cli.failures import ExitStatus
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.settings_options import given_flags, settings_options

__all__ = ["add_to"]

_CHECK_SECONDS = 60
_SETTINGS = ("reaper_seconds",)


def add_to(group: click.Group) -> None:
    """Add the command to a group."""

    @command(
        group,
        "dev",
        example="tailrace dev examples/webhooks/jobqueue.yaml\ntailrace dev queues/*.yaml --port 5433",
        params=settings_options(WorkerSettings, without=set(WorkerSettings.model_fields) - set(_SETTINGS)),
    )
    @click.argument("files", metavar="FILE...", nargs=-1, type=click.Path(path_type=Path))
    @click.option("--env-file", type=click.Path(path_type=Path), help="Variables and Secrets. [default: .env beside FILE]")
    @click.option("--state-dir", type=click.Path(path_type=Path), help="Where the embedded PostgreSQL keeps its data.")
    @click.option("--port", type=click.IntRange(1, 65_535), help="Its port on 127.0.0.1. [default: any free one]")
    @pass_invocation
    def dev(
        invocation: Invocation,
        *,
        files: tuple[Path, ...],
        env_file: Path | None,
        state_dir: Path | None,
        port: int | None,
        **flags: Any,
    ) -> int:
        """Run the queues of JobQueue files on this machine, without a cluster.

        Migrates and applies the settings, starts as many workers as the demand asks for, within the bounds of the file, does
        the maintenance, and shows how the queues stand. Workers that die are started anew and their jobs run at once. A
        changed file is taken over while it runs. Ctrl-C drains and ends, a second one does not wait for what runs.

        The database is that of --database-url or TAILRACE_DATABASE_URL, which the .env may set too; without one, an embedded
        PostgreSQL that keeps its data between runs.
        """
        if not files:
            raise click.UsageError("name a JobQueue file, such as examples/webhooks/jobqueue.yaml")
        settings = WorkerSettings.load({**given_flags(flags), **invocation.overrides()})
        _until_stopped(
            invocation, Sources(files, env_file), reaper_seconds=settings.reaper_seconds, state_dir=state_dir, port=port
        )
        return ExitStatus.DONE


def _until_stopped(
    invocation: Invocation, sources: Sources, *, reaper_seconds: float, state_dir: Path | None, port: int | None
) -> None:
    plans = sources.plans()
    overrides = invocation.overrides()
    if overrides["schema_name"] is None and not os.environ.get("TAILRACE_SCHEMA"):
        overrides["schema_name"] = schema_of(plans)
    _interruptible()
    with open_board(form=invocation.form, quiet=invocation.quiet) as board, _log_on(board, verbose=invocation.verbose):

        def say(text: str) -> None:
            board.log(OURS, text)

        folder = sources.files[0].parent
        opened = open_place(overrides, local=sources.variables(), state_dir=state_dir, port=port, folder=folder, say=say)
        with opened as place:
            _check_apps(plans, place)
            prepare(place, plans, say)
            if place.url_file is not None:
                say(f"for other programs: export TAILRACE_DATABASE_URL_FILE={place.url_file}")
            asyncio.run(_run(place, sources, plans, board, reaper_seconds=reaper_seconds))


async def _run(place: Place, sources: Sources, plans: list[Plan], board: Board, *, reaper_seconds: float) -> None:
    session = Session(place, sources, plans, board, reaper_seconds=reaper_seconds)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, *_ends()):
        loop.add_signal_handler(number, session.stop)
    try:
        await session.run()
    finally:
        for number in (signal.SIGINT, *_ends()):
            loop.remove_signal_handler(number)
        _interruptible()  # the loop has put the system's own handlers back: those end us without order


def _interruptible() -> None:
    """Let SIGTERM and a closed terminal interrupt as Ctrl-C does, so that a server that was started does not stay."""
    for number in _ends():
        signal.signal(number, signal.default_int_handler)


def _ends() -> list[signal.Signals]:
    """The signals that end us beside Ctrl-C; under nohup a closed terminal does not."""
    asked = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    return [number for number in asked if signal.getsignal(number) is not signal.SIG_IGN]


def _check_apps(plans: list[Plan], place: Place) -> None:
    """Import each application once in a process of its own, so that what is wrong is said before anything waits for it.

    Raises:
        UnknownApp: It cannot be imported, or has no task.
        InvalidOption: The worker's arguments name no application.
    """
    checked: list[tuple[str, dict[str, str]]] = []
    for plan in plans:
        if plan.command[: len(TAILRACE)] != TAILRACE:
            continue  # a program of its own says itself what it lacks
        if plan.app is None:
            raise InvalidOption(
                f"of queue {plan.queue!r} start no worker: {' '.join(plan.command[len(TAILRACE) :])}",
                field="spec.template.spec.containers.args",
                hint='name the application: args: ["worker", "shop.jobs:app"]',
            )
        own = {name: value for name, value in plan.variables.items() if not name.startswith("TAILRACE_")}
        if (plan.app, own) not in checked:
            checked.append((plan.app, own))
            _check_app(plan.app, {**os.environ, **own, **place.variables}, queue=plan.queue)


def _check_app(app: str, variables: dict[str, str], *, queue: str) -> None:
    try:
        done = subprocess.run(
            [*TAILRACE, "tasks", app, "-o", "name"],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_CHECK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise UnknownApp(f"{app} of queue {queue!r} was not imported within {_CHECK_SECONDS} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].removeprefix("tailrace: ")
        raise UnknownApp(f"the worker of queue {queue!r} cannot start: {said}")
    if not done.stdout.strip():
        raise UnknownApp(f"{app} has no task", hint="decorate a function with @app.task, or name its module in imports")


@contextmanager
def _log_on(board: Board, *, verbose: bool) -> Iterator[None]:
    """Put our own log on the board while it is there."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers[:] = [LogHandler(board)]
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
