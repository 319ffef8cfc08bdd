"""The published figures of every queue for metrics, read together for each database; every replica serves the same.

Nothing is counted here: the statistics routine has written it. A figure that cannot be read keeps its time, so that nobody
takes an outage for an empty queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tailrace.errors import TailraceError
from tailrace.owners import QueueFacts
from tailrace_controller.databases import Databases, Target
from tailrace_controller.roster import Served

__all__ = ["Figures", "Gauges"]

log: Final = logging.getLogger("tailrace.controller")

SECONDS: Final = 15.0
"""Between two looks at one database."""
_AT_A_TIME: Final = 8


@dataclass(frozen=True)
class Figures:
    """One queue's figures.

    Attributes:
        served: The JobQueue.
        facts: What the database said last.
    """

    served: Served
    facts: QueueFacts


class Gauges:
    """Figures by JobQueue.

    Attributes:
        figures: Those that are known.
    """

    def __init__(self, databases: Databases) -> None:
        """Know none yet.

        Args:
            databases: Where to ask.
        """
        self._databases = databases
        self.figures: Mapping[tuple[str, str], Figures] = {}

    async def look(self, everyone: Iterable[Served]) -> None:
        """Read the figures of all queues, each database within its own time.

        Args:
            everyone: The JobQueues with their databases.
        """
        by_target: dict[Target, list[Served]] = {}
        for one in everyone:
            by_target.setdefault(one.target, []).append(one)
        limit = asyncio.Semaphore(_AT_A_TIME)

        async def ask(target: Target, of: list[Served]) -> dict[tuple[str, str], Figures]:
            async with limit:
                return await self._ask(target, of)

        found = await asyncio.gather(*(ask(target, of) for target, of in by_target.items()))
        self.figures = {key: figures for part in found for key, figures in part.items()}

    async def _ask(self, target: Target, of: list[Served]) -> dict[tuple[str, str], Figures]:
        try:
            facts = await self._databases.at(target).facts(sorted({one.queue for one in of}))
        except TailraceError as error:
            log.debug("figures cannot be read: %s", error)
            return {one.key: known for one in of if (known := self.figures.get(one.key)) is not None}
        return {one.key: Figures(one, facts[one.queue]) for one in of if one.queue in facts}
