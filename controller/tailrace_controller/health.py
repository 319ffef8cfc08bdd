"""When a controller is live and when it is ready.

Live while both event loops run and whoever looks after the watches goes round, also while he tries in vain: an API server
or a database that is away restarts nothing. Ready when it does its part: leads with a complete list, or stands by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.clock import boot

__all__ = ["Vitals"]

LIVE_SECONDS = 30.0
"""Without a turn of a loop for so long the process is taken for stuck."""
SUPERVISED_SECONDS = 120.0
"""The same for the supervisor of the watches, which may wait for several answers in a row."""


@dataclass
class Vitals:
    """What the probes ask.

    Attributes:
        beat: When the main loop ran last.
        started: Whether everything is set up.
        leads: Whether this process leads.
        stopping: Whether it is about to end.
        watch_lag: Seconds since the loop of the watches ran; 0 while there is none.
        supervised: When the supervisor of the watches went round last; only while leading.
        synced: Whether a complete list was taken since it leads.
        trouble: Why it cannot stand by; empty when it can.
    """

    beat: float = field(default_factory=boot)
    started: bool = False
    stopping: bool = False
    leads: Callable[[], bool] = bool
    watch_lag: Callable[[], float] = float
    supervised: Callable[[], float] = boot
    synced: Callable[[], bool] = bool
    trouble: Callable[[], str] = str

    def live(self) -> tuple[bool, str]:
        """Whether the process should go on, and why not."""
        late, watches, supervisor = boot() - self.beat, self.watch_lag(), boot() - self.supervised()
        if late >= LIVE_SECONDS:
            return False, f"the event loop has not run for {late:.0f} s"
        if watches >= LIVE_SECONDS:
            return False, f"the event loop of the watches has not run for {watches:.0f} s"
        if supervisor >= SUPERVISED_SECONDS:
            return False, f"nobody has looked after the watches for {supervisor:.0f} s"
        return True, "ok"

    def ready(self) -> tuple[bool, str]:
        """Whether it does its part, and why not."""
        if not self.started or self.stopping:
            return False, "starting or stopping"
        if self.leads() and not self.synced():
            return False, "leading, and the first list is not complete"
        trouble = self.trouble()
        return not trouble, trouble or "ok"
