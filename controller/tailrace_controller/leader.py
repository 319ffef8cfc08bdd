"""Leader election: who of several controllers writes to the API server.

It guards nothing else: maintenance runs in every replica under the database's own locks. The Lease is certain for less
time than it lasts, so that a write that was sent while it was certain has ended before another may begin.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from tailrace.clock import boot
from tailrace.names.events import Event
from tailrace_controller.kube.errors import KubeError
from tailrace_controller.kube.lease import LeaseLock

__all__ = ["Leader"]

log: Final = logging.getLogger("tailrace.controller")

_RELEASE_SECONDS: Final = 3.0


class Leader:
    """One process's part in the election.

    Attributes:
        since: When it began to lead, by the clock of durations; None while it does not.
    """

    def __init__(
        self,
        lock: LeaseLock,
        *,
        identity: str,
        deadline: float = 10.0,
        retry: float = 2.0,
        clock: Callable[[], float] = boot,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Begin as one that does not lead.

        Args:
            lock: The Lease.
            identity: Ours in it.
            deadline: Seconds after the last renewal at which it counts as lost; less than it lasts.
            retry: Seconds between two tries.
            clock: Seconds that only go forward, also while the machine is suspended.
            jitter: Gives a number from 0 up to 1.
        """
        self._lock, self._identity, self._deadline, self._retry = lock, identity, deadline, retry
        self._clock, self._jitter = clock, jitter
        self._certain_until = float("-inf")
        self._error = ""
        self.since: float | None = None

    def leads(self) -> bool:
        """Whether the Lease is certainly ours at this moment; may be asked from any thread."""
        return self._clock() < self._certain_until

    @property
    def holder(self) -> str:
        """Who has the Lease as far as we saw; empty for nobody."""
        return self._lock.holder

    @property
    def trouble(self) -> str:
        """Why the last try to read or write the Lease failed; empty when it did not."""
        return self._error

    async def win(self) -> None:
        """Return when the Lease is ours; tries for as long as it takes."""
        told, seen = "", self._lock.holder
        while not await self._try():
            if self._error != told:
                told = self._error
                if told:
                    log.warning("the Lease cannot be read: %s", told, extra={"event": Event.LEADER_UNKNOWN, "error": told})
            if self.holder != seen:
                seen = self.holder
                log.info("another controller leads", extra={"event": Event.LEADER_SEEN, "holder": seen})
            await asyncio.sleep(self._retry * (0.8 + 0.4 * self._jitter()))
        self.since = self._clock()
        log.info("leading", extra={"event": Event.LEADER_WON, "holder": self._identity})

    async def keep(self) -> str:
        """Renew the Lease until it is lost; returns why, as a clause for the log.

        Nothing is written from the moment on at which it is no longer certain, which may be before this returns.
        """
        while (left := self._certain_until - self._clock()) > 0:
            await asyncio.sleep(min(self._retry, left))
            left = self._certain_until - self._clock()
            if left > 0 and not await self._try(within=left) and self.holder not in ("", self._identity):
                return self._lost(f"{self.holder} has it")
        return self._lost(self._error or f"it was not renewed for {self._deadline - left:.0f} s")

    async def release(self) -> None:
        """Stop leading and give the Lease back, so that another need not wait for its end."""
        if self.since is None:
            return
        self._certain_until, self.since = float("-inf"), None
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._lock.release()
        except TimeoutError:
            log.warning("the Lease could not be given back in time", extra={"event": Event.LEADER_LOST})

    async def _try(self, *, within: float = float("inf")) -> bool:
        began, error, ours = self._clock(), "", False
        try:
            async with asyncio.timeout(min(within, self._deadline / 2)):
                ours = await self._lock.take()
        except TimeoutError:
            error = "the API server did not answer in time"
        except KubeError as problem:
            error = str(problem)
        self._error = error  # not before it is known: readiness would flap with each try
        if ours:
            self._certain_until = began + self._deadline
        return ours

    def _lost(self, why: str) -> str:
        self._certain_until, self.since = float("-inf"), None
        log.error("the Lease is lost: %s", why, extra={"event": Event.LEADER_LOST, "holder": self.holder})
        return why
