"""Who this process is: an id of its own for every start, also under a name that was given.

A replacement with its predecessor's name would look alive and hide the jobs that the predecessor left.
"""

from __future__ import annotations

import os
import platform
import secrets
from contextlib import suppress
from pathlib import Path

TERMINATION_LOG = Path("/dev/termination-log")


def worker_id(given: str | None) -> str:
    """The id of this process: the given name or pod UID and container or host name, and four random bytes."""
    pod = os.environ.get("TAILRACE_POD_UID")
    name = given or (f"{pod}/{os.environ.get('TAILRACE_CONTAINER', 'worker')}" if pod else platform.node() or "worker")
    return f"{name[:200]}/{secrets.token_hex(4)}"


def leave_trace(ident: str) -> None:
    """In a pod, write the id where the kubelet reports it after any death, also a SIGKILL: the proof of death."""
    if os.environ.get("TAILRACE_POD_UID") and TERMINATION_LOG.exists():
        with suppress(OSError):
            TERMINATION_LOG.write_text(ident + "\n", encoding="utf-8")
