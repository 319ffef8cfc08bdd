"""The samples are more than valid: a controller makes workers of each, or says what they lack in this release or cluster."""

from __future__ import annotations

import pytest

from tailrace.names.conditions import ConditionType, Reason
from tests.operator.samples import VALID, documents
from tests.operator.stage import PATIENCE, Stage
from tests.rig.waiting import eventually

# name → workers at first: in mode Operator spec.replicas within the bounds, until the demand says otherwise
WORKERS = {"smallest": 1, "clicks": 2, "reports": 1, "tenant-acme": 1, "tenant-globex": 0}
LATER = {"everything-hpa", "everything-keda"}


@pytest.mark.slow
def test_every_sample_is_served_or_told_why_not(stage: Stage) -> None:
    """BF-39."""
    stage.secret("t", name="receiver", key="token")
    for name in {one["spec"]["database"]["secretRef"]["name"] for sample in VALID for one in documents(sample)}:
        stage.secret(name=name)
    stage.controller()
    for sample in VALID:
        stage.kubectl.apply(sample)
    for name, workers in WORKERS.items():
        stage.wait(ConditionType.DATABASE_REACHABLE, "True", name=name, timeout=2 * PATIENCE)
        stage.wait(ConditionType.SCHEMA_CURRENT, "True", name=name, timeout=2 * PATIENCE)
        stage.wait_replicas(workers, name)
        stage.wait(ConditionType.STALLED, "False", name=name)
    for name in LATER:
        assert "not in this release" in stage.wait(ConditionType.STALLED, "True", Reason.AUTOSCALING_UNSUPPORTED, name=name)
        stage.wait_replicas(1, name)
    said = stage.wait(ConditionType.STALLED, "True", name="everything")
    assert "tailrace migrate" in said, "its migrations are a person's to run"
    assert stage.wait(ConditionType.READY, "True", name="tenant-globex")
    shown = eventually(lambda: stage.kubectl("get", "jq", "--output=wide"), what="the table")
    assert "registry.example/clicks:2.4.0" in str(shown)
