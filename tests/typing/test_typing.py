"""The type checkers see what people type: interfaces 1.8.

`good.py` passes mypy --strict and basedpyright, and each line marked in `bad.py` fails under both, and no other line does.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARKED = {n for n, line in enumerate((HERE / "bad.py").read_text().splitlines(), 1) if line.endswith("# bad")}


def _mypy(*files: Path) -> dict[str, set[int]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--exclude", "^$", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, set[int]] = {}
    for line in done.stdout.splitlines():
        match = re.match(r"(.*?):(\d+): error: ", line)
        if match:
            found.setdefault(Path(match[1]).name, set()).add(int(match[2]))
    return found


def _basedpyright(tmp_path: Path, *files: Path) -> dict[str, set[int]]:
    settings = {
        "include": [str(file) for file in files],
        "extraPaths": [str(ROOT / part) for part in ("core", "worker", "controller", "cli", "")],
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "typeCheckingMode": "strict",
        "reportMissingTypeArgument": False,
        "reportUnnecessaryTypeIgnoreComment": False,
        "reportUnusedFunction": False,
    }
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(project)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    found: dict[str, set[int]] = {}
    for entry in json.loads(done.stdout)["generalDiagnostics"]:
        if entry["severity"] == "error":
            found.setdefault(Path(entry["file"]).name, set()).add(entry["range"]["start"]["line"] + 1)
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_a_checker_sees_right_and_wrong_arguments(checker: str, tmp_path: Path) -> None:
    files = (HERE / "good.py", HERE / "bad.py")
    found = _mypy(*files) if checker == "mypy" else _basedpyright(tmp_path, *files)
    assert found.get("good.py", set()) == set()
    assert found.get("bad.py", set()) == MARKED
