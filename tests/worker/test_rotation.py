"""A password is rotated under workers: no roll-out, no lost job, and no restart while the Secret is behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.logins import MakeLogin, RigLogin
from tests.rig.servers import RigDatabase
from tests.worker.scene import PATIENCE, Scene


@pytest.fixture
def login(database: RigDatabase, make_login: MakeLogin) -> RigLogin:
    """What the Secret holds: a user with the worker's role."""
    return make_login(database, "tailrace_worker")


def sessions(login: RigLogin) -> int:
    return int(login.database.value("select count(*) from pg_stat_activity where usename = %s", [login.name]))


def test_a_running_worker_takes_the_new_password_when_it_connects_again(scene: Scene, login: RigLogin, tmp_path: Path) -> None:
    """g4: the role has its new password, sessions end, and only then does the kubelet bring the new Secret."""
    file = tmp_path / "uri"
    file.write_text(login.dsn)
    worker = scene.worker(env={"TAILRACE_DATABASE_URL": "", "TAILRACE_DATABASE_URL_FILE": str(file)})
    first = scene.enqueue("quick")
    scene.wait_line("start", first)
    login.rotate()
    second = scene.enqueue("quick")
    scene.wait_line("start", second)  # what is connected works on
    assert login.database.terminate_backends() >= 1
    worker.wait_event("database_away", PATIENCE)
    third = scene.enqueue("quick")
    assert not scene.lines("start", third)
    assert worker.running
    file.write_text(login.dsn)
    scene.wait_line("start", third, timeout=PATIENCE)
    scene.wait_gone()
    assert login.password not in worker.output
    assert login.name not in worker.output
    worker.terminate()
    assert worker.wait(PATIENCE) == 0


def test_a_worker_that_starts_before_its_secret_waits_for_it(scene: Scene, login: RigLogin, tmp_path: Path) -> None:
    file = tmp_path / "uri"
    job = scene.enqueue("quick")
    worker = scene.worker(env={"TAILRACE_DATABASE_URL": "", "TAILRACE_DATABASE_URL_FILE": str(file)}, ready=False)
    worker.wait_event("database_away", PATIENCE)
    file.write_text(login.dsn)
    scene.wait_line("start", job, timeout=PATIENCE)
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
