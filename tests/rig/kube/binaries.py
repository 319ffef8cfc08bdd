"""The programs of a control plane: from a folder that is named, from the cache, or built once.

`python -m tests.rig.kube.binaries` builds them if need be and prints where they are; `make test-operator` begins with it.
How they are built stands in `building`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.rig.kube import building
from tests.rig.kube.building import BuildError, Say
from tests.rig.waiting import eventually

GIVEN, ALSO_GIVEN = "TAILRACE_KUBE_BINARIES", "KUBEBUILDER_ASSETS"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
_TELL_EVERY = 20.0


def find() -> Path | None:
    """Return the folder that has the programs; None while they have yet to be built.

    Raises:
        BuildError: TAILRACE_KUBE_BINARIES names a folder that lacks some.
    """
    given = os.environ.get(GIVEN)
    if given:
        lacking = _lacking(Path(given))
        if lacking:
            raise BuildError(
                f"{GIVEN}={given} has no {' and no '.join(lacking)}. Put them there, or unset it to have them built."
            )
        return Path(given).resolve()
    assets = os.environ.get(ALSO_GIVEN)
    if assets and not _lacking(Path(assets)):
        return Path(assets).resolve()
    cached = cache() / building.key()
    return None if _lacking(cached) else cached


def ensure(*, say: Say, beside: int | None = None) -> Path:
    """Return the folder that has the programs, and build them before if need be. One process builds, others wait for it.

    Args:
        say: Takes a line of progress.
        beside: The process for whose sake it builds; the build ends when that ends.

    Raises:
        BuildError: They cannot be built; the message ends with the remedy.
    """
    found = find()
    if found is not None:
        return found
    if os.environ.get(ALSO_GIVEN):
        say(f"{ALSO_GIVEN} has no {' and no '.join(_lacking(Path(os.environ[ALSO_GIVEN])))}: building all")
    place = cache()
    place.mkdir(parents=True, exist_ok=True)
    log = place / f"{building.key()}.log"
    with _locked(place / f"{building.key()}.lock", lambda: say(_held_up(log))):
        found = find()
        if found is not None:
            return found
        with log.open("w") as file:
            building.build(place / building.key(), say=_both(say, file), beside=beside)
    log.unlink(missing_ok=True)
    return place / building.key()


def cache() -> Path:
    """Return the folder for what is built: below XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrace" / "kube"


def main() -> int:
    """Build what is missing, and print the folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig.kube.binaries", description=__doc__)
    parser.add_argument("--beside", type=int, metavar="PID", help="build at low priority, and only as long as this process lives")
    beside = parser.parse_args().beside
    if beside is not None:
        os.nice(19)
    try:
        print(ensure(say=_print, beside=beside))
    except BuildError as error:
        print(f"Kubernetes for the tests: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _print(line: str) -> None:
    print(f"Kubernetes for the tests: {line}", file=sys.stderr, flush=True)


def _both(say: Say, file: IO[str]) -> Say:
    def tell(line: str) -> None:
        say(line)
        print(line, file=file, flush=True)

    return tell


def _held_up(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f"another process builds them. {lines[-1] if lines else 'It has just begun.'}"


def _lacking(folder: Path) -> list[str]:
    return [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]


@contextmanager
def _locked(path: Path, meanwhile: Callable[[], None]) -> Iterator[None]:
    """Hold a lock, which ends with this process; say something now and then while another holds it."""
    with path.open("w") as file:

        def locked() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        while not locked():
            meanwhile()
            try:
                eventually(locked, _TELL_EVERY)
            except AssertionError:
                continue
            break
        yield


if __name__ == "__main__":
    sys.exit(main())
