"""A worker's id is new at every start, also under a given name; in a pod it is left for the kubelet to report."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tailrace.errors import SchemaTooNew
from tailrace_worker import identity
from tests.worker.scene import PATIENCE, Scene

UID = "5d0c6a4e-9f0b-4a8e-bb2e-0d1f6f3a7c11"


def test_two_starts_under_one_name_are_two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """c4: A replacement with its predecessor's id would look alive and hide the jobs that the predecessor left."""
    monkeypatch.delenv("TAILRACE_POD_UID", raising=False)
    first, second = identity.worker_id("web"), identity.worker_id("web")
    assert first != second
    assert first.startswith("web/")


def test_a_pod_is_known_by_its_uid_and_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_POD_UID", "f3a0")
    monkeypatch.setenv("TAILRACE_CONTAINER", "worker-b")
    assert identity.worker_id(None).startswith("f3a0/worker-b/")
    monkeypatch.delenv("TAILRACE_CONTAINER")
    assert identity.worker_id(None).startswith("f3a0/worker/")


def test_a_name_does_not_hide_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id without the pod's UID proves nothing about that pod."""
    monkeypatch.setenv("TAILRACE_POD_UID", UID)
    assert identity.worker_id("web").startswith(f"{UID}/web/")
    assert identity.worker_id("x" * 1000).startswith(f"{UID}/x")


def test_elsewhere_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_POD_UID", raising=False)
    monkeypatch.setattr("platform.node", lambda: "host-7")
    assert identity.worker_id(None).startswith("host-7/")
    monkeypatch.setattr("platform.node", lambda: "")
    assert identity.worker_id(None).startswith("worker/")


def test_a_long_name_is_cut() -> None:
    assert len(identity.worker_id("x" * 1000)) <= 210


def test_the_trace_is_left_in_pods_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    file.touch()
    monkeypatch.setattr(identity, "TERMINATION_LOG", file)
    monkeypatch.delenv("TAILRACE_POD_UID", raising=False)
    identity.leave_trace("a/1")
    assert file.read_text() == ""
    monkeypatch.setenv("TAILRACE_POD_UID", "f3a0")
    identity.leave_trace("a/1")
    assert file.read_text() == "a/1\n"


def test_a_file_of_ones_choice_takes_it_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TAILRACE_POD_UID", raising=False)
    identity.leave_trace("a/1", tmp_path / "id")
    assert (tmp_path / "id").read_text() == "a/1\n"
    identity.leave_trace("a/1", tmp_path / "no such folder" / "id")  # a worker works without it


def test_why_it_ends_stands_below_the_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of others' errors only the type: their texts may hold what a job is about (l2)."""
    monkeypatch.delenv("TAILRACE_POD_UID", raising=False)
    file = tmp_path / "id"
    identity.leave_trace("a/1", file)
    identity.leave_words(SchemaTooNew("the schema is\n  too new"), file)
    identity.leave_words(ValueError("card 4711"), file)
    identity.leave_words(SchemaTooNew("x" * 9000), file)
    first, second, third, fourth = file.read_text().splitlines()
    assert (first, second, third) == ("a/1", "the schema is too new", "ValueError")
    assert len(fourth) == identity.LONGEST_WORDS
    identity.leave_words(ValueError("x"), tmp_path / "no such folder" / "id")
    identity.leave_words(ValueError("x"))


def test_a_worker_that_cannot_start_leaves_why(scene: Scene, tmp_path: Path) -> None:
    """jobqueue.md: the status shows the exit code and the last message of what crashes."""
    file = tmp_path / "termination-log"
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        env = {
            "TAILRACE_METRICS_PORT": str(taken.getsockname()[1]),
            "TAILRACE_POD_UID": UID,
            "TAILRACE_TERMINATION_LOG": str(file),
        }
        assert scene.worker(env=env, ready=False).wait(PATIENCE) != 0
    ident, words = file.read_text().splitlines()
    assert ident.startswith(f"{UID}/worker/")
    assert "cannot listen on" in words


def test_a_killed_process_has_left_the_id_of_its_row(scene: Scene, tmp_path: Path) -> None:
    """What the kubelet reports after a SIGKILL is the id in the database, and its first line is the whole id."""
    file = tmp_path / "termination-log"
    worker = scene.worker(env={"TAILRACE_POD_UID": UID, "TAILRACE_TERMINATION_LOG": str(file)})
    worker.kill9()
    ident = file.read_text().split("\n")[0]
    assert ident.startswith(f"{UID}/worker/")
    assert scene.database.query("select id from tailrace.worker") == [(ident,)]


def test_its_jobs_run_elsewhere_at_once_when_that_is_proved(scene: Scene, tmp_path: Path) -> None:
    """Proof of death: a lease of a minute does not matter."""
    file = tmp_path / "termination-log"
    first = scene.worker(env={"TAILRACE_POD_UID": UID, "TAILRACE_TERMINATION_LOG": str(file)}, lease=60)
    job = scene.enqueue("gated", gate="open")
    scene.wait_line("start", job)
    first.kill9()
    second = scene.worker(lease=60)
    scene.open("open")
    ident = file.read_text().split("\n")[0]
    told = scene.database.value("select tailrace.worker_gone_v1(%s, 'OOMKilled, exit code 137')", [ident])
    assert [row["result"] for row in told["rows"]] == ["lost"]
    scene.wait_line("start", job, n=2, timeout=PATIENCE)
    scene.wait_gone()
    assert second.running
