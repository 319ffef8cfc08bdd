"""A worker's id is new at every start, also under a given name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace_worker import identity


def test_two_starts_under_one_name_are_two_workers() -> None:
    """c4: A replacement with its predecessor's id would look alive and hide the jobs that the predecessor left."""
    first, second = identity.worker_id("web"), identity.worker_id("web")
    assert first != second
    assert first.startswith("web/")


def test_a_pod_is_known_by_its_uid_and_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_POD_UID", "f3a0")
    monkeypatch.setenv("TAILRACE_CONTAINER", "worker-b")
    assert identity.worker_id(None).startswith("f3a0/worker-b/")
    monkeypatch.delenv("TAILRACE_CONTAINER")
    assert identity.worker_id(None).startswith("f3a0/worker/")


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
