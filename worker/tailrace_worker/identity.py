"""Who this process is: an id of its own for every start, also under a name that was given.

A replacement with its predecessor's name would look alive and hide the jobs that the predecessor left. In a pod the id is
left where the kubelet reads it, and the controller takes it for proof when the process has ended.
"""

from __future__ import annotations

import os
import platform
import secrets
from contextlib import suppress
from pathlib import Path

TERMINATION_LOG = Path("/dev/termination-log")
"""Where the kubelet looks for a container's last message, unless the pod says otherwise."""


def worker_id(given: str | None) -> str:
    """Make the id of this process: the given name, or the host's, and four random bytes.

    In a pod it begins with the pod's UID and the container: an id is proof of a death in that pod only.

    Args:
        given: The name that people chose; None for none.
    """
    pod = os.environ.get("TAILRACE_POD_UID")
    name = given or (os.environ.get("TAILRACE_CONTAINER", "worker") if pod else platform.node() or "worker")
    return f"{f'{pod}/{name}' if pod else name}"[:200] + f"/{secrets.token_hex(4)}"


def leave_trace(ident: str, file: Path | None = None) -> None:
    """Write the id where the kubelet reports it after any death, also a SIGKILL: the proof of death.

    Args:
        ident: This process's id.
        file: Where; default: the container's termination log, in a pod that has one.
    """
    if file is None and os.environ.get("TAILRACE_POD_UID") and TERMINATION_LOG.exists():
        file = TERMINATION_LOG
    if file is not None:
        with suppress(OSError):  # it proves nothing then, and the lease has to run out
            file.write_text(ident + "\n", encoding="utf-8")
