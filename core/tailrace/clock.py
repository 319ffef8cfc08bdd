"""The clock of durations inside a process: it also counts the time in which the machine was suspended.

A lease goes on expiring then, a worker's and a controller's, so whoever holds one must notice. Only durations come from
here: what is written takes the database's clock, and the wall's in what Kubernetes keeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

__all__ = ["boot"]

if hasattr(time, "CLOCK_BOOTTIME"):
    boot: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:  # macOS, Windows: their monotonic clocks are the nearest thing
    boot = time.monotonic
