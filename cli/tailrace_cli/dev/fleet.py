"""The workers of one queue: as many as are wanted, of the present plan, started anew when they die.

It only starts and ends processes; `session` says how many, and tells the database of those that died. Those of an older
plan are drained one for each new one that is ready, so that jobs are always taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tailrace_cli.dev.plan import Plan
from tailrace_cli.dev.process import Worker

__all__ = ["Fleet"]

LONGEST_PAUSE_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.5
STEADY_SECONDS = 30.0
"""A worker that lived this long has not failed at its start: the next failure counts as the first."""

KILL_AFTER_SECONDS = 20.0
"""How long after its drain timeout a worker may still be there."""


class Fleet:
    """The processes of one queue.

    Args:
        plan: What they run.
        environment: Gives all variables of a plan's workers.
        on_line: Told each line that a worker writes.
        on_end: Told each worker that has ended.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        plan: Plan,
        environment: Callable[[Plan], Mapping[str, str]],
        *,
        on_line: Callable[[Worker, str], None],
        on_end: Callable[[Worker], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.wanted = 0
        self.restarts = 0
        self._environment, self._on_line, self._tell_end, self._clock = environment, on_line, on_end, clock
        self._fresh: list[Worker] = []
        self._outdated: list[Worker] = []
        self._failures = 0
        self._not_before = 0.0

    # ---- asked -------------------------------------------------------------------------------------------------------
    @property
    def workers(self) -> list[Worker]:
        """Every process that lives."""
        return [*self._fresh, *self._outdated]

    @property
    def failing(self) -> bool:
        """Whether workers ended by themselves again and again, and none has lived since."""
        return self._failures > 1

    def count(self, *, ready: bool = False, draining: bool = False) -> int:
        """How many workers there are: those told to end, or the others, or of these the ready ones.

        Args:
            ready: Only those that claim.
            draining: Those that were told to end.
        """
        return sum(w.draining == draining and (w.ready or not ready) for w in self.workers)

    # ---- told --------------------------------------------------------------------------------------------------------
    def adopt(self, plan: Plan) -> bool:
        """Take a changed plan; returns whether its workers are other ones, which replace the present ones.

        Args:
            plan: The plan.
        """
        other = not plan.same_workers(self.plan)
        self.plan = plan
        if other:
            self._outdated += self._fresh
            self._fresh = []
            self._failures, self._not_before = 0, 0.0
        return other

    def see(self, jobs: Mapping[str, int]) -> None:
        """Learn what the database knows of the workers.

        Args:
            jobs: Jobs that each has, by the first part of its id; those that it does not know are not ready.
        """
        now = self._clock()
        for worker in self.workers:
            worker.ready = worker.id in jobs
            worker.jobs = jobs.get(worker.id, 0)
            if worker.ready and not worker.draining and now - worker.started > STEADY_SECONDS:
                self._failures = 0

    async def steer(self) -> None:
        """Start what is missing and end what is too much.

        Raises:
            InvalidOption: The command cannot be started.
        """
        staying = [w for w in self._fresh if not w.draining]
        missing = self.wanted - len(staying)
        if missing > 0 and self._clock() >= self._not_before:
            for _ in range(missing):
                await self._start()
        _drain(staying, -missing)
        ready = sum(w.ready for w in self._fresh if not w.draining)
        old = [w for w in self._outdated if not w.draining]
        _drain(old, len(old) - max(0, self.wanted - ready))
        self._end_overdue()

    def drain(self, *, hurry: bool = False) -> None:
        """Tell every worker to end.

        Args:
            hurry: Tell it also those that end already: then they do not wait for what runs.
        """
        self.wanted = 0
        for worker in self.workers:
            if hurry or not worker.draining:
                worker.drain()

    def kill(self) -> None:
        """End every worker at once."""
        self.wanted = 0
        for worker in self.workers:
            worker.kill()

    # ---- inside ------------------------------------------------------------------------------------------------------
    async def _start(self) -> None:
        taken = {w.name for w in self.workers}
        number = next(n for n in range(1, len(taken) + 2) if f"{self.plan.name}-{n}" not in taken)
        worker = Worker(
            f"{self.plan.name}-{number}",
            self.plan.command,
            self._environment(self.plan),
            on_line=self._on_line,
            on_end=self._ended,
        )
        await worker.start()
        self._fresh.append(worker)

    def _ended(self, worker: Worker) -> None:
        for group in (self._fresh, self._outdated):
            if worker in group:
                group.remove(worker)
        if not worker.draining:
            now = self._clock()
            self.restarts += 1
            self._failures = 1 if now - worker.started > STEADY_SECONDS else self._failures + 1
            pause = 0.0 if self._failures == 1 else FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 2, 10)
            self._not_before = now + min(LONGEST_PAUSE_SECONDS, pause)
        self._tell_end(worker)

    def _end_overdue(self) -> None:
        longest = self.plan.resource.spec.worker.drain_timeout_seconds + KILL_AFTER_SECONDS
        for worker in self.workers:
            if worker.draining_since is not None and time.monotonic() - worker.draining_since > longest:
                worker.kill()


def _drain(workers: list[Worker], surplus: int) -> None:
    """End as many as are too much: those that are not ready first, then those with the fewest jobs, then the newest."""
    for worker in sorted(workers, key=lambda w: (w.ready, w.jobs, -w.started))[: max(0, surplus)]:
        worker.drain()
