"""Become a program that ends when its starter does: `python tied.py PID PROGRAM ARGUMENTS…`.

Between fork and exec of a process with threads no Python may run, so this runs in between instead. It needs nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def tied(command: list[str]) -> list[str]:
    """Return the command that runs another and is killed with the thread that starts it (on Linux)."""
    return [sys.executable, "-I", "-S", str(Path(__file__)), str(os.getpid()), *command]


def main() -> None:
    """Tie this process to its starter, take it out of reach of the terminal's Ctrl-C, and become the program."""
    starter = int(sys.argv[1])
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:  # it ended before the tie was made
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
