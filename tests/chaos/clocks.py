"""Wrong clocks: libfaketime in front of the system's, for whole processes, and changed while they run.

Only the time of day is moved; clocks that measure durations stay, as when an administrator sets a clock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

PLACES = (
    "/usr/lib/*/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
    "/usr/local/lib/faketime/libfaketime.so.1",
)


@cache
def library() -> Path | str:
    """Return libfaketime, installed by the system's package manager if need be, or why there is none."""
    found = _look()
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        for command in (["update"], ["install", "-y", "--no-install-recommends", "libfaketime"]):
            done = subprocess.run(["apt-get", "-q", *command], check=False, capture_output=True, text=True)
        found = _look()
        if found is None:
            return f"apt-get install libfaketime: {(done.stderr or done.stdout).strip()[-300:]}"
    return found or "libfaketime is not installed, and this user cannot install it"


def _look() -> Path | None:
    for pattern in PLACES:
        for path in Path("/").glob(pattern.lstrip("/")):
            return path
    return None


class Clock:
    """A clock that processes started with `environment` see; set it while they run."""

    def __init__(self, file: Path) -> None:
        """Begin with the right time.

        Args:
            file: Where the offset is kept; a server's account must be able to read it.
        """
        found = library()
        if isinstance(found, str):
            pytest.skip(f"clocks cannot be moved: {found}")
        self._library, self._file = found, file
        self.set(0)

    def set(self, seconds: int) -> None:
        """Move the clock to so many seconds beside the right time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.chmod(0o644)
        new.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process that is to see this clock."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }
