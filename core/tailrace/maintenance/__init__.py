"""The routines that keep the tables clean: one file per routine, `loop` runs them, `stand_in` when nobody else does.

The command line runs them on purpose, a worker when it sees that nobody does; each batch is one SQL function.
"""

from tailrace.maintenance.apart import Runner, apart, run_apart
from tailrace.maintenance.auto_requeue import AutoRequeue, AutoRequeueConfig
from tailrace.maintenance.cron import Cron, CronConfig
from tailrace.maintenance.housekeeping import Housekeeping, HousekeepingConfig
from tailrace.maintenance.loop import Loop, run_forever
from tailrace.maintenance.once import run_once
from tailrace.maintenance.reaper import Reaper, ReaperConfig
from tailrace.maintenance.retention import Retention, RetentionConfig
from tailrace.maintenance.routine import Counters, NoCounters, Routine, RoutineResult
from tailrace.maintenance.stand_in import StandIn
from tailrace.maintenance.statistics import Statistics, StatisticsConfig
from tailrace.maintenance.sweep import Sweep, SweepConfig
from tailrace.maintenance.table import ROUTINES, routines

__all__ = [
    "ROUTINES",
    "AutoRequeue",
    "AutoRequeueConfig",
    "Counters",
    "Cron",
    "CronConfig",
    "Housekeeping",
    "HousekeepingConfig",
    "Loop",
    "NoCounters",
    "Reaper",
    "ReaperConfig",
    "Retention",
    "RetentionConfig",
    "Routine",
    "RoutineResult",
    "Runner",
    "StandIn",
    "Statistics",
    "StatisticsConfig",
    "Sweep",
    "SweepConfig",
    "apart",
    "routines",
    "run_apart",
    "run_forever",
    "run_once",
]
