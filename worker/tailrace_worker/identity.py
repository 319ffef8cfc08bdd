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

from tailrace.errors import TailraceError

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


LONGEST_WORDS = 1000
"""Characters of an error that are left; the kubelet reads 4 KiB."""


def leave_trace(ident: str, file: Path | None = None) -> None:
    """Write the id where the kubelet reports it after any death, also a SIGKILL: the proof of death.

    Args:
        ident: This process's id.
        file: Where; default: the container's termination log, in a pod that has one.
    """
    place = _place(file)
    if place is not None:
        with suppress(OSError):  # it proves nothing then, and the lease has to run out
            place.write_text(ident + "\n", encoding="utf-8")


def leave_words(error: BaseException, file: Path | None = None) -> None:
    """Write why this process ends below the id, so that the status of its queue can say it.

    Of errors that are not ours only the type is left: their texts may hold what a job is about.

    Args:
        error: What ends it.
        file: As for `leave_trace`.
    """
    place = _place(file)
    if place is not None:
        words = " ".join(str(error).split()) if isinstance(error, TailraceError) else type(error).__name__
        with suppress(OSError), place.open("a", encoding="utf-8") as log:
            log.write(words[:LONGEST_WORDS] + "\n")


def _place(file: Path | None) -> Path | None:
    if file is None and os.environ.get("TAILRACE_POD_UID") and TERMINATION_LOG.exists():
        return TERMINATION_LOG
    return file
