"""The manifests of the controller's rights ask for no more than they must, whoever applies them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.sources import ROOT

CLUSTER = ROOT / "deploy" / "rbac" / "cluster"
NAMESPACED = ROOT / "deploy" / "rbac" / "namespaced"
ROLES = ("Role", "ClusterRole")
READS = {"get", "list", "watch"}


def objects(folder: Path) -> list[dict[str, Any]]:
    return [one for path in sorted(folder.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def rules(folder: Path, *, of: str = "") -> list[dict[str, Any]]:
    return [rule for one in objects(folder) if one["kind"] in ROLES and of in one["metadata"]["name"] for rule in one["rules"]]


@pytest.mark.parametrize("folder", [CLUSTER, NAMESPACED], ids=lambda folder: folder.name)
def test_nothing_is_granted_by_wildcard(folder: Path) -> None:
    """l3."""
    for rule in rules(folder):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], rule
        assert "nonResourceURLs" not in rule


@pytest.mark.parametrize("folder", [CLUSTER, NAMESPACED], ids=lambda folder: folder.name)
def test_secrets_are_read_by_name_only(folder: Path) -> None:
    """l3: who may list Secrets has them all, and RBAC knows no list of names alone. One is made, beside the Lease."""
    found = [verb for rule in rules(folder) if "secrets" in rule["resources"] for verb in rule["verbs"]]
    assert set(found) == {"get", "create"}
    beside_the_lease = [verb for rule in rules(folder, of="-lease") if "secrets" in rule["resources"] for verb in rule["verbs"]]
    assert found.count("create") == beside_the_lease.count("create") == 1


@pytest.mark.parametrize("folder", [CLUSTER, NAMESPACED], ids=lambda folder: folder.name)
def test_jobqueues_and_pods_are_never_written(folder: Path) -> None:
    """l3, g1: of a JobQueue only the status is ours."""
    for rule in rules(folder, of="tailrace-controller"):
        for resource in set(rule["resources"]) & {"jobqueues", "pods", "configmaps", "namespaces", "horizontalpodautoscalers"}:
            assert set(rule["verbs"]) <= READS, resource


def test_one_namespace_needs_no_right_on_the_cluster() -> None:
    """l3."""
    kinds = {one["kind"] for one in objects(NAMESPACED)}
    assert kinds == {"ServiceAccount", "Role", "RoleBinding"}
    assert {one["metadata"]["namespace"] for one in objects(NAMESPACED)} == {"team-a"}


def test_both_ways_grant_the_same() -> None:
    def granted(folder: Path) -> set[tuple[str, str, str]]:
        return {
            (group, resource, verb)
            for rule in rules(folder, of="tailrace-controller")
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    assert granted(CLUSTER) == granted(NAMESPACED)


def test_each_role_is_bound_to_the_controller_or_added_to_those_of_people() -> None:
    for folder in (CLUSTER, NAMESPACED):
        found = objects(folder)
        (account,) = (one["metadata"] for one in found if one["kind"] == "ServiceAccount")
        bound = {}
        for one in found:
            if one["kind"].endswith("Binding"):
                bound[one["roleRef"]["kind"], one["roleRef"]["name"]] = one["subjects"]
        subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        for one in found:
            if one["kind"] in ROLES:
                added = any("aggregate-to" in label for label in one["metadata"].get("labels", ()))
                assert added or bound[one["kind"], one["metadata"]["name"]] == [subject]


def test_view_only_reads() -> None:
    (view,) = (one for one in objects(CLUSTER) if one["metadata"]["name"] == "tailrace-jobqueues-view")
    assert {verb for rule in view["rules"] for verb in rule["verbs"]} <= READS
