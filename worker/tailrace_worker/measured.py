"""What this worker has measured of run times, as each heartbeat publishes it for the estimates of demand.

Sums that fade over two minutes, so that the statistics can add those of all workers. `pace` counts per claim; nothing here
is on the way of a job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tailrace.clock import boot
from tailrace_worker.pace import Pace

FADE_SECONDS = 120.0


class Measured:
    """Called at each beat, in the heartbeat's thread.

    Args:
        paces: What counts, by queue.
        clock: Seconds that only go forward.
    """

    def __init__(self, paces: Mapping[str, Pace], clock: Callable[[], float] = boot) -> None:
        self._paces, self._clock = paces, clock
        self._at = clock()
        self._seen = dict.fromkeys(paces, (0, 0.0))
        self._sums = dict.fromkeys(paces, (0.0, 0.0))

    def __call__(self) -> dict[str, dict[str, float]]:
        """Return the runs of about the last two minutes and their seconds, by queue; queues that ran nothing are left out."""
        now = self._clock()
        fade = math.exp((self._at - now) / FADE_SECONDS)
        self._at = now
        for queue, pace in self._paces.items():
            runs, seconds = pace.all_runs, pace.all_seconds
            before, sums = self._seen[queue], self._sums[queue]
            self._seen[queue] = (runs, seconds)
            self._sums[queue] = (sums[0] * fade + runs - before[0], sums[1] * fade + seconds - before[1])
        return {
            queue: {"runs": round(runs, 4), "seconds": round(seconds, 6)}
            for queue, (runs, seconds) in self._sums.items()
            if runs >= 0.0001
        }
