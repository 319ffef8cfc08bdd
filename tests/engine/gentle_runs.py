"""One run of a gentle routine by a clock of its own, and the rests it asked for."""

from __future__ import annotations

import threading
from itertools import count

from pydantic import SecretStr

from tailrace.db import Database
from tailrace.maintenance.once import run_routine
from tailrace.maintenance.routine import NoCounters, Routine, Tick
from tailrace.maintenance.session import connect
from tests.rig.servers import RigDatabase


class Rests(threading.Event):
    """A stop that notes the rests instead of taking them."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.noted.append(timeout or 0.0)
        return self.is_set()


def ran(database: RigDatabase, routine: Routine, *, full: bool = False) -> tuple[Tick, list[float]]:
    """Run it by a clock that goes on by a second each time it is read; returns what it told, and its rests in seconds."""
    place, stop = Database(url=SecretStr(database.dsn)), Rests()
    with connect(place) as conn:
        tick = Tick(conn=conn, database=place, counters=NoCounters(), stop=stop, full=full, clock=count().__next__)
        run_routine(routine, tick)
    return tick, stop.noted
