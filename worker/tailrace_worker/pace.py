"""How many jobs to take with one claim.

A claim takes the free slots and what this worker starts within about 50 ms at its measured rate, so that tiny jobs
come in batches of 1,000 and slow ones one slot at a time. Nothing is taken ahead while the run time is unknown or
long. claim.py asks, run.py measures.
"""

from __future__ import annotations

AHEAD_SECONDS = 0.05
SINGLE_SECONDS = 3.0
"""How long nothing is taken ahead after jobs on their last attempt had to go back."""
BATCH_ROWS = 1000
BATCH_BYTES = 1 << 20


class Pace:
    """Run time, rate and payload size of one queue in this worker, as moving averages."""

    def __init__(self, slots: int, now: float) -> None:
        self.slots = slots
        self.mean: float | None = None  # seconds a job runs
        self.rate = 0.0  # jobs that end in a second
        self.bytes = 0.0  # mean size of a payload
        self.ahead = 0  # jobs that may wait here beyond the slots
        self.prefetch = True
        self.run_seconds = 0.0
        self.runs = 0
        self.all_runs, self.all_seconds = 0, 0.0  # since the start, up to the last claim
        self._ended = 0
        self._since = now
        self._single_until = 0.0

    def last_attempts(self, now: float) -> None:
        """More jobs on their last attempt came than slots are free; they must not wait here, so take none ahead for a while."""
        self._single_until = now + SINGLE_SECONDS

    def ended(self, jobs: int) -> None:
        """Count jobs whose outcome is known since the last claim."""
        self._ended += jobs

    def payload(self, size: int) -> None:
        """Note the size in bytes of a sampled payload."""
        self.bytes = size if not self.bytes else 0.9 * self.bytes + 0.1 * size

    def slower(self, age: float) -> None:
        """What runs now is older than the mean says: believe it."""
        self.mean = age
        self._plan()

    def size(self, *, running: int, waiting: int, now: float) -> int:
        """How many jobs the next claim should take.

        Args:
            running: Jobs that run now.
            waiting: Jobs that were taken and have not started.
            now: This process's clock in seconds.

        Returns:
            0 or less when nothing should be taken.
        """
        if self.runs:
            self.all_runs, self.all_seconds = self.all_runs + self.runs, self.all_seconds + self.run_seconds
            mean = self.run_seconds / self.runs
            rate = self._ended / max(1e-6, now - self._since)
            self.mean = mean if self.mean is None else 0.7 * self.mean + 0.3 * mean
            self.rate = max(rate, 0.7 * self.rate + 0.3 * rate)
            self.run_seconds, self.runs, self._ended, self._since = 0.0, 0, 0, now
        self._plan()
        if now < self._single_until:
            self.ahead = 0
        most = BATCH_ROWS if not self.bytes else min(BATCH_ROWS, max(self.slots, int(BATCH_BYTES / self.bytes)))
        return min(most, 2 * self.ahead + self.slots - running - waiting)

    def _plan(self) -> None:
        mean = self.mean
        if mean is None or not self.prefetch or mean > AHEAD_SECONDS:
            self.ahead = 0
        else:
            by_time = AHEAD_SECONDS * self.slots / max(mean, 1e-6)
            self.ahead = int(min(BATCH_ROWS, by_time, self.slots + 2 * self.rate * AHEAD_SECONDS))
