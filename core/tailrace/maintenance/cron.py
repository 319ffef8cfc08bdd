"""Cron: fires the schedules. Any number of runners may do so; each tick is fired once.

The database says what is due and enqueues; crontab lines and time zones are read here. A schedule that cannot fire is told,
counted and kept in its row, and stops no other. Neighbours: `tailrace.schedules` (times and plans), `apart` (its own thread).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tailrace.db import Jsonb
from tailrace.errors import InvalidOption
from tailrace.maintenance.configured import ConfiguredRoutine, RoutineConfig
from tailrace.maintenance.routine import Tick
from tailrace.names.events import Event
from tailrace.schedules.plan import plan_ticks
from tailrace.schedules.times import timing_of

__all__ = ["Cron", "CronConfig"]

log: Final = logging.getLogger("tailrace.maintenance.cron")

_RESULTS: Final = ("fired", "skipped", "missed", "failed")
_SHORTEST_SLEEP_SECONDS: Final = 0.02
_BUSY_SECONDS: Final = 1.0
_OVERDUE_SECONDS: Final = 0.1
_FAULT_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class CronConfig(RoutineConfig):
    """Settings of the routine.

    Raises:
        InvalidOption: A field is out of its range.
    """

    routine = "cron"

    interval_seconds: float = 15.0
    """Its period: after two of them without a run a worker steps in."""

    look_seconds: float = 5.0
    """The longest sleep of a runner, in seconds; it wakes earlier for the next tick. New declarations are found by then."""

    batch_schedules: int = 50
    """Schedules fired in one transaction."""

    batch_ticks: int = 10
    """Ticks of one schedule fired in one transaction, when there are several to make up for."""

    budget_seconds: float = 5.0
    """Time for one run; what is left is fired in the next, which follows at once."""


class Cron(ConfiguredRoutine[CronConfig]):
    """Fires what is due, batch by batch."""

    config_type = CronConfig

    def __init__(self, config: CronConfig | None = None) -> None:
        super().__init__(config)
        self._synced_at: float | None = None

    def run(self, tick: Tick) -> None:
        """Fire what is due and say when the next tick is.

        Args:
            tick: The run.

        Raises:
            TailraceError: The database refused a batch.
        """
        tick.again = _BUSY_SECONDS  # another runner is at it, or there is too much for one run
        for _ in tick.batches(self.config.budget_seconds):
            sync = self._synced_at is None or tick.clock() - self._synced_at >= self.config.look_seconds
            found = tick.call("cron_due", batch=self.config.batch_schedules, sync=sync)
            if found is None:
                return
            if sync:
                self._synced_at = tick.clock()
                _tell_changes(tick, found)
            if not found["due"]:
                tick.again = self._sleep(found["next_in"])
                return
            now = datetime.fromisoformat(found["now"])
            plans = [self._plan(one, now) for one in found["due"]]
            report = tick.call("fire_schedules", plans=Jsonb(plans))
            if report is None:
                return
            for row in report["rows"]:
                _count(tick, row)
            if report["left"] == len(plans):  # changed or locked, all of them: somebody is at work there
                return
        tick.again = _SHORTEST_SLEEP_SECONDS

    def preview(self, tick: Tick) -> None:
        """Count the schedules that are due.

        Args:
            tick: The run.
        """
        tick.count(**(tick.call("cron_preview") or {}))

    def _sleep(self, next_in: float | None) -> float:
        if next_in is not None and next_in < -_OVERDUE_SECONDS:
            return _BUSY_SECONDS  # it was not given to us: somebody has it locked
        longest = self.config.look_seconds
        return longest if next_in is None else min(max(next_in, _SHORTEST_SLEEP_SECONDS), longest)

    def _plan(self, one: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        known = {name: one[name] for name in ("queue", "name", "revision")}
        try:
            plan = plan_ticks(
                timing_of(one["cron"], one["everySeconds"], one["timeZone"]),
                last_tick=datetime.fromisoformat(one["last_tick"]),
                now=now,
                catch_up_seconds=_number(one["catchUpSeconds"]),
                most=self.config.batch_ticks,
            )
        except (ValueError, ArithmeticError, StopIteration) as error:
            fault = _fault(error)
            return {**known, "ticks": [], "next": (now + timedelta(seconds=_FAULT_SECONDS)).isoformat(), "fault": fault}
        return {
            **known,
            "ticks": [moment.isoformat() for moment in plan.ticks],
            "passed": plan.passed and plan.passed.isoformat(),
            "missed": plan.missed,
            "next": plan.next.isoformat(),
        }


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1e9 else 0.0


def _fault(error: Exception) -> dict[str, Any]:
    if isinstance(error, InvalidOption):
        problem = str(error).removeprefix(f"{error.field}: ").removesuffix(f" ({error.hint})")
        return {"field": error.field, "problem": problem, "remedy": error.hint}
    return {"field": "cron", "problem": "has no further tick", "remedy": "correct the schedule"}


def _tell_changes(tick: Tick, found: Mapping[str, Any]) -> None:
    changes = {name: int(found[name]) for name in ("added", "changed", "absent", "removed") if found[name]}
    tick.count(**changes)
    if changes:
        text = ", ".join(f"{n} {name}" for name, n in changes.items())
        log.info(
            "schedules: %s", text, extra={"event": Event.SCHEDULES_CHANGED, **{f"schedules_{k}": n for k, n in changes.items()}}
        )


def _count(tick: Tick, row: Mapping[str, Any]) -> None:
    for result in _RESULTS:
        if n := int(row[result]):
            tick.count(**{result: n})
            tick.counters.ticks(row["queue"], result, n)
    fields = {"queue": row["queue"], "schedule": row["name"]}
    name = f"{row['queue']}/{row['name']}"
    if row["fired"]:
        log.debug("schedule %s fired", name, extra={"event": Event.SCHEDULE_FIRED, **fields, "job_id": row["job"]})
    if row["skipped"]:
        text = "schedule %s: a tick without a job, since job %s lives"
        log.info(text, name, row["job"], extra={"event": Event.SCHEDULE_SKIPPED, **fields, "job_id": row["job"]})
    if row["missed"]:
        text = "schedule %s: %d ticks up to %s are too far back to make up for"
        extra = {"event": Event.SCHEDULE_MISSED, **fields, "missed": row["missed"]}
        log.warning(text, name, row["missed"], row["passed"], extra=extra)
    fault = row["fault"]
    if fault is not None:
        level = logging.WARNING if row["news"] else logging.DEBUG
        extra = {"event": Event.SCHEDULE_FAILED, **fields, "error": fault["problem"]}
        log.log(level, "schedule %s: %s: %s (%s)", name, fault["field"], fault["problem"], fault["remedy"], extra=extra)
