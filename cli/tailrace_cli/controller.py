"""`tailrace controller`: one process that turns JobQueue resources into running workers."""

from __future__ import annotations

from typing import Any

import click

from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.settings_options import given_flags, settings_options
from tailrace_controller.settings import ControllerSettings

__all__ = ["add_to"]

_NEEDED = frozenset({"aiohttp", "kopf", "kubernetes", "prometheus_client", "uvloop"})
_EXAMPLE = """
tailrace controller
tailrace controller --kubeconfig ~/.kube/config --namespace team-a --namespace team-b
"""


def add_to(group: click.Group) -> None:
    """Add the command to a group."""

    @command(group, "controller", example=_EXAMPLE, params=settings_options(ControllerSettings))
    @pass_invocation
    def controller(_: Invocation, **flags: Any) -> int:
        """Look after the JobQueues of a cluster, or of some namespaces.

        Runs in a pod with its service account, or anywhere with a kubeconfig. Of several, one writes to the API server;
        all run maintenance. Databases come from the JobQueues' Secrets. SIGTERM and Ctrl-C give the Lease back and end it;
        workers go on. Exit status 1: the Lease was lost, so that it should be started again.
        """
        settings = ControllerSettings.load(given_flags(flags))
        try:
            from tailrace_controller.service import run_controller
        except ModuleNotFoundError as error:
            if error.name in _NEEDED:
                raise click.ClickException(f'the controller needs {error.name}: pip install "tailrace[controller]"') from None
            raise
        return run_controller(settings)
