"""One control plane for all processes of a test run: a process of its own keeps it as long as somebody holds on to it.

Whoever uses it keeps a connection to the keeper's socket. Connections end with their process, however that ends; the last
one takes the control plane with it. etcd and the others are tied to the keeper and end with it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig.kube.cluster import ROOT, Cluster
from tests.rig.kube.control_plane import ControlPlane

PREFIX = "tailrace-kube-"
_GRACE = 2.0  # seconds without anybody: from the first one's start to its connection
_START_SECONDS = 80.0


class KeeperError(Exception):
    """The control plane of this run did not start; the message has the reason."""


@contextmanager
def shared(run: str, binaries: Path) -> Iterator[Cluster]:
    """Give the control plane of a test run, started by whoever comes first and ended after the last.

    Args:
        run: What names the run: the same in all its processes.
        binaries: The programs.

    Raises:
        KeeperError: It did not start.
    """
    place = Path(tempfile.gettempdir()) / f"{PREFIX}{os.getuid()}-{run}"
    with _locked(place):
        link = _connect(place) or _start(place, binaries)
    with link:
        yield _cluster(link)


def remove_left_overs() -> None:
    """Remove the folders of control planes whose process was killed; what ran for them ended with it."""
    for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/owner"):
        with contextlib.suppress(OSError, ValueError):
            if place.stat().st_uid == os.getuid() and not _lives(int(place.read_text())):
                shutil.rmtree(place.parent, ignore_errors=True)
                _lock_file(place.parent).unlink(missing_ok=True)


def own(place: Path) -> Path:
    """Make a folder that `remove_left_overs` removes if this process cannot, and return it."""
    place.mkdir(mode=0o700, exist_ok=True)
    (place / "owner").write_text(str(os.getpid()))
    return place


# ---- the side of the tests -------------------------------------------------------------------------------------------
def _connect(place: Path) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(str(place / "socket"))
    except OSError:  # none yet, or one that is gone
        link.close()
        return None
    return link


def _start(place: Path, binaries: Path) -> socket.socket:
    """Start a keeper; it inherits the socket, which takes connections from now on."""
    remove_left_overs()
    place.mkdir(mode=0o700, exist_ok=True)
    (place / "socket").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener, (place / "keeper.log").open("wb") as log:
        listener.bind(str(place / "socket"))
        listener.listen()
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(place / "socket"))
        subprocess.Popen(
            [sys.executable, "-m", "tests.rig.kube.keeper", str(listener.fileno()), str(place), str(binaries)],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=ROOT,
            start_new_session=True,  # a Ctrl-C in the terminal is for the tests; their end is the keeper's
        ).returncode = 0  # it outlives this process, which therefore does not wait for it
    return link


def _cluster(link: socket.socket) -> Cluster:
    link.settimeout(_START_SECONDS)
    told = b""
    while not told.endswith(b"\n"):
        more = link.recv(65536)
        if not more:
            raise KeeperError("the keeper of the control plane ended before it was up")
        told += more
    answer = json.loads(told)
    if "error" in answer:
        raise KeeperError(answer["error"])
    return Cluster.from_json(told.decode())


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Let one process at a time start or end the control plane of a run."""
    path = _lock_file(place)
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:  # not one that was just removed
                yield
                return


def _lock_file(place: Path) -> Path:
    return place.with_name(f"{place.name}.lock")


# ---- the keeper ------------------------------------------------------------------------------------------------------
def main() -> None:
    """Start the control plane, tell everybody who connects where it is, and end it after the last."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    place, binaries = own(Path(sys.argv[2])), Path(sys.argv[3])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    plane = ControlPlane(place / "plane", binaries)
    last = contextlib.ExitStack()  # holds the lock while everything is cleared away
    try:
        answer = _started(plane).encode() + b"\n"
        while True:
            _serve(listener, answer)
            last.enter_context(_locked(place))
            if not select.select([listener], [], [], 0)[0]:
                break
            last.close()  # somebody has just come
    finally:
        with last:
            listener.close()
            plane.stop()
            shutil.rmtree(place, ignore_errors=True)
            _lock_file(place).unlink(missing_ok=True)


def _started(plane: ControlPlane) -> str:
    try:
        cluster = plane.start()
    except Exception:  # noqa: BLE001 - whatever it was, those who wait must hear of it
        return json.dumps({"error": traceback.format_exc()})
    return cluster.as_json()


def _serve(listener: socket.socket, answer: bytes) -> None:
    """Answer each connection and keep it, until there has been none for a while."""
    listener.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        last = time.monotonic()
        while len(selector.get_map()) > 1 or time.monotonic() - last < _GRACE:
            for ready, _ in selector.select(0.5):
                if ready.fileobj is listener:
                    link, _ = listener.accept()
                    selector.register(link, selectors.EVENT_READ)
                    with contextlib.suppress(OSError):  # it is gone already; the next turn lets go of it
                        link.sendall(answer)
                else:
                    _drop(selector, ready.fileobj)
                last = time.monotonic()


def _drop(selector: selectors.BaseSelector, link: object) -> None:
    """Let go of a connection that has ended: nobody ever says anything on it."""
    assert isinstance(link, socket.socket)
    selector.unregister(link)
    link.close()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


if __name__ == "__main__":
    main()
