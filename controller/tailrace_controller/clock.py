"""The clock of durations inside the controller: it also counts the time in which the machine was suspended.

The Lease goes on running out then, so whoever holds it must notice. What is written takes other clocks: the database's,
and the wall's in what Kubernetes keeps.
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
