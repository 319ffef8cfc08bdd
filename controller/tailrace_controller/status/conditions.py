"""The conditions of a JobQueue, worked out anew at each reconcile; all are there from the first.

Ready, Reconciling and Stalled are what `kubectl wait`, Helm, Flux and Argo CD read: at most one of the last two is True, and
neither when Ready is the last word. `blockers` has what stands in the way, `workforce` how the workers do.
"""

from __future__ import annotations

from typing import Any, Final

from tailrace.names.annotations import RECONCILE_DISABLED, Annotation
from tailrace.names.conditions import ConditionType, Reason
from tailrace_controller.observed import Observed, Problem
from tailrace_controller.status.blockers import STALLED, first_blocker, reachable_problem, schema_problem
from tailrace_controller.status.columns import moment
from tailrace_controller.status.readiness import Verdict, ready
from tailrace_controller.status.workforce import Workforce, workforce
from tailrace_controller.wording import workers

__all__ = ["conditions"]

_LONGEST: Final = 2000


def conditions(observed: Observed) -> list[dict[str, Any]]:
    """Return all conditions; a transition time stays as long as the status does.

    Args:
        observed: What a reconcile saw.
    """
    force, blocker = workforce(observed), first_blocker(observed)
    stalled = _stalled(blocker, force)
    found = {
        ConditionType.READY: ready(observed, force, blocker),
        ConditionType.RECONCILING: _reconciling(observed, force, blocker, stalled),
        ConditionType.STALLED: stalled,
        ConditionType.DATABASE_REACHABLE: _reachable(observed),
        ConditionType.SCHEMA_CURRENT: _schema(observed),
        ConditionType.WORKERS_AVAILABLE: _available(force, blocker),
        ConditionType.AUTOSCALER_CONFLICT: _autoscaler(observed),
        ConditionType.PAUSED: _paused(observed),
    }
    before = {one.get("type"): one for one in observed.previous.get("conditions") or ()}
    return [_written(observed, kind, finding, before.get(kind)) for kind, finding in found.items()]


def _written(observed: Observed, kind: ConditionType, finding: Verdict, before: dict[str, Any] | None) -> dict[str, Any]:
    holds, reason, message = finding
    status = "Unknown" if holds is None else str(holds)
    since = (before or {}).get("lastTransitionTime") if (before or {}).get("status") == status else None
    return {
        "type": str(kind),
        "status": status,
        "observedGeneration": observed.generation,
        "lastTransitionTime": since or moment(observed.now),
        "reason": str(reason),
        "message": message[:_LONGEST],
    }


def _stalled(blocker: Problem | None, force: Workforce) -> Verdict:
    if blocker is not None and blocker.reason in STALLED:
        return True, blocker.reason, blocker.message
    if force.stuck:
        why = f" {force.problem.message}" if force.problem is not None else " See `kubectl describe` of its pods."
        text = f"The roll-out made no progress for spec.rollout.progressDeadlineSeconds.{why}"
        return True, Reason.ROLLOUT_STUCK, text
    return False, Reason.PROGRESSING, "The controller waits for nobody."


def _reconciling(observed: Observed, force: Workforce, blocker: Problem | None, stalled: Verdict) -> Verdict:
    if stalled[0]:
        return False, stalled[1], "The controller can do no more until somebody changes something: see Stalled."
    if observed.paused:
        return False, Reason.PAUSED, "The controller leaves the children alone: see Paused."
    if blocker is not None:
        return True, blocker.reason, f"The controller tries again. {blocker.message}"
    if observed.database is None or not observed.settled:
        return True, Reason.NOT_CHECKED, "The queue's settings are not in the database yet."
    if observed.rollout_waiting is not None:
        return True, Reason.ROLLOUT_WAITING, observed.rollout_waiting
    return _workers_move(force)


def _workers_move(force: Workforce) -> Verdict:
    if force.wanted is None or (force.wanted and not force.exists):
        return True, Reason.STARTING, "The Deployment is on its way."
    if not force.noticed:
        return True, Reason.STARTING, "Kubernetes has not looked at the last change of the Deployment yet."
    if force.replicas > force.wanted and not force.rolling:
        return True, Reason.DRAINING, f"{workers(force.replicas - force.wanted)} too many: they end when their jobs are done."
    if force.rolling:
        text = (
            f"{force.updated} of {force.wanted} workers have the last template; {force.replicas - force.updated} older ones go."
        )
        return True, Reason.ROLLING_OUT, text
    if force.ready < force.wanted:
        reason = Reason.STARTING if force.problem is None else force.problem.reason
        return True, reason, f"{force.counted}: see WorkersAvailable."
    return False, Reason.CURRENT, "Everything is as the resource says."


def _reachable(observed: Observed) -> Verdict:
    problem = reachable_problem(observed)
    if problem is not None:
        return False, problem.reason, problem.message
    seen = observed.database
    if seen is None or not seen.reached:
        return None, Reason.NOT_CHECKED, "The database was not asked."
    return True, Reason.CONNECTED, f"{seen.address or 'The database'} answers."


def _schema(observed: Observed) -> Verdict:
    problem = schema_problem(observed)
    if problem is not None:
        return False, problem.reason, problem.message
    seen = observed.database
    if seen is None or not seen.reached or reachable_problem(observed) is not None:
        text = "The schema was not looked at, since the database could not be used: see DatabaseReachable."
        return None, Reason.NOT_CHECKED, text
    version = f" at migration {seen.schema_version}" if seen.schema_version is not None else ""
    return True, Reason.CURRENT, f"The schema is{version} and fits this controller."


def _available(force: Workforce, blocker: Problem | None) -> Verdict:
    if force.wanted is None:
        why = f": {blocker.message}" if blocker is not None else "."
        return None, Reason.NOT_CHECKED, f"It is not decided how many workers there should be{why}"
    if force.wanted and not force.exists:
        if blocker is not None:
            return False, blocker.reason, f"There are no workers: {blocker.message}"
        return False, Reason.STARTING, "There are no workers yet: the Deployment is on its way."
    if force.problem is not None and not force.available:
        return False, force.problem.reason, force.problem.message
    if force.available:
        rolling = f"; {force.updated} have the last template" if force.rolling else ""
        return True, Reason.AVAILABLE, f"{force.counted}{rolling}."
    if force.stuck:
        return False, Reason.ROLLOUT_STUCK, f"{force.counted}, and no progress before the deadline: see Stalled."
    return False, Reason.STARTING, f"{force.counted}; the others are on their way."


def _autoscaler(observed: Observed) -> Verdict:
    if observed.autoscaler_conflict is not None:
        return True, Reason.AUTOSCALER_ON_DEPLOYMENT, observed.autoscaler_conflict
    return False, Reason.NO_CONFLICT, "Only the controller writes the replicas of the Deployment."


def _paused(observed: Observed) -> Verdict:
    if observed.paused:
        text = (
            f'The annotation {Annotation.RECONCILE} is "{RECONCILE_DISABLED}": the children stay as they are. '
            "Remove it, or set it to enabled, to go on."
        )
        return True, Reason.PAUSED, text
    return False, Reason.ENABLED, "The controller keeps the children as the resource says."
