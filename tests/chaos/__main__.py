"""Runs the fault suite and writes what it measured into docs/explanation/reliability.md: `make chaos`.

At full length unless `--short` is given; other arguments go to pytest. The single faults of tests/worker are run along.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos.length import VARIABLE
from tests.chaos.trial import RECORDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "reliability.md"
BEGIN, END = "<!-- measured by `make chaos`: begin -->\n", "<!-- measured by `make chaos`: end -->\n"
SINGLE = ("test_faults_handlers.py", "test_faults_links.py", "test_faults_locks.py", "test_faults_server.py", "test_shutdown.py")
HEAD = "| fault | lasted | jobs | lost | overlapping | after a lost lease | before | back after | seen |"


def main(arguments: Sequence[str]) -> int:
    """Run, write the table when all went well, and return pytest's exit status."""
    short = "--short" in arguments
    rest = [one for one in arguments if one != "--short"]
    with tempfile.TemporaryDirectory(prefix="tailrace-chaos-") as folder:
        records = Path(folder) / "records"
        records.touch()
        env = {**os.environ, RECORDS: str(records), VARIABLE: "short" if short else "full"}
        places = ["tests/chaos", *(f"tests/worker/{name}" for name in SINGLE)]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-rs",
            "-v",
            "-p",
            "no:randomly",
            "-o",
            "faulthandler_timeout=0",
            *(rest or places),
        ]
        status = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
        found = [json.loads(line) for line in records.read_text().splitlines()]
    print(table(found))
    if status == 0 and not rest:
        write(found, short=short)
    return status


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return the table of the verdicts."""
    lines = [HEAD, "|---|---|---|---|---|---|---|---|---|"]
    for one in found:
        cells = (
            one["case"],
            f"{one['fault_seconds']:.0f} s" if one["fault_seconds"] >= 1 else "at once",
            f"{one['jobs']:,}",
            one["lost"],
            one["overlapping"],
            one["after_loss"],
            f"{one['before']:.0f}/s",
            f"{one['back_seconds']:.1f} s",
            one["note"],
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def write(found: Sequence[dict[str, Any]], *, short: bool) -> None:
    """Put the table between the markers of the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    command = "python -m tests.chaos --short" if short else "make chaos"
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    said = f"Measured with `{command}` on {datetime.now(UTC):%Y-%m-%d}: {machine}.\n\n"
    PAGE.write_text(before + BEGIN + "\n" + said + table(found) + "\n\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
