"""``python -m bench NAME``: start a server, run one benchmark, print its tables and its JSON line."""

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.children import ChildError
from bench.report import Outcome, load_average, machine, show
from bench.runs import Lab, RunError
from bench.scenarios import (
    Options,
    dead_letters,
    drain,
    enqueue,
    fleet,
    future,
    groups,
    head,
    held,
    late,
    limits,
    maintenance_scale,
    pickup,
)
from bench.server import Server
from tailrace_cli.embedded import EmbeddedPostgresError

BENCHES: dict[str, Callable[[Lab, Options], Outcome]] = {
    "drain": drain.run,
    "pickup": pickup.run,
    "late": late.run,
    "enqueue": enqueue.run,
    "held": held.run,
    "future": future.run,
    "head": head.run,
    "groups": groups.run,
    "limits": limits.run,
    "dead_letters": dead_letters.run,
    "maintenance_scale": maintenance_scale.run,
    "fleet": fleet.run,
}
ROUNDS = 5


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare Tailrace with the reference worker.")
    parser.add_argument("name", choices=sorted(BENCHES), help="what to measure")
    parser.add_argument("--rounds", type=int, help=f"interleaved rounds (default {ROUNDS}; 1 with --quick)")
    parser.add_argument("--jobs", type=int, help="jobs of a measured stretch (default: the benchmark's own)")
    parser.add_argument("--quick", action="store_true", help="a small run that shows that it works; its figures mean nothing")
    parser.add_argument("--data", type=Path, help="folder for the server's data, on the disk to measure (default: temporary)")
    parser.add_argument("--record", type=Path, help="file to which the JSON line is appended, for bench.write_up")
    options = parser.parse_args(arguments)
    for name in ("rounds", "jobs"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name} must be at least 1, not {value}")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run one benchmark; returns the exit status."""
    parsed = parse(arguments)
    rounds = parsed.rounds or (1 if parsed.quick else ROUNDS)
    options = Options(rounds=rounds, jobs=parsed.jobs, quick=parsed.quick)
    before = load_average()
    gc.freeze()  # a full collection of what all benchmarks import takes up to 90 ms, and pages are timed in this process
    try:
        with Server(parent=parsed.data) as server, Lab(server) as lab:
            outcome = BENCHES[parsed.name](lab, options)
            line = show(parsed.name, rounds, outcome, machine(server, load_before=before))
    except (EmbeddedPostgresError, ChildError, RunError) as error:
        print(f"bench {parsed.name}: {error}", file=sys.stderr)
        return 1
    if parsed.record:
        with parsed.record.open("a", encoding="utf-8") as record:
            record.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
