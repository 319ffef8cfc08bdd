"""What the benchmark's child processes say on stdout, and how they count.

The same code counts for the reference worker and for ours, so neither pays more for it.
`children` is the other end. Stamps are CLOCK_MONOTONIC, which all processes of a machine share.

A line of ours starts with ``@``; anything else (a log) is ignored by the reader:
``@ready`` · ``@count N NS`` · ``@start SEQ NS`` · ``@sent SEQ BEFORE_NS AFTER_NS`` · ``@done JSON``.
"""

import asyncio
import json
import os
import resource
import sys
import time

REPORT_SECONDS = 0.01
LATENCY = os.environ.get("BENCH_LATENCY") == "1"
"""Set by the parent: each handler call prints a stamp instead of only counting."""

_count = 0


def _hit(seq: int) -> None:
    global _count
    _count += 1


def _stamp(seq: int) -> None:
    now = time.monotonic_ns()
    _hit(seq)
    if seq >= 0:
        say("start", seq, now)


record = _stamp if LATENCY else _hit
"""Call it first in a handler: counts the call; in a latency run also prints when it began, if `seq` >= 0."""


def say(word: str, *values: object) -> None:
    """Write one line to the parent."""
    sys.stdout.write(" ".join(("@" + word, *map(str, values))) + "\n")
    sys.stdout.flush()


async def report() -> None:
    """Tell the parent the number of handler calls each 10 ms while it moves; runs until cancelled."""
    told = 0
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        if _count != told:
            told = _count
            say("count", told, time.monotonic_ns())


def gate() -> None:
    """Tell the parent that all imports are done, and wait for its GO."""
    say("ready")
    sys.stdin.readline()


def cpu_seconds() -> float:
    """Return user + system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def done(**values: object) -> None:
    """Tell the parent the result of a producer."""
    say("done", json.dumps(values))
