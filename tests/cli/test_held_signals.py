"""A signal that comes while something is started waits until it is known to whoever ends it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from examples.webhooks.processes import Child
from tailrace_cli.embedded import EmbeddedPostgres
from tailrace_cli.held_signals import held_signals


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let a Ctrl-C come when a process has just been made and nobody has its number yet; returns the numbers."""
    made: list[int] = []
    start = subprocess.Popen.__init__

    def start_and_interrupt(self: Any, command: Any, **options: Any) -> None:
        start(self, command, **options)
        if options.get("start_new_session"):
            made.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "__init__", start_and_interrupt)
    yield made
    for number in made:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(number).kill()


@pytest.fixture
def python_handler() -> Iterator[Any]:
    """The handler of SIGINT; it is the same afterwards."""
    before = signal.getsignal(signal.SIGINT)
    yield before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_waits_for_the_end_of_the_block(python_handler: Any) -> None:
    steps = []

    def start() -> None:
        with held_signals():
            signal.raise_signal(signal.SIGINT)
            steps.append("known")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert steps == ["known"]


def test_one_that_nobody_handles_is_not_held() -> None:
    """What ends us at once, or does nothing, goes on doing so."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with held_signals():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_have_no_signals(python_handler: Any) -> None:
    during: list[Any] = []

    def work() -> None:
        with held_signals():
            during.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert during == [python_handler]


def test_an_interrupted_start_of_a_server_leaves_none_behind(interrupted: list[int]) -> None:
    server = EmbeddedPostgres(fsync=False)
    with pytest.raises(KeyboardInterrupt):
        server.start()
    server.close()
    assert [number for number in interrupted if psutil.pid_exists(number)] == []
    assert len(interrupted) == 1


def test_an_interrupted_start_of_the_demos_processes_leaves_none_behind(interrupted: list[int], tmp_path: Path) -> None:
    with ExitStack() as stack, pytest.raises(KeyboardInterrupt):
        Child("sleeper", ["-c", "import time; time.sleep(600)"], folder=tmp_path, environment={}, stack=stack)
    assert [number for number in interrupted if psutil.pid_exists(number)] == []
    assert len(interrupted) == 1
