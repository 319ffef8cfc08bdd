"""Where a job stands, and its result: for people and programs that wait for one.

A look is one statement; waiting repeats it with growing pauses. Beyond the end of a job there is an answer only where its
queue keeps a history or its task its results.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tailrace.db import Blocks, Statement
from tailrace.drivers import AsyncDriver, SyncDriver
from tailrace.jobs.statements import seconds_of
from tailrace.pages import check_id

__all__ = ["AsyncResults", "JobResult", "SyncResults"]

_LIVE: Final = frozenset({"waiting", "running"})
_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True)
class JobResult:
    """Where a job stands."""

    id: int
    """Its id."""
    state: str
    """waiting, running, succeeded, dead, cancelled, replaced, expired, dropped; or gone: ended, and nothing is kept of it."""
    value: Any = None
    """What its handler returned, while its task keeps that; else None."""
    finished_at: datetime | None = None
    """When it ended, as far as that is known."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.state not in _LIVE


def _pauses(timeout: float | timedelta) -> Iterator[float]:
    """Seconds to sleep between looks, until the time is over."""
    end = time.monotonic() + seconds_of(timeout, field="timeout")
    pause = _FIRST_PAUSE_SECONDS
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(_LONGEST_PAUSE_SECONDS, pause * 1.5)


def _statement(blocks: Blocks, job_id: int) -> Statement[JobResult]:
    check_id(job_id)
    return Statement(blocks["jobs.result"], {"id": job_id}, lambda rows: JobResult(job_id, *rows[0]))


class SyncResults:
    """The word that waits."""

    _sync: SyncDriver
    _blocks: Blocks

    def get_result(self, job_id: int, *, timeout: float | timedelta = 0) -> JobResult:
        """Return where a job stands, and its result.

        Args:
            job_id: Its id.
            timeout: How long to wait for its end, in seconds; what it is then comes back. Wait only after the enqueue is
                committed: before that no worker sees the job.
        """
        statement = _statement(self._blocks, job_id)
        found = self._sync.run(statement)
        for pause in _pauses(timeout):
            if found.ended:
                break
            time.sleep(pause)
            found = self._sync.run(statement)
        return found


class AsyncResults:
    """The word that is awaited."""

    _async: AsyncDriver
    _blocks: Blocks

    async def aget_result(self, job_id: int, *, timeout: float | timedelta = 0) -> JobResult:
        """Return where a job stands, and its result.

        Args:
            job_id: Its id.
            timeout: How long to wait for its end, in seconds; what it is then comes back. Wait only after the enqueue is
                committed: before that no worker sees the job.
        """
        statement = _statement(self._blocks, job_id)
        found = await self._async.arun(statement)
        for pause in _pauses(timeout):
            if found.ended:
                break
            await asyncio.sleep(pause)
            found = await self._async.arun(statement)
        return found
