"""Maintenance of every known database in this process, whether it leads or not: the database's own locks share it out.

The loops are tailrace's; each runs in threads with connections of its own. A database that is away is asked again by its
loop; one that no JobQueue leads to any more is left. `service` says which databases there are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tailrace.db import Database, Statement, run
from tailrace.db.allowed import Target
from tailrace.maintenance import Routine, routines, run_forever
from tailrace.maintenance.counts import RoutineCounts
from tailrace.maintenance.routine import Tick, Verdict
from tailrace.names.events import Event

__all__ = ["Upkeep"]

log: Final = logging.getLogger("tailrace.controller")

Place = tuple[str, ...]
_SEEN: Final = "seen"


class _Counts(RoutineCounts):
    """Counters of one database, without those of our own look at when routines last succeeded."""

    def ran(self, routine: str, result: Verdict, seconds: float) -> None:
        """One run of a routine."""
        if routine != _SEEN:
            super().ran(routine, result, seconds)


class _LastSuccess:
    """Reads when each routine last succeeded, whoever ran it; runs among the routines, on their connection."""

    name = _SEEN
    interval_seconds = 15.0

    def __init__(self, counts: RoutineCounts) -> None:
        self._counts = counts

    def run(self, tick: Tick) -> None:
        """Read it."""

        def read(rows: Sequence[tuple[Any, ...]]) -> dict[str, float]:
            return {routine: at for routine, _, _, at in rows}

        self._counts.last_success = run(tick.conn, Statement(tick.database.blocks["maintenance.seen"], {}, read))

    def preview(self, tick: Tick) -> None:
        """Change nothing."""


class _Keeper:
    """The loops of one database."""

    def __init__(self, database: Database, address: str, *, reaper_seconds: float, counts: RoutineCounts) -> None:
        self.address, self.counts = address, counts
        self._stop = threading.Event()
        work: list[Routine] = [*routines(reaper_seconds=reaper_seconds), _LastSuccess(counts)]
        self._thread = threading.Thread(
            target=self._run, args=(database, work), name=f"tailrace-maintenance {address}"[:60], daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self, database: Database, work: Sequence[Routine]) -> None:
        try:
            run_forever(database, work, self._stop, counters=self.counts)
        except Exception:
            log.exception("maintenance of %s broke", self.address, extra={"event": Event.ROUTINE_FAILED})


class Upkeep:
    """The databases that this process keeps."""

    def __init__(self, place_of: Callable[[Target], Database], *, reaper_seconds: float) -> None:
        """Keep none yet.

        Args:
            place_of: Gives the database that a target leads to; follows a rotated password by itself.
            reaper_seconds: How often leases of dead workers are looked for.
        """
        self._place_of, self._reaper_seconds = place_of, reaper_seconds
        self._keepers: dict[Place, _Keeper] = {}
        self._counts: dict[Place, RoutineCounts] = {}

    def keep(self, targets: Sequence[Target]) -> None:
        """Keep these databases, and leave others. Starts nothing twice; begins anew what broke.

        Args:
            targets: One for each installation that was looked at and fits.
        """
        wanted = {target.place: target for target in targets}
        for place in [place for place in self._keepers if place not in wanted]:
            self._leave(place)
        for place, target in wanted.items():
            keeper = self._keepers.get(place)
            if keeper is None or not keeper.alive:
                counts = self._counts.setdefault(place, _Counts())
                database = self._place_of(target)
                self._keepers[place] = _Keeper(database, target.address, reaper_seconds=self._reaper_seconds, counts=counts)
                self._tell(target.address, keeping=True)

    @property
    def counts(self) -> Mapping[Place, RoutineCounts]:
        """What routines did, by installation; kept for the life of the process, since counters only rise."""
        return self._counts

    def stop(self) -> None:
        """Tell all to end, which takes them up to a second."""
        for keeper in self._keepers.values():
            keeper.stop()

    def join(self, seconds: float) -> None:
        """Wait for the end of all.

        Args:
            seconds: For each.
        """
        for keeper in self._keepers.values():
            keeper.join(seconds)

    def _leave(self, place: Place) -> None:
        keeper = self._keepers.pop(place)
        keeper.stop()
        self._tell(keeper.address, keeping=False)

    def _tell(self, address: str, *, keeping: bool) -> None:
        text = "maintenance of %s runs here" if keeping else "no longer running maintenance of %s"
        log.info(text, address, extra={"event": Event.DATABASE_KEPT, "database": address, "keeping": keeping})
