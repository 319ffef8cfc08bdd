"""Merging by key: every list that the contract names, and all others replaced."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace_controller.desired.overlay import merged

PATH = "spec.template"


def pod(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = merged({"spec": base}, {"spec": over}, path=PATH)["spec"]
    return found


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("containers", {"name": "a"}),
        ("initContainers", {"name": "a"}),
        ("volumes", {"name": "a"}),
        ("imagePullSecrets", {"name": "a"}),
        ("topologySpreadConstraints", {"topologyKey": "a", "whenUnsatisfiable": "b"}),
    ],
)
def test_lists_of_the_pod_merge_by_their_key(field: str, key: dict[str, Any]) -> None:
    other = {name: f"{value}2" for name, value in key.items()}
    new = {name: f"{value}3" for name, value in key.items()}
    found = pod({field: [{**key, "x": 1, "y": 1}, {**other, "x": 1}]}, {field: [{**new, "x": 3}, {**key, "x": 2}]})
    assert found[field] == [{**key, "x": 2, "y": 1}, {**other, "x": 1}, {**new, "x": 3}]


@pytest.mark.parametrize("containers", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("field", "key", "other"),
    [
        ("env", {"name": "A"}, {"name": "B"}),
        ("ports", {"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}),
        ("volumeMounts", {"mountPath": "/a"}, {"mountPath": "/b"}),
    ],
)
def test_lists_of_containers_merge_by_their_key(containers: str, field: str, key: dict[str, Any], other: dict[str, Any]) -> None:
    base = {containers: [{"name": "c", field: [{**key, "value": "1"}]}]}
    over = {containers: [{"name": "c", field: [{**other, "value": "2"}, {**key, "value": "3"}]}]}
    assert pod(base, over)[containers][0][field] == [{**key, "value": "3"}, {**other, "value": "2"}]


def test_a_port_without_a_protocol_is_one_of_tcp() -> None:
    base = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "a"}]}]}
    found = pod(base, {"containers": [{"name": "c", "ports": [{"containerPort": 80, "name": "b"}]}]})
    assert found["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "b"}]


def test_other_lists_are_replaced() -> None:
    base = {
        "containers": [{"name": "c", "args": ["a", "b"], "envFrom": [{"secretRef": {"name": "x"}}]}],
        "hostAliases": [{"ip": "1"}],
    }
    over = {"containers": [{"name": "c", "args": ["z"], "envFrom": []}], "hostAliases": [{"ip": "2"}]}
    found = pod(base, over)
    assert found["containers"][0] == {"name": "c", "args": ["z"], "envFrom": []}
    assert found["hostAliases"] == [{"ip": "2"}]


def test_maps_merge_and_null_removes_a_default() -> None:
    base = {"securityContext": {"runAsUser": 1, "fsGroup": 2}, "topologySpreadConstraints": [{"topologyKey": "a"}]}
    over = {"securityContext": {"fsGroup": None, "runAsGroup": 3}, "topologySpreadConstraints": None, "hostNetwork": None}
    assert pod(base, over) == {"securityContext": {"runAsUser": 1, "runAsGroup": 3}}


def test_a_volume_of_another_kind_takes_the_place_of_the_default() -> None:
    """Two sources in one volume would be refused by the API server."""
    base = {"volumes": [{"name": "tmp", "emptyDir": {}}]}
    sized = pod(base, {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]})
    claimed = pod(base, {"volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {}}}]})
    assert sized["volumes"] == [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]
    assert claimed["volumes"] == [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {}}}]


def test_neither_side_is_changed() -> None:
    base, over = {"volumes": [{"name": "tmp", "emptyDir": {}}]}, {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]}
    pod(base, over)
    assert base == {"volumes": [{"name": "tmp", "emptyDir": {}}]}
    assert over == {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]}
