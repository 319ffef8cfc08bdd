"""`tailrace worker`: one process that claims and runs jobs."""

from __future__ import annotations

from typing import Any

import click

from tailrace.app import load_app
from tailrace.settings import WorkerSettings
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.settings_options import given_flags, secret_notes, settings_options

__all__ = ["add_to"]

_NEEDED = frozenset({"uvloop", "prometheus_client"})


def add_to(group: click.Group) -> None:
    """Add the command to a group."""

    @command(
        group,
        "worker",
        example="tailrace worker shop.jobs:app --queue webhooks=20 --queue images=2",
        params=settings_options(WorkerSettings),
        epilog=secret_notes(WorkerSettings),
    )
    @click.argument("app", metavar="MODULE:APP", required=False)
    @click.option("--until-empty", is_flag=True, help="Run what is there and end.")
    @pass_invocation
    def worker(invocation: Invocation, *, app: str | None, until_empty: bool, **flags: Any) -> int:
        """Claim and run jobs until told to stop.

        SIGTERM and Ctrl-C drain: nothing new is claimed, running jobs may finish, the rest is given back. Flags win over
        environment variables, these over the TOML file that TAILRACE_SETTINGS_FILE names.
        """
        if app is None:
            raise click.UsageError("name the application: MODULE:APP, such as shop.jobs:app")
        found = load_app(app)
        settings = WorkerSettings.load({**given_flags(flags), **invocation.overrides()}, app=found.arguments)
        try:
            from tailrace_worker.service import run_worker
        except ModuleNotFoundError as error:
            if error.name in _NEEDED:
                raise click.ClickException(f'the worker needs {error.name}: pip install "tailrace[worker]"') from None
            raise
        found.configure(settings)  # handlers that enqueue do so where the worker works
        return run_worker(found, settings, until_empty=until_empty)
