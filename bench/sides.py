"""The two sides of a comparison: how each is set up, started and asked whether it is done.

A side is a database template, a worker command and a few statements. `runs` treats all alike.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench import statements
from bench.server import Server

CONTROL = {name: text.encode() for name, text in statements.load(Path(__file__).with_name("control.sql")).items()}

TUNED_SLOTS = 100
"""Slots of the tuned worker; the reference has as many lanes."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One contender."""

    label: str
    """How tables name it."""
    client: str
    """``ceil`` or ``ours``: the producer, the template and the control statements."""
    worker: tuple[str, ...]
    """Command of a worker process."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of worker and producer processes, beside the connection string."""


def ceil() -> Side:
    """The reference: batches of 1,000 rows, 100 lanes."""
    return Side(label="ceil", client="ceil", worker=(sys.executable, "-m", "bench.ceil.worker"))


def ours(*, slots: int | None = TUNED_SLOTS, label: str | None = None, queue: str = "default") -> Side:
    """Tailrace as a user runs it: the command line's worker with its metrics port, leases and heartbeats.

    Args:
        slots: jobs at once; None leaves every setting at its default.
        label: name in tables.
        queue: what it serves.
    """
    command = [sys.executable, "-m", "tailrace_cli", "worker", "bench.gated_app:app", "--queue", queue]
    if slots is not None:
        command += ["--slots", str(slots)]
    return Side(
        label=label or ("ours" if slots is not None else "ours, defaults"),
        client="ours",
        worker=tuple(command),
        environment={"TAILRACE_METRICS_PORT": "0", "TAILRACE_LOG_LEVEL": "WARNING"},
    )


def make_template(server: Server, client: str) -> str:
    """Create the empty database that runs of a client are cloned from; returns its name."""
    name = f"template_{client}"
    server.recreate(name)
    if client == "ceil":
        schema = statements.load(Path(__file__).parent / "ceil" / "statements.sql")["schema"]
        with server.connect(name) as connection:
            connection.execute(schema.encode())
    else:
        command = [sys.executable, "-m", "tailrace_cli", "migrate", "--database-url", server.dsn(name)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return name
