"""The routines by name, and how a program makes those it wants.

Adding a routine is adding its file and its line here; `loop` runs whatever it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tailrace.errors import InvalidOption
from tailrace.maintenance.auto_requeue import AutoRequeue
from tailrace.maintenance.cron import Cron
from tailrace.maintenance.housekeeping import Housekeeping
from tailrace.maintenance.reaper import Reaper, ReaperConfig
from tailrace.maintenance.retention import Retention
from tailrace.maintenance.routine import Routine
from tailrace.maintenance.statistics import Statistics, StatisticsConfig
from tailrace.maintenance.sweep import Sweep

__all__ = ["ROUTINES", "routines"]

ROUTINES: Final[Mapping[str, Callable[[], Routine]]] = MappingProxyType(
    {
        "reaper": Reaper,
        "sweep": Sweep,
        "cron": Cron,
        "retention": Retention,
        "auto_requeue": AutoRequeue,
        "statistics": Statistics,
        "housekeeping": Housekeeping,
    }
)


def routines(names: Iterable[str] = (), *, reaper_seconds: float = 15.0, statistics_seconds: float = 15.0) -> list[Routine]:
    """Make routines with their default settings.

    Args:
        names: Which; none means all.
        reaper_seconds: The reaper's period in seconds, 1 or more.
        statistics_seconds: Seconds between two readings, 1 or more.

    Raises:
        InvalidOption: No routine has that name, or the period is too short.
    """
    own: dict[str, Callable[[], Routine]] = {
        "reaper": lambda: Reaper(ReaperConfig(interval_seconds=reaper_seconds)),
        "statistics": lambda: Statistics(StatisticsConfig(interval_seconds=statistics_seconds)),
    }
    made: list[Routine] = []
    for name in dict.fromkeys(names) or ROUTINES:
        if name not in ROUTINES:
            raise InvalidOption(f"no routine {name!r}", field="routine", hint=f"one of {', '.join(ROUTINES)}")
        made.append(own[name]() if name in own else ROUTINES[name]())
    return made
