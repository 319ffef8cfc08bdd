"""What keeps a JobQueue from being served as asked, in the order in which a reconcile meets it.

Some of it passes by itself, such as a database that is away; some waits for a person, which is what Stalled means.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.names.conditions import Reason
from tailrace_controller.observed import Observed, Problem

__all__ = ["STALLED", "blockers", "first_blocker", "reachable_problem", "schema_problem"]

STALLED: Final = frozenset(
    {
        Reason.AUTOSCALING_UNSUPPORTED,
        Reason.CONFLICTED,
        Reason.DATABASE_CHANGED,
        Reason.INVALID_DSN,
        Reason.INVALID_SPEC,
        Reason.MIGRATION_PENDING,
        Reason.NAME_TAKEN,
        Reason.POD_TEMPLATE_INVALID,
        Reason.ROLLOUT_STUCK,
        Reason.SCHEMA_TOO_NEW,
    }
)
"""Reasons that wait for a person."""

_UNSUPPORTED_MODES: Final = ("HPA", "KEDA")


def blockers(observed: Observed) -> list[Problem]:
    """Return all that stands in the way, beside the workers themselves.

    Args:
        observed: What a reconcile saw.
    """
    return list(_found(observed))


def first_blocker(observed: Observed) -> Problem | None:
    """Return what to show: the first that waits for a person, else the first.

    Args:
        observed: What a reconcile saw.
    """
    found = blockers(observed)
    return next((one for one in found if one.reason in STALLED), found[0] if found else None)


def reachable_problem(observed: Observed) -> Problem | None:
    """Return why the Secret does not lead to a database that answers and is the one of before; None when it does.

    Args:
        observed: What a reconcile saw.
    """
    if observed.secret is not None and observed.secret.problem is not None:
        return observed.secret.problem
    seen = observed.database
    if seen is None or seen.problem is None:
        return None
    return None if seen.reached and seen.problem.reason != Reason.DATABASE_CHANGED else seen.problem


def schema_problem(observed: Observed) -> Problem | None:
    """Return what is wrong with the schema, or with our rights, in a database that answers; None for nothing.

    Args:
        observed: What a reconcile saw.
    """
    seen = observed.database
    return seen.problem if seen is not None and seen.reached and reachable_problem(observed) is None else None


def _found(observed: Observed) -> Iterator[Problem]:
    if observed.invalid is not None:
        yield Problem(reason=Reason.INVALID_SPEC, message=observed.invalid)
    for problem in (reachable_problem(observed), schema_problem(observed)):
        if problem is not None:
            yield problem
    for reason, sentence in (
        (Reason.CONFLICTED, observed.conflict),
        (Reason.NAME_TAKEN, observed.name_taken),
        (Reason.POD_TEMPLATE_INVALID, observed.template_refused),
        (Reason.CHILD_REFUSED, observed.child_refused),
        (Reason.AUTOSCALING_UNSUPPORTED, _unsupported_mode(observed)),
    ):
        if sentence is not None:
            yield Problem(reason=reason, message=sentence)


def _unsupported_mode(observed: Observed) -> str | None:
    mode = observed.resource.spec.autoscaling.mode if observed.resource is not None else ""
    if mode not in _UNSUPPORTED_MODES:
        return None
    return f"spec.autoscaling.mode: {mode} is not in this release (set Operator or Disabled; until then spec.replicas counts)"
