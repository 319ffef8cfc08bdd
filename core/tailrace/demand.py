"""How many workers a queue needs: pure arithmetic that the controller, `tailrace dev` and the statistics share.

Flow pays for what arrives, drain for the backlog within the latency target, busy for what runs. `readings` brings what is
known of a queue; whoever acts on a recommendation asks again at each reading. Nothing is known means nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tailrace.queue_spec import JobQueueSpec

__all__ = ["Bounds", "Demand", "LimitedBy", "Load", "Recommendation", "Terms", "demand", "recommend"]

STALE_SECONDS = 60.0
"""A reading older than this is no knowledge: whoever should publish it does not."""

FROM_ZERO = 4
"""How many workers a queue without any starts at once."""

SHORTEST_RUN_SECONDS = 0.01
"""Shorter runs count as this long, since a job costs more than its handler."""

_FUZZ = 1e-9


class LimitedBy(StrEnum):
    """Why a recommendation is not simply the demand; the words of `status.autoscaling.limitedBy`."""

    NONE = "None"
    """Nothing: the demand, rounded up."""

    MIN = "Min"
    """The fewest workers allowed are more."""

    MAX = "Max"
    """The most workers allowed are fewer."""

    SCALE_UP_RATE = "ScaleUpRate"
    """It would be more, but they start in steps."""

    STALE_READING = "StaleReading"
    """There is no reading, or an old one: the fleet stays as it is."""

    HOLD = "Hold"
    """The queue is on hold: the fleet stays as it is, or goes to zero where the policy says so."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a reading knows of a queue.

    Attributes:
        claimable: Jobs that a worker could take now: due, not held, blocked or unclaimable.
        running: Jobs that run.
        arrivals: Jobs that become claimable in a second, averaged over about two minutes.
        run_seconds: The mean of a run; None while nothing was measured.
        next_due_seconds: When the next scheduled or retrying job is due, counted from the reading; None for none.
        age_seconds: How old the reading is.
        held: Whether people or the stop policy hold the queue.
    """

    claimable: int
    running: int
    arrivals: float = 0.0
    run_seconds: float | None = None
    next_due_seconds: float | None = None
    age_seconds: float = 0.0
    held: bool = False


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a JobQueue says that the demand depends on.

    Attributes:
        slots: Jobs that one worker runs at a time.
        latency_target_seconds: Within how many seconds a backlog should be gone.
        utilization: How busy slots should be by what arrives, above 0, at most 1.
    """

    slots: int = 10
    latency_target_seconds: float = 60.0
    utilization: float = 0.75

    @classmethod
    def of(cls, spec: JobQueueSpec) -> Terms:
        """Take them from a resource."""
        return cls(
            slots=spec.worker.slots,
            latency_target_seconds=spec.latency_target_seconds,
            utilization=spec.autoscaling.target_utilization_percent / 100,
        )

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Terms:
        """Take them from a queue's row; what is not there, or no positive number, is the default.

        Args:
            settings: What the row keeps of the resource.
        """
        plain = cls()
        slots = _number(settings, "worker", "slots")
        target = _number(settings, "latencyTargetSeconds")
        percent = _number(settings, "autoscaling", "targetUtilizationPercent")
        return cls(
            slots=max(1, int(slots)) if slots else plain.slots,
            latency_target_seconds=target or plain.latency_target_seconds,
            utilization=min(1.0, percent / 100) if percent else plain.utilization,
        )


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Between which numbers of workers a queue may move.

    Attributes:
        minimum: The fewest.
        maximum: The most.
        stop_policy: None, Hold or HoldAndDrain.
    """

    minimum: int
    maximum: int
    stop_policy: Literal["None", "Hold", "HoldAndDrain"] = "None"

    @classmethod
    def of(cls, spec: JobQueueSpec) -> Bounds:
        """Take them from a resource; where autoscaling is disabled, both are its replicas."""
        scaling = spec.autoscaling
        if scaling.mode == "Disabled" or scaling.max_replicas is None:
            return cls(minimum=spec.replicas, maximum=spec.replicas, stop_policy=spec.stop_policy)
        return cls(minimum=scaling.min_replicas, maximum=scaling.max_replicas, stop_policy=spec.stop_policy)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """How many workers are needed, not rounded.

    Attributes:
        flow: For what arrives.
        drain: For what waits.
        busy: For what runs.
    """

    flow: float
    drain: float
    busy: float

    @property
    def total(self) -> float:
        """What is needed in all: never less than what is busy."""
        return max(self.flow + self.drain, self.busy)

    def as_json(self) -> dict[str, float]:
        """Return the numbers as a reading keeps them."""
        return {name: round(value, 4) for name, value in (*vars(self).items(), ("total", self.total))}


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """How many workers there should be now.

    Attributes:
        workers: The number.
        limited_by: What kept it from being the demand.
        demand: The demand; None without a reading.
        wake_in_seconds: For a queue without workers: when its next job is due and the number is no longer zero.
    """

    workers: int
    limited_by: LimitedBy = LimitedBy.NONE
    demand: Demand | None = None
    wake_in_seconds: float | None = None


def demand(load: Load, terms: Terms) -> Demand:
    """Work out the demand of a queue.

    Args:
        load: What is known of it.
        terms: What its resource says. Until a run was measured, one counts as a quarter of the latency target.
    """
    target = terms.latency_target_seconds
    run = target / 4 if load.run_seconds is None else max(SHORTEST_RUN_SECONDS, load.run_seconds)
    return Demand(
        flow=load.arrivals * run / (terms.slots * terms.utilization),
        drain=load.claimable * run / (terms.slots * target),
        busy=load.running / terms.slots,
    )


def recommend(load: Load | None, *, terms: Terms, bounds: Bounds, current: int, step: int = FROM_ZERO) -> Recommendation:
    """Say how many workers a queue should have.

    Args:
        load: What is known of it; None for nothing.
        terms: What its resource says of slots and latency.
        bounds: Between which numbers it may move, and its stop policy.
        current: How many there should be so far.
        step: How many start at once where there are none.
    """
    if bounds.stop_policy == "HoldAndDrain":
        return Recommendation(workers=0, limited_by=LimitedBy.HOLD, demand=None if load is None else demand(load, terms))
    if load is None or load.age_seconds > STALE_SECONDS:
        return _as_it_is(current, bounds, LimitedBy.STALE_READING)
    needed = demand(load, terms)
    if load.held or bounds.stop_policy == "Hold":
        return _as_it_is(current, bounds, LimitedBy.HOLD, needed)
    due_in = None if load.next_due_seconds is None else max(0.0, load.next_due_seconds - load.age_seconds)
    workers = _whole(load, needed, terms)
    if workers == 0 and due_in == 0:
        workers = 1
    chosen, limit = _within(workers, bounds)
    if current == 0 and chosen > max(step, bounds.minimum):
        chosen, limit = max(step, bounds.minimum), LimitedBy.SCALE_UP_RATE
    return Recommendation(workers=chosen, limited_by=limit, demand=needed, wake_in_seconds=due_in if chosen == 0 else None)


def _whole(load: Load, needed: Demand, terms: Terms) -> int:
    """Round up; but an idle queue goes to zero as soon as no job is to be expected within its latency target."""
    idle = load.claimable == 0 and load.running == 0
    if idle and load.arrivals * terms.latency_target_seconds < 1:
        return 0
    return math.ceil(needed.total - _FUZZ)


def _within(workers: int, bounds: Bounds) -> tuple[int, LimitedBy]:
    if workers > bounds.maximum:
        return bounds.maximum, LimitedBy.MAX
    if workers < bounds.minimum:
        return bounds.minimum, LimitedBy.MIN
    return workers, LimitedBy.NONE


def _as_it_is(current: int, bounds: Bounds, why: LimitedBy, needed: Demand | None = None) -> Recommendation:
    """Change nothing, but for bounds that were moved: those are no guess."""
    chosen, limit = _within(current, bounds)
    return Recommendation(workers=chosen, limited_by=why if chosen == current else limit, demand=needed)


def _number(settings: Mapping[str, Any], *path: str) -> float:
    found: Any = settings
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and found > 0 else 0.0
