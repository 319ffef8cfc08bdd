"""The conditions: every case its own reason and sentence, and what kstatus, `kubectl wait` and Helm make of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.names.conditions import ConditionType, Reason
from tailrace_controller.observed import Autoscaling, DatabaseSeen, Observed, QueueSeen, SecretSeen
from tailrace_controller.status import conditions, status
from tailrace_controller.status.blockers import STALLED
from tests.operator.scene import NOW, condition, deployed, kstatus, observed, pods, problem, word

REACHED: dict[str, Any] = {"address": "db:5432/app", "reached": True}


def test_a_queue_that_is_well_is_ready_and_current() -> None:
    seen = observed()
    words = {one["type"]: (one["status"], one["reason"]) for one in conditions(seen)}
    assert words == {
        "Ready": ("True", "Ready"),
        "Reconciling": ("False", "Current"),
        "Stalled": ("False", "Progressing"),
        "DatabaseReachable": ("True", "Connected"),
        "SchemaCurrent": ("True", "Current"),
        "WorkersAvailable": ("True", "Available"),
        "AutoscalerConflict": ("False", "NoConflict"),
        "Paused": ("False", "Enabled"),
    }
    assert kstatus(status(seen), 3) == "Current"


def test_all_conditions_are_there_when_nothing_is_known_yet() -> None:
    """jobqueue.md: all present from the first reconcile."""
    seen = observed(secret=None, database=None, queue=None, settled=None, deployment=None, wanted=None)
    found = conditions(seen)
    assert [one["type"] for one in found] == [str(kind) for kind in ConditionType]
    assert word(seen) == ("Unknown", "NotChecked")
    assert kstatus(status(seen), 3) == "InProgress"


CASES: list[tuple[str, dict[str, Any], str]] = [
    *[
        (reason, {"secret": SecretSeen(problem=problem(reason)), "database": None}, "DatabaseReachable")
        for reason in (Reason.SECRET_NOT_FOUND, Reason.SECRET_KEY_NOT_FOUND, Reason.SECRET_FORBIDDEN, Reason.INVALID_DSN)
    ],
    *[
        (reason, {"database": DatabaseSeen(reached=False, problem=problem(reason))}, "DatabaseReachable")
        for reason in (Reason.DATABASE_UNAVAILABLE, Reason.AUTHENTICATION_FAILED, Reason.DATABASE_NOT_FOUND)
    ],
    (
        Reason.DATABASE_CHANGED,
        {"database": DatabaseSeen(**REACHED, problem=problem(Reason.DATABASE_CHANGED))},
        "DatabaseReachable",
    ),
    *[
        (reason, {"database": DatabaseSeen(**REACHED, problem=problem(reason))}, "SchemaCurrent")
        for reason in (
            Reason.PRIVILEGE_MISSING,
            Reason.SCHEMA_MISSING,
            Reason.SCHEMA_TOO_OLD,
            Reason.SCHEMA_TOO_NEW,
            Reason.MIGRATION_PENDING,
            Reason.MIGRATION_FAILED,
        )
    ],
    (Reason.CONFLICTED, {"conflict": "Conflicted happened; do this"}, ""),
    (Reason.NAME_TAKEN, {"name_taken": "NameTaken happened; do this"}, ""),
    (Reason.POD_TEMPLATE_INVALID, {"template_refused": "PodTemplateInvalid happened; do this"}, ""),
    (Reason.CHILD_REFUSED, {"child_refused": "ChildRefused happened; do this"}, ""),
    (Reason.INVALID_SPEC, {"invalid": "InvalidSpec happened; do this"}, ""),
]


@pytest.mark.parametrize(("reason", "fields", "kind"), CASES, ids=[str(case[0]) for case in CASES])
def test_each_case_has_its_own_reason_and_sentence(reason: Reason, fields: dict[str, Any], kind: str) -> None:
    """Issue 6: each its own condition reason and sentence."""
    seen = observed(**fields)
    found = condition(seen, "Ready")
    assert (found["status"], found["reason"]) == ("False", reason)
    assert found["message"] == f"{reason} happened; do this"
    if kind:
        assert (condition(seen, kind)["status"], condition(seen, kind)["reason"]) == ("False", reason)
        assert condition(seen, kind)["message"] == found["message"]
    stalled = reason in STALLED
    assert word(seen, "Stalled")[0] == str(stalled)
    assert word(seen, "Reconciling") == (str(not stalled), reason)
    assert kstatus(status(seen), 3) == ("Failed" if stalled else "InProgress")


def test_stalled_is_what_the_contract_lists() -> None:
    database = {"DatabaseChanged", "InvalidDSN", "SchemaTooNew", "MigrationPending"}
    children = {"Conflicted", "NameTaken", "PodTemplateInvalid"}
    beside = {Reason.INVALID_SPEC, Reason.AUTOSCALING_UNSUPPORTED, Reason.ROLLOUT_STUCK}
    assert {*map(Reason, database | children)} | beside == STALLED


def test_what_waits_for_a_person_is_told_before_what_may_pass() -> None:
    seen = observed(
        database=DatabaseSeen(reached=False, problem=problem(Reason.DATABASE_UNAVAILABLE)), template_refused="no image; add one"
    )
    assert word(seen) == ("False", "PodTemplateInvalid")
    assert word(seen, "DatabaseReachable") == ("False", "DatabaseUnavailable")
    assert word(seen, "SchemaCurrent") == ("Unknown", "NotChecked")


@pytest.mark.parametrize("mode", ["HPA", "KEDA"])
def test_a_mode_of_another_release_stalls_and_says_what_to_set(mode: str) -> None:
    found = condition(observed(spec={"autoscaling": {"mode": mode, "maxReplicas": 9}}), "Stalled")
    assert (found["status"], found["reason"]) == ("True", "AutoscalingUnsupported")
    assert f"spec.autoscaling.mode: {mode}" in found["message"]
    assert "Operator or Disabled" in found["message"]


def test_ready_at_no_workers() -> None:
    """jobqueue.md: True with reason ScaledToZero or OnHold."""
    none: dict[str, Any] = {"wanted": 0, "deployment": deployed(replicas=0)}
    assert word(observed(**none)) == ("True", "ScaledToZero")
    assert word(observed(**none, spec={"stopPolicy": "HoldAndDrain"})) == ("True", "OnHold")
    assert word(observed(wanted=0, deployment=deployed(replicas=2))) == ("True", "Draining")
    ending: dict[str, Any] = {
        "wanted": 0,
        "deployment": deployed(replicas=0, terminatingReplicas=2),
        "spec": {"stopPolicy": "HoldAndDrain"},
    }
    assert word(observed(**ending)) == ("True", "Draining")
    assert "2 workers" in condition(observed(**ending), "Ready")["message"]


def test_a_sleeping_queue_says_when_it_wakes() -> None:
    asleep = Autoscaling(desired_replicas=0, next_wake_time=NOW + timedelta(hours=1))
    seen = observed(wanted=0, deployment=deployed(replicas=0), autoscaling=asleep)
    assert "2026-11-28T08:00:00Z" in condition(seen, "Ready")["message"]


def test_a_hold_says_who_can_end_it() -> None:
    assert word(observed(spec={"stopPolicy": "Hold"})) == ("True", "OnHold")
    people = condition(observed(queue=QueueSeen(held=True)), "Ready")
    assert (people["status"], people["reason"]) == ("True", "OnHold")
    assert "tailrace queues resume webhooks" in people["message"]


def test_an_autoscaler_on_the_deployment_is_told() -> None:
    seen = observed(autoscaler_conflict="HPA x points at the Deployment: point scaleTargetRef at JobQueue/webhooks")
    assert word(seen, "AutoscalerConflict") == ("True", "AutoscalerOnDeployment")
    assert word(seen) == ("True", "Ready"), "it is overwritten, so the queue goes on"


def test_a_pause_is_told_and_nothing_moves() -> None:
    raw = {"annotations": {"tailrace.dev/reconcile": "disabled"}}
    seen = observed(raw=raw, settled=None, database=None)
    assert word(seen, "Paused") == ("True", "Paused")
    assert word(seen) == ("True", "Paused")
    assert word(seen, "Reconciling") == ("False", "Paused")
    assert "tailrace.dev/reconcile" in condition(seen, "Paused")["message"]
    assert word(observed(raw={"annotations": {"tailrace.dev/reconcile": "enabled"}}), "Paused")[0] == "False"


def test_a_transition_time_stays_as_long_as_the_status() -> None:
    first = observed()
    body = status(first)
    later = NOW + timedelta(minutes=5)
    same = observed(raw={"status": body}, now=later)
    assert conditions(same) == body["conditions"]
    moved = observed(raw={"status": body}, now=later, deployment=deployed(ready=1))
    times = {one["type"]: one["lastTransitionTime"] for one in conditions(moved)}
    assert times["Ready"] == times["WorkersAvailable"] == times["Reconciling"] == "2026-11-28T07:05:00Z"
    assert times["Paused"] == times["Stalled"] == "2026-11-28T07:00:00Z"


def test_another_reason_of_the_same_status_is_no_transition() -> None:
    before = status(observed(deployment=deployed(ready=1)))
    seen = observed(raw={"status": before}, now=NOW + timedelta(minutes=5), conflict="it is another's; take it over")
    found = condition(seen, "Ready")
    assert (found["reason"], found["lastTransitionTime"]) == ("Conflicted", "2026-11-28T07:00:00Z")


sentences = st.none() | st.just("a sentence; do this")
reasons = st.sampled_from(Reason)
databases = st.builds(
    DatabaseSeen,
    address=st.just("db:5432/app"),
    reached=st.none() | st.booleans(),
    problem=st.none() | reasons.map(problem),
)


@settings(deadline=None)
@given(
    secret=st.none() | st.builds(SecretSeen, problem=st.none() | reasons.map(problem)),
    database=st.none() | databases,
    invalid=sentences,
    conflict=sentences,
    name_taken=sentences,
    template_refused=sentences,
    child_refused=sentences,
    rollout_waiting=sentences,
    autoscaler_conflict=sentences,
    settled=st.none() | st.booleans(),
    wanted=st.none() | st.integers(0, 5),
    deployment=st.none() | st.builds(deployed, replicas=st.integers(0, 6), ready=st.integers(0, 6), updated=st.integers(0, 6)),
    pods=st.lists(reasons.map(lambda reason: pods(1, reason)[0]), max_size=4).map(tuple),
    annotations=st.sampled_from([{}, {"tailrace.dev/reconcile": "disabled"}]),
)
def test_whatever_is_observed_the_conditions_hang_together(annotations: dict[str, str], **fields: Any) -> None:
    """kstatus: never Reconciling and Stalled, and Current only when there is nothing left to do and nothing wrong."""
    seen: Observed = observed(raw={"annotations": annotations}, **fields)
    found = {one["type"]: one for one in conditions(seen)}
    assert set(found) == {str(kind) for kind in ConditionType}
    assert all(
        one["status"] in ("True", "False", "Unknown") and one["message"] and Reason(one["reason"]) for one in found.values()
    )
    assert all(one["message"].rstrip().endswith((".", "this")) for one in found.values())
    assert not (found["Reconciling"]["status"] == "True" and found["Stalled"]["status"] == "True")
    body = status(seen)
    if kstatus(body, 3) == "Current":
        assert found["Ready"]["status"] == "True"
        assert found["Stalled"]["status"] == "False"
    if found["Stalled"]["status"] == "True" and found["Stalled"]["reason"] != Reason.ROLLOUT_STUCK:
        assert found["Ready"]["status"] == "False"
    again = observed(raw={"annotations": annotations, "status": body}, **{**fields, "now": NOW + timedelta(seconds=9)})
    assert status(again) == body, "an unchanged reconcile writes nothing"
