"""The benchmark runs for real, small, and its last line keeps its shape; how fast it was is not tested here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run_bench(*arguments: str) -> dict[str, Any]:
    """Run ``python -m bench`` and return the object on its last line."""
    command = [sys.executable, "-m", "bench", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_quick_drain_runs_both_sides_and_prints_its_ratios_last() -> None:
    result = run_bench("drain", "--quick", "--jobs", "1000")
    assert result["bench"] == "drain"
    assert result["rounds"] == 1
    assert result["machine"]["cores"] >= 1
    assert result["machine"]["postgresql"]
    assert set(result["ratios"]) == {"drain_1", "drain_2", "drain_default_1"}
    assert {"worker_rss_mb", "pg_us", "worker_us"} <= set(result["figures"])
    assert all(value > 0 for value in result["ratios"].values())
    assert result["figures"]["worker_rss_mb"] > 10


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_quick_dead_letters_look_and_requeue() -> None:
    result = run_bench("dead_letters", "--quick")
    assert set(result["figures"]) == {"dead_page_worst_ms", "dead_stats_ms", "dead_requeue_per_s", "ceil_1_per_s"}
    assert set(result["ratios"]) == {"dead_requeue_to_ceil", "dead_requeue_pickup_p99"}
    assert all(value > 0 for value in (*result["figures"].values(), *result["ratios"].values()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["drain", "--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["drain", "--jobs", "-5"], "--jobs must be at least 1, not -5"),
    ],
)
def test_wrong_usage_is_refused_before_a_server_starts(arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "bench", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert said in done.stderr
