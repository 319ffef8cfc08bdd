"""A password never shows: not in logs, not in errors, not in the process list, whatever is wrong with the connection."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.rig.processes import RealProcess, StartProcess
from tests.rig.waiting import eventually
from tests.worker.scene import APP, PATIENCE, SLACK, Scene

MARKER = "mark-of/the@secret"
FORMS = (MARKER, quote(MARKER, safe=""), base64.b64encode(MARKER.encode()).decode())


def hidden(text: str) -> bool:
    return not any(form in text for form in FORMS)


def url(scene: Scene, **changes: str) -> str:
    """The test database's address as a URL with the marker for a password."""
    place = {**{name: str(value) for name, value in conninfo_to_dict(scene.database.dsn).items()}, **changes}
    return f"postgresql://{place['user']}:{FORMS[1]}@{place['host']}:{place['port']}/{place['dbname']}"


def start(process: StartProcess, scene: Scene, env: Mapping[str, str], *arguments: str) -> RealProcess:
    common = {"TAILRACE_METRICS_PORT": "none", "TAILRACE_LOG_LEVEL": "debug", "FAULTS_HOME": str(scene.home)}
    return process("-m", "tailrace_cli", "worker", APP, *arguments, env={**common, **env})


@pytest.mark.parametrize("wrong", ["password", "port", "database"])
def test_what_may_pass_is_waited_for_without_a_word_of_the_secret(scene: Scene, process: StartProcess, wrong: str) -> None:
    """l2: wrong password, nobody listening, no such database; at debug level, with tracebacks."""
    changes: dict[str, dict[str, str]] = {"password": {}, "port": {"port": "1"}, "database": {"dbname": "no-such-database"}}
    worker = start(process, scene, {"TAILRACE_DATABASE_URL": url(scene, **changes[wrong])}, "-v")
    eventually(lambda: "waiting: " in worker.output or not worker.running, PATIENCE, what="its word")
    shown = " ".join(psutil.Process(worker.pid).cmdline())
    worker.terminate()
    assert worker.wait(SLACK) == 0
    assert "127.0.0.1" in worker.output
    assert hidden(worker.output)
    assert hidden(shown)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{MARKER}@:@@/x y",
        f"postgresql://me:{FORMS[1]}@localhost:not-a-port/x",
        f"host=localhost password={MARKER} nonsense",
        f"postgresql://me:{FORMS[1]}@localhost/x?no_such_option=1",
    ],
)
def test_a_malformed_address_is_refused_without_repeating_it(scene: Scene, process: StartProcess, text: str) -> None:
    """l2."""
    worker = start(process, scene, {"TAILRACE_DATABASE_URL": text}, "-v")
    assert eventually(lambda: not worker.running or "waiting" in worker.output, PATIENCE, what="its word")
    worker.terminate() if worker.running else None
    worker.wait(SLACK)
    assert worker.output.strip()
    assert hidden(worker.output)


def test_a_secret_in_a_file_is_read_again_when_it_has_changed(scene: Scene, process: StartProcess, tmp_path: Path) -> None:
    """l2, g4: a rotated password is taken up by a worker that waits, and neither shows."""
    file = tmp_path / "url"
    file.write_text(url(scene))
    job = scene.enqueue("quick")
    worker = start(process, scene, {"TAILRACE_DATABASE_URL_FILE": str(file)})
    eventually(lambda: "waiting: " in worker.output, PATIENCE, what="its word")
    file.write_text(scene.database.dsn)
    scene.wait_line("start", job)
    worker.terminate()
    assert worker.wait(SLACK) == 0
    assert hidden(worker.output)
    password = conninfo_to_dict(scene.database.dsn).get("password")
    assert not password or str(password) not in worker.output
