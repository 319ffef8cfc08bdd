"""What is green was tried on PostgreSQL: no test has another database to fall back on, and none is skipped for want of one."""

from __future__ import annotations

import subprocess
import sys

from tests.rig.processes import ROOT, clean_environment

ONE = "tests/engine/test_schema_shape.py::test_times_are_timestamptz"


def test_without_a_server_tests_fail_and_are_not_skipped() -> None:
    """FQ-06, FQ-28."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pg", "/no/such/folder", ONE]
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    assert "1 error" in done.stdout
