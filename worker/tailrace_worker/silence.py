"""How long a worker listens to a server that says nothing.

`tailrace.db.silence` hangs up. Used by the event loop (work, ear), by the heartbeat and at the end of the process.
"""

from __future__ import annotations

import asyncio

from tailrace.clock import boot
from tailrace.db.silence import bounded, hang_up

__all__ = ["TURN_SECONDS", "Turns", "bounded", "hang_up"]

TURN_SECONDS = 65.0
"""Longer than the statement_timeout of our sessions: a server that lives has answered or refused by then."""


class Turns(asyncio.Lock):
    """A lock that tells how long its present holder has had it.

    Time is counted in calls of `tick`, so that a process that was stopped does not take its own sleep for the server's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._turn = self._seen = 0
        self._waited = 0.0
        self._ticked = boot()

    async def acquire(self) -> bool:  # type: ignore[override]  # a Literal[True] in the stubs
        """Wait for the turn."""
        await super().acquire()
        self._turn += 1
        return True

    def tick(self) -> float:
        """Count on. To be called about twice a second.

        Returns:
            For how many seconds the present turn has lasted, as far as this process was awake.
        """
        now = boot()
        passed, self._ticked = min(1.0, now - self._ticked), now
        if not self.locked() or self._turn != self._seen:
            self._seen, self._waited = self._turn, 0.0
        else:
            self._waited += passed
        return self._waited
