"""The condition Ready, whose reason is the column STATUS: one word for how a queue does.

What stands in the way comes first, then what people asked for (pause, hold, no workers), then the workers.
"""

from __future__ import annotations

from tailrace.names.conditions import Reason
from tailrace_controller.observed import Observed, Problem
from tailrace_controller.status.columns import moment
from tailrace_controller.status.workforce import Workforce
from tailrace_controller.wording import workers

__all__ = ["Verdict", "ready"]

Verdict = tuple[bool | None, Reason, str]
"""Whether a condition holds, None for nobody knows; why; and a sentence."""


def ready(observed: Observed, force: Workforce, blocker: Problem | None) -> Verdict:
    """Return status, reason and sentence.

    Args:
        observed: What a reconcile saw.
        force: Its workers, counted.
        blocker: What stands in the way.
    """
    if blocker is not None:
        return False, blocker.reason, blocker.message
    if observed.paused:
        return force.available, Reason.PAUSED, f"The controller leaves the children alone. {force.counted}."
    if observed.database is None or not observed.settled:
        return None, Reason.NOT_CHECKED, "The queue's settings are not in the database yet."
    if force.wanted is None:
        return None, Reason.NOT_CHECKED, "It is not decided yet how many workers there should be."
    return _on_purpose(observed, force) or _by_workers(observed, force)


def _on_purpose(observed: Observed, force: Workforce) -> Verdict | None:
    """No work, or no workers, since somebody said so or nothing is due."""
    policy = observed.resource.spec.stop_policy if observed.resource is not None else "None"
    ending = force.terminating + (force.replicas if force.wanted == 0 else 0)
    if force.wanted == 0 and (force.replicas or (policy == "HoldAndDrain" and force.terminating)):
        return True, Reason.DRAINING, f"{workers(ending)} left, until the jobs they run are done."
    if policy != "None" and (force.wanted == 0 or force.available):
        return True, Reason.ON_HOLD, f"spec.stopPolicy is {policy}: nothing is claimed until it is None. {force.counted}."
    if observed.queue is not None and observed.queue.held and force.available:
        name = observed.resource.queue if observed.resource is not None else observed.name
        return True, Reason.ON_HOLD, f"Somebody holds the queue: `tailrace queues resume {name}` lets it go on. {force.counted}."
    if force.wanted == 0:
        return True, Reason.SCALED_TO_ZERO, _asleep(observed)
    return None


def _by_workers(observed: Observed, force: Workforce) -> Verdict:
    if force.problem is not None and not force.available:
        return False, force.problem.reason, force.problem.message
    if not force.available:
        reason = Reason.ROLLOUT_STUCK if force.stuck else Reason.STARTING
        return False, reason, f"{force.counted}{'' if force.stuck else '; the others are on their way'}."
    if force.rolling:
        return True, Reason.ROLLING_OUT, f"{force.counted}; {force.updated} have the last template."
    if observed.rollout_waiting is not None:
        return True, Reason.ROLLOUT_WAITING, f"{force.counted}. {observed.rollout_waiting}"
    return True, Reason.READY, f"{force.counted}."


def _asleep(observed: Observed) -> str:
    scaling = observed.autoscaling
    if scaling is None:
        return "No worker is wanted: spec.replicas is 0."
    if scaling.next_wake_time is not None:
        return f"No worker is wanted until the next job is due, at {moment(scaling.next_wake_time)}."
    return "No worker is wanted: no job is due."
