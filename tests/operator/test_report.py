"""Which differences of two statuses become events, without an API server."""

from __future__ import annotations

from typing import Any

from tailrace.names.conditions import Reason
from tailrace.names.event_reasons import EventReason
from tailrace_controller.observed import DatabaseSeen, Observed, Problem
from tailrace_controller.report import same, turns
from tailrace_controller.status import status
from tests.operator.scene import deployed, observed, pods

AWAY = DatabaseSeen(
    address="db:5432/app", reached=False, problem=Problem(reason=Reason.DATABASE_UNAVAILABLE, message="db:5432/app is away")
)


def told(seen: Observed) -> list[tuple[str, EventReason]]:
    return [(turn.kind, turn.reason) for turn in turns(seen, status(seen))]


def after(before: Observed, **fields: Any) -> Observed:
    """Return what a later reconcile saw, with the status that the one before wrote."""
    return observed(raw={"status": status(before)}, **fields)


def test_nothing_new_is_told_twice() -> None:
    """operator-notes 3.2 #13, #14."""
    well = observed()
    assert told(after(well)) == []
    assert same(status(after(well)), status(well))
    away = observed(database=AWAY)
    assert told(after(away, database=AWAY)) == []


def test_a_problem_and_its_end_are_told() -> None:
    well = observed()
    away = after(well, database=AWAY)
    assert ("Warning", EventReason.DATABASE_PROBLEM) in told(away)
    assert ("Normal", EventReason.DATABASE_REACHABLE) in told(after(away))


def test_another_reason_is_another_event() -> None:
    away = observed(database=AWAY)
    refused = Problem(reason=Reason.AUTHENTICATION_FAILED, message="the password is wrong")
    later = after(away, database=DatabaseSeen(address="db:5432/app", reached=False, problem=refused))
    assert ("Warning", EventReason.DATABASE_PROBLEM) in told(later)


def test_what_waits_for_a_person_is_told_by_its_name() -> None:
    well = observed()
    assert ("Warning", EventReason.NAME_TAKEN) in told(after(well, name_taken="a Deployment of somebody else's"))
    assert ("Warning", EventReason.POD_TEMPLATE_INVALID) in told(after(well, template_refused="no such field"))
    assert ("Warning", EventReason.CONFLICTED) in told(after(well, conflict="another has it", settled=False))
    assert ("Warning", EventReason.CHILD_REFUSED) in told(after(well, child_refused="a webhook says no"))
    assert ("Warning", EventReason.AUTOSCALER_CONFLICT) in told(after(well, autoscaler_conflict="the autoscaler x"))


def test_workers_on_their_way_are_no_warning() -> None:
    first = observed(raw={"status": {}}, deployment=None, pods=())
    assert not [reason for kind, reason in told(first) if kind == "Warning"]
    running = observed(raw={"status": status(first)}, deployment=deployed(ready=0), pods=pods(4, Reason.NOT_READY))
    assert not [reason for kind, reason in told(running) if kind == "Warning"]


def test_a_pause_and_its_end_are_told() -> None:
    well = observed()
    paused = observed(raw={"status": status(well), "annotations": {"tailrace.dev/reconcile": "disabled"}})
    assert ("Normal", EventReason.PAUSED) in told(paused)
    assert ("Normal", EventReason.RESUMED) in told(after(paused))


def test_a_long_drain_is_told_once_for_each_generation() -> None:
    """GW-05."""
    long = {"worker": {"drainTimeoutSeconds": 900}}
    first = observed(spec=long, raw={"status": {}})
    assert ("Warning", EventReason.LONG_DRAIN) in told(first)
    again = observed(spec=long, raw={"status": status(first)})
    assert ("Warning", EventReason.LONG_DRAIN) not in told(again)
