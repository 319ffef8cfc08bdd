"""What the watches told, and whether it is worth a look. Our own writes come back as news and must not wake us (g1)."""

from __future__ import annotations

from typing import Any

from tailrace_controller.cache import Cache
from tailrace_controller.kube.kinds import DEPLOYMENT, JOBQUEUE, POD

KEY = ("team-a", "jobs")


def cache() -> Cache:
    return Cache(controller_name="tailrace.dev/controller")


def queue(version: int = 1, *, generation: int = 1, controller: str | None = None, **metadata: Any) -> dict[str, Any]:
    spec = {"replicas": 1} if controller is None else {"controllerName": controller}
    made = {"namespace": "team-a", "name": "jobs", "uid": "u", "resourceVersion": str(version), "generation": generation}
    conditions = [{"type": "Ready", "status": "True", "message": f"version {version}"}] if version > 1 else []
    return {"metadata": {**made, **metadata}, "spec": spec, "status": {"conditions": conditions}}


def child(version: int, name: str = "jobs-worker", *, ready: int = 0, **metadata: Any) -> dict[str, Any]:
    made = {"namespace": "team-a", "name": name, "resourceVersion": str(version), "labels": {"tailrace.dev/queue": "jobs"}}
    return {"metadata": {**made, **metadata}, "spec": {"replicas": 1}, "status": {"readyReplicas": ready}}


def test_a_status_that_we_wrote_wakes_nobody() -> None:
    """g1, operator-notes 3.2 #14."""
    known = cache()
    assert known.take(JOBQUEUE, "ADDED", queue(1)) == KEY
    assert known.take(JOBQUEUE, "MODIFIED", queue(2)) is None
    assert known.resources[KEY]["status"] == {"conditions": [{"type": "Ready", "status": "True"}]}  # it is known all the same


def test_spec_labels_our_annotations_and_the_mark_of_deletion_wake() -> None:
    """operator-notes 3.2 #14: the generation alone would miss the pause annotation."""
    known = cache()
    known.take(JOBQUEUE, "ADDED", queue(1))
    assert known.take(JOBQUEUE, "MODIFIED", queue(2, generation=2)) == KEY
    assert known.take(JOBQUEUE, "MODIFIED", queue(3, generation=2, labels={"team": "a"})) == KEY
    annotated: dict[str, Any] = {"annotations": {"tailrace.dev/reconcile": "disabled"}, "labels": {"team": "a"}}
    assert known.take(JOBQUEUE, "MODIFIED", queue(4, generation=2, **annotated)) == KEY
    foreign: dict[str, Any] = {**annotated, "annotations": {**annotated["annotations"], "example.com/note": "x"}}
    assert known.take(JOBQUEUE, "MODIFIED", queue(5, generation=2, **foreign)) is None
    assert known.take(JOBQUEUE, "MODIFIED", queue(6, generation=2, deletionTimestamp="2026-11-27T22:00:00Z", **foreign)) == KEY
    assert known.take(JOBQUEUE, "DELETED", queue(7)) == KEY
    assert known.resources == {}
    assert known.take(JOBQUEUE, "DELETED", queue(8)) is None


def test_late_news_do_not_bring_back_the_past() -> None:
    known = cache()
    known.take_list(JOBQUEUE, [queue(9, generation=4)])
    assert known.take(JOBQUEUE, "MODIFIED", queue(7, generation=3)) is None
    assert known.take(JOBQUEUE, None, queue(9, generation=4)) is None
    assert known.resources[KEY]["metadata"]["generation"] == 4


def test_a_resource_of_another_installation_is_none_of_ours() -> None:
    known = cache()
    assert known.take(JOBQUEUE, "ADDED", queue(1, controller="other.example/controller")) is None
    assert known.resources == {}


def test_what_a_complete_list_does_not_have_is_gone() -> None:
    """operator-notes 3.2 #4: a watch that was cut never tells what was deleted meanwhile."""
    known = cache()
    known.take(JOBQUEUE, "ADDED", queue(1))
    known.take(DEPLOYMENT, "ADDED", child(2))
    elsewhere = {**queue(3), "metadata": {**queue(3)["metadata"], "namespace": "team-b"}}
    known.take(JOBQUEUE, "ADDED", elsewhere)
    assert known.take_list(JOBQUEUE, [], namespaces=["team-a"]) == {KEY}
    assert set(known.resources) == {("team-b", "jobs")}
    assert known.take_list(DEPLOYMENT, []) == {KEY}
    assert known.children(DEPLOYMENT, KEY) == []


def test_children_wake_their_resource_when_anything_of_them_changes() -> None:
    """operator-notes 3.2 #15: there is no Owns(); the label tells whose they are."""
    known = cache()
    assert known.take(DEPLOYMENT, "ADDED", child(1)) == KEY
    assert known.take(DEPLOYMENT, "MODIFIED", child(2)) is None
    assert known.take(DEPLOYMENT, "MODIFIED", child(3, ready=1)) == KEY
    assert known.take(DEPLOYMENT, "MODIFIED", child(4, ready=1, generation=2)) == KEY  # its spec
    assert known.take(DEPLOYMENT, "DELETED", child(5)) == KEY
    unlabelled = {**child(6), "metadata": {**child(6)["metadata"], "labels": {}}}
    assert known.take(DEPLOYMENT, "ADDED", unlabelled) is None


def test_of_a_pod_only_what_tells_how_it_does_is_kept() -> None:
    known = cache()
    pod = child(1, "jobs-worker-1", managedFields=[{"manager": "kubelet"}])
    pod["spec"] = {"nodeName": "n1", "containers": [{"name": "worker", "env": [{"name": "TOKEN", "value": "x" * 1000}]}]}
    known.take(POD, "ADDED", pod)
    known.take(POD, "ADDED", child(2, "jobs-worker-2"))
    kept = {one["metadata"]["name"]: one for one in known.children(POD, KEY)}
    assert kept["jobs-worker-1"]["spec"] == {"nodeName": "n1"}
    assert "managedFields" not in kept["jobs-worker-1"]["metadata"]
    assert pod["spec"]["containers"]  # the news themselves are whole
    assert list(known.keys(POD)) == [KEY]
