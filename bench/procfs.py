"""CPU time, memory and load, read from /proc.

A server's cost is spread over the postmaster, its living backends and those it has reaped;
a worker's over its threads. Used by `runs` around each measured stretch.
"""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")

_PARENT, _USER, _SYSTEM, _REAPED_USER, _REAPED_SYSTEM = 1, 11, 12, 13, 14


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command name (which may hold spaces), or None when it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def process_cpu_seconds(pid: int) -> float:
    """Return user + system time of a process and all its threads; 0 when it is gone."""
    fields = _stat(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / TICKS if fields else 0.0


def _server_ticks(postmaster: int) -> tuple[int, tuple[str, str]]:
    own = _stat(postmaster)
    if own is None:
        raise ProcessLookupError(f"no process {postmaster}: the benchmark's server has gone")
    ticks = sum(int(field) for field in own[_USER : _REAPED_SYSTEM + 1])
    for entry in PROC.iterdir():
        child = _stat(int(entry.name)) if entry.name.isdigit() else None
        if child and int(child[_PARENT]) == postmaster:
            ticks += int(child[_USER]) + int(child[_SYSTEM])
    return ticks, (own[_REAPED_USER], own[_REAPED_SYSTEM])


def server_cpu_seconds(postmaster: int) -> float:
    """Return CPU time of the postmaster, its living children and those already reaped.

    A backend that ends while we look would be missed, so the reading is repeated
    when the postmaster's count of reaped children moved.
    """
    ticks = 0
    for _ in range(5):
        ticks, reaped = _server_ticks(postmaster)
        after = _stat(postmaster)
        if after and (after[_REAPED_USER], after[_REAPED_SYSTEM]) == reaped:
            break
    return ticks / TICKS


def machine_cpu_seconds() -> float:
    """Return busy CPU time of the whole machine, time stolen by the host included."""
    with (PROC / "stat").open() as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / TICKS


def peak_rss_mb(pid: int) -> float:
    """Return the highest resident memory of a process so far (VmHWM), in MB of 1024 kB."""
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
