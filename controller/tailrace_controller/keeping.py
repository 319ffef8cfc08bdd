"""What every replica does for the databases of its JobQueues: maintenance and the queues' gauges.

A leader knows the databases from its reconciles, others from a look of their own. While neither can be asked, what is known
goes on: an API server that is away stops no reaper and no schedule.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Final

from tailrace.clock import boot
from tailrace.errors import TailraceError
from tailrace.names.events import Event
from tailrace_controller.databases import Databases, Target
from tailrace_controller.gauges import SECONDS, Gauges
from tailrace_controller.kube import Kube, KubeError
from tailrace_controller.leading import Leading
from tailrace_controller.metrics import Kept
from tailrace_controller.queue_page import Line
from tailrace_controller.roster import Roster, Served
from tailrace_controller.settings import ControllerSettings
from tailrace_controller.upkeep import Upkeep

__all__ = ["Keeping"]

log: Final = logging.getLogger("tailrace.controller")

_TICK_SECONDS: Final = 1.0
_FIRST_LOOK_SECONDS: Final = 3.0
_FIRST_GAUGES_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 5.0
_AT_A_TIME: Final = 8


class Keeping:
    """The databases of one process.

    Attributes:
        leading: The leader's parts while this process leads.
        upkeep: The maintenance that runs here.
    """

    def __init__(
        self,
        kube: Kube,
        databases: Databases,
        settings: ControllerSettings,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Know no database yet.

        Args:
            kube: The API server.
            databases: The databases.
            settings: The settings.
            jitter: Gives a number from 0 up to 1.
        """
        self._databases, self._settings, self._jitter = databases, settings, jitter
        self.leading: Leading | None = None
        self.upkeep = Upkeep(databases.place, reaper_seconds=settings.reaper_seconds)
        self._roster, self._gauges = Roster(kube, settings), Gauges(databases)
        self._served: list[Served] = []
        self._told = ""

    async def run(self) -> None:
        """Look for databases and at their figures until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._finding(), name="roster")
            group.create_task(self._measuring(), name="gauges")

    async def _finding(self) -> None:
        due = boot() + _FIRST_LOOK_SECONDS  # whoever leads in a moment need not look by himself
        while True:
            leading = self.leading
            if leading is not None:
                due = boot() + self._settings.secret_seconds  # who stops leading knows enough for a while
                if leading.triggers.synced.is_set():
                    self._served = leading.served()
            elif boot() >= due:
                due = boot() + await self._look()
            self.upkeep.keep(self._databases.targets())
            await asyncio.sleep(_TICK_SECONDS)

    async def _look(self) -> float:
        """Look for databases without leading; returns the seconds until the next look."""
        try:
            self._served = await self._roster.look()
        except KubeError as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning("JobQueues cannot be listed: %s", error, extra={"event": Event.ROSTER_FAILED, "error": self._told})
            return _AGAIN_SECONDS
        self._told = ""
        targets = {one.target for one in self._served}
        await self._databases.keep(targets)
        reached = await self._try(targets)
        usual = self._settings.secret_seconds * (0.8 + 0.4 * self._jitter())
        return usual if reached else min(_AGAIN_SECONDS, usual)

    async def _try(self, targets: Iterable[Target]) -> bool:
        """Look at each database: those that fit are kept from now on. Whether all did."""
        limit = asyncio.Semaphore(_AT_A_TIME)

        async def one(target: Target) -> bool:
            async with limit:
                try:
                    await self._databases.at(target).look()
                except TailraceError as error:
                    log.debug("a database cannot be kept: %s", error)
                    return False
                return True

        return all(await asyncio.gather(*(one(target) for target in targets)))

    async def _measuring(self) -> None:
        pause = _FIRST_GAUGES_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = SECONDS * (0.9 + 0.2 * self._jitter()) if self._served else _FIRST_GAUGES_SECONDS
            if (leading := self.leading) is not None and leading.triggers.synced.is_set():
                await self._databases.keep(leading.targets())
            await self._gauges.look(list(self._served))

    # ---- metrics -----------------------------------------------------------------------------------------------------
    def lines(self) -> list[Line]:
        """What is known of each JobQueue; figures everywhere, the rest on the leader."""
        figures = self._gauges.figures
        leading = self.leading
        if leading is None:
            return [Line(namespace=one.served.key[0], queue=one.served.queue, figures=one) for one in figures.values()]
        made = []
        for key, resource in list(leading.cache.resources.items()):
            line = leading.line(key, resource)
            line.figures = figures.get(key)
            made.append(line)
        return made

    def kept(self) -> list[Kept]:
        """What routines did, for each database."""
        served = list(self._served)
        made = []
        for place, counts in list(self.upkeep.counts.items()):
            there = [one for one in served if one.target.place == place]
            label = min((one.label for one in there), default=f"{place[0]}:{place[1]}/{place[2]}")
            made.append(Kept(label, {one.queue: one.key[0] for one in there}, counts))
        return made
