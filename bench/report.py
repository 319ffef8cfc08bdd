"""What a benchmark prints: a table for people, and one JSON object as its last line for programs."""

import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.server import Server


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which `share` of the values lie (nearest rank); NaN of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def median(values: Iterable[float]) -> float:
    """Return the median; NaN of nothing."""
    listed = list(values)
    return statistics.median(listed) if listed else float("nan")


def ratio(ours: Sequence[float], reference: Sequence[float]) -> float:
    """Return the median of the ratios within each round."""
    return median(own / other for own, other in zip(ours, reference, strict=True))


@dataclass(kw_only=True)
class Table:
    """Rows under headings; cells are formatted by their type."""

    title: str
    headings: Sequence[str]
    rows: list[Sequence[object]] = field(default_factory=list)

    def text(self) -> str:
        """Return the table as aligned plain text."""
        cells = [list(self.headings), *([_cell(value) for value in row] for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.headings))]
        lines = [self.title]
        for row in cells:
            first, *rest = zip(row, widths, strict=True)
            lines.append("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]).rstrip())
        return "\n".join(lines)


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


@dataclass(kw_only=True)
class Outcome:
    """Results of one benchmark."""

    ratios: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)


def load_average() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]


def machine(server: Server, *, load_before: float) -> dict[str, Any]:
    """Describe where the run took place, and how busy that was before it."""
    return {
        "cores": os.cpu_count(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "postgresql": server.version,
        "load_before": round(load_before, 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def show(bench: str, rounds: int, outcome: Outcome, where: dict[str, Any]) -> str:
    """Print the tables, the ratios and, last, the JSON object; returns that last line."""
    for table in outcome.tables:
        print(table.text(), end="\n\n")
    summary = Table(title="Ratios and figures (medians of the rounds)", headings=["name", "value"])
    summary.rows += [*outcome.ratios.items(), *outcome.figures.items()]
    print(summary.text(), end="\n\n")
    result = {
        "bench": bench,
        "rounds": rounds,
        "machine": where,
        "figures": {name: round(value, 4) for name, value in outcome.figures.items()},
        "ratios": {name: round(value, 4) for name, value in outcome.ratios.items()},
    }
    line = json.dumps(result)
    print(line, flush=True)
    return line
