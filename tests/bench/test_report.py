"""The arithmetic and the printed form of results."""

import json
import math

import pytest

from bench import write_up
from bench.report import Outcome, Table, median, quantile, ratio, show


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    # the machine was twice as fast in the second round, for both sides alike
    assert ratio([80.0, 180.0, 70.0], [100.0, 200.0, 100.0]) == pytest.approx(0.8)


def test_quantiles_take_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert quantile(values, 0.5) == 51.0
    assert quantile(values, 0.99) == 100.0
    assert quantile([3.0], 0.99) == 3.0


def test_nothing_measured_is_not_a_number() -> None:
    assert math.isnan(quantile([], 0.5))
    assert math.isnan(median([]))


def test_tables_align_their_columns() -> None:
    table = Table(title="Drain", headings=("who", "jobs/s"), rows=[("ceil", 89000.4), ("ours, defaults", 7.5)])
    lines = table.text().splitlines()
    assert lines == ["Drain", "who             jobs/s", "ceil            89,000", "ours, defaults   7.500"]


def test_the_last_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(ratios={"drain_1": 0.81239}, figures={"pg_us": 5.5})
    show("drain", 3, outcome, {"cores": 2})
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last == {
        "bench": "drain",
        "rounds": 3,
        "machine": {"cores": 2},
        "figures": {"pg_us": 5.5},
        "ratios": {"drain_1": 0.8124},
    }


def test_the_page_gets_the_newest_run_of_each_name_and_keeps_the_rest() -> None:
    where = {
        "cores": 2,
        "memory_mb": 4096,
        "system": "Linux",
        "python": "3.11",
        "postgresql": "18.6",
        "at": "2026-01-02T03:04:05Z",
    }
    lines = [
        json.dumps({"bench": "drain", "rounds": 3, "machine": where, "figures": {"pg_us": 5.5}, "ratios": {"drain_1": value}})
        for value in (0.5, 0.8)
    ]
    text = write_up.table(write_up.newest(lines))
    assert "| drain, 1 process, to ceil | 0.80 | ≥ 0.75 | `make bench NAME=drain` | 3 |" in text
    assert "0.50" not in text
    page = write_up.put_into(f"before\n{write_up.BEGIN}\nold\n{write_up.END}\nafter\n", text)
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "old" not in page


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        write_up.put_into("nothing here", "table")
