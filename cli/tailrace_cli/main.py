"""The `tailrace` command: its groups and the boundary where errors become sentences and exit statuses.

Each group of commands is one module; `failures` words errors, `invocation` holds the common options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

import click

from tailrace_cli import dead_letters, doctor, enqueue, jobs, leases, maintain, migrate, queues, tasks, worker, workers
from tailrace_cli.failures import ExitStatus, describe
from tailrace_cli.invocation import Invocation, command, common_options, pass_invocation

__all__ = ["main", "tailrace"]


@click.group(params=common_options(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.pass_context
def tailrace(ctx: click.Context) -> None:
    """A job queue that lives in your PostgreSQL.

    Exit status: 0 done; 1 it failed or found a problem; 2 wrong usage; 3 the database cannot be reached; 130 interrupted.
    """
    ctx.ensure_object(Invocation)


for module in (migrate, doctor, worker, maintain, tasks, enqueue, jobs, queues, workers, leases, dead_letters):
    module.add_to(tailrace)


@command(tailrace, "version", example="tailrace version")
@pass_invocation
def show_version(invocation: Invocation) -> None:
    """Print the version of this installation."""
    found = version("tailrace")
    if invocation.form in ("table", "wide", "name"):
        click.echo(found)
    else:
        invocation.show_one({"version": found}, key="version")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its status.

    Args:
        arguments: Default: those of the process.
    """
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its status.

    Args:
        arguments: Default: those of the process.
    """
    invocation = Invocation()
    try:
        status = tailrace.main(
            list(sys.argv[1:] if arguments is None else arguments), "tailrace", standalone_mode=False, obj=invocation
        )
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.DONE
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitStatus.FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: everything becomes a sentence and a status
        text, status = describe(error, verbose=invocation.verbose)
        click.echo(f"tailrace: {text}", err=True)
        return status
    return status if isinstance(status, int) else ExitStatus.DONE
