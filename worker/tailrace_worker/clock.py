"""The clock of durations inside a process.

It counts the time a machine or a virtual machine was suspended (CLOCK_BOOTTIME), since a lease goes on expiring then.
Only durations come from here; everything that is written takes the database's clock (engine rule: database clock
only).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

if hasattr(time, "CLOCK_BOOTTIME"):
    boot: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:  # macOS, Windows: their monotonic clocks are the nearest thing
    boot = time.monotonic
