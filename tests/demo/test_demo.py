"""The demo as it is run: it adds up, ends what it started, and says what is wrong."""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.rig.processes import RealProcess, StartProcess
from tests.rig.waiting import eventually

FEWER = ("--events", "300", "--latency", "0.15", "--lease", "3")


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder that the server's account can reach, also when root runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="tailrace-demo-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def start(process: StartProcess, state: Path, *arguments: str) -> RealProcess:
    return process("-m", "examples.webhooks.demo", "--state-dir", str(state), *arguments)


def family(demo: RealProcess) -> list[psutil.Process]:
    """The processes that the demo started, and those that they started."""
    return psutil.Process(demo.pid).children(recursive=True)


def wait_until_says(demo: RealProcess, text: str) -> None:
    eventually(lambda: text in demo.output or not demo.running, 60, what=text)
    assert text in demo.output, demo.output


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_server_can_be_kept(process: StartProcess, state: Path):
    """A run that fails early keeps it too, so that one can look."""
    demo = start(process, state, "--keep", *FEWER)
    wait_until_says(demo, "enqueues")
    demo.signal(signal.SIGINT)
    assert demo.wait(60) == 130, demo.output
    said = re.search(r"process (\d+)\): psql '(.*)'", demo.output)
    assert said is not None, demo.output
    with psycopg.connect(said[2]) as conn:
        assert conn.execute("select count(*) > 0 from tailrace.migration").fetchone() == (True,)
    server = psutil.Process(int(said[1]))
    server.send_signal(signal.SIGINT)
    psutil.wait_procs([server], timeout=20)
    assert not server.is_running()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_run_adds_up_and_leaves_nothing_behind(process: StartProcess, state: Path):
    """CJ-05, BF-08: what a killed worker held is run by another."""
    demo = start(process, state, *FEWER)
    wait_until_says(demo, "kills ")
    started = family(demo)
    assert demo.wait(150) == 0, demo.output
    assert "The ledger adds up" in demo.output
    figures = dict(re.findall(r"^  (\S.*?)\s{2,}([\d,.]+)  ", demo.output.split("Ledger")[1], re.MULTILINE))
    assert figures["enqueued"] == figures["delivered"] == "300"
    assert figures["dead"] == figures["requeued"] == "3"
    assert figures["lost"] == "0"
    assert int(figures["recovered"]) > 0
    assert not [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_all_it_started(process: StartProcess, state: Path, number: signal.Signals):
    demo = start(process, state, *FEWER)
    wait_until_says(demo, "starts 2 workers")
    eventually(lambda: len(family(demo)) >= 4, 30, what="server, receiver and workers")
    started = family(demo)
    demo.signal(number)
    assert demo.wait(60) == 130, demo.output
    assert "Traceback" not in demo.output
    eventually(lambda: not any(one.is_running() for one in started), 10, what="the end of all it started")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_two_runs_do_not_share_a_folder(process: StartProcess, state: Path):
    first = start(process, state, *FEWER)
    wait_until_says(first, "creates the tables")
    second = start(process, state, *FEWER)
    assert second.wait(30) == 1
    assert "another demo runs in" in second.output
    assert first.running
    first.signal(signal.SIGINT)
    assert first.wait(60) == 130, first.output


@pytest.mark.parametrize("arguments", [("--events", "10"), ("--lease", "1"), ("--slots", "0"), ("--nonsense",)])
def test_wrong_usage_is_refused_before_anything_starts(process: StartProcess, state: Path, arguments: tuple[str, ...]):
    demo = start(process, state, *arguments)
    assert demo.wait(30) == 2
    assert "usage:" in demo.output
    assert list(state.iterdir()) == []
