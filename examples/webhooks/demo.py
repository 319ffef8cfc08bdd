"""One run with everything: enqueue in transactions, two workers, a kill, dead letters, a requeue, and a ledger.

Run it with `python -m examples.webhooks.demo`. It needs no server: it starts a private PostgreSQL on loopback, and ends
all that it started, also after Ctrl-C. Exit status: 0 the ledger adds up, 1 it does not or a step failed, 130 interrupted.
"""

from __future__ import annotations

import argparse
import fcntl
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import psycopg
from rich.console import Console

from examples.webhooks.board import Board
from examples.webhooks.events import COUNT
from examples.webhooks.processes import DemoError
from examples.webhooks.story import Demo, Options
from tailrace_cli.embedded import EmbeddedPostgresError, default_state_dir

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m examples.webhooks.demo",
        description="Deliver webhooks with two workers, kill one, requeue the dead letters, and check both records.",
        epilog="Example: python -m examples.webhooks.demo --events 500 --keep",
    )
    home = default_state_dir("demo")
    add = parser.add_argument
    add("--events", type=int, default=COUNT, help=f"how many, 200 to {COUNT} (default: {COUNT})")
    add("--slots", type=int, default=20, help="jobs that each worker runs at a time (default: 20)")
    add("--lease", type=float, default=4.0, help="seconds until a silent worker counts as dead, 3 to 60 (default: 4)")
    add("--latency", type=float, default=0.04, help="seconds that the receiver takes for a delivery (default: 0.04)")
    add("--state-dir", type=Path, default=home, help=f"where server and logs are kept (default: {home})")
    add("--keep", action="store_true", help="leave the server running and print its address, with the password")
    given = parser.parse_args(arguments)
    if not 200 <= given.events <= COUNT:
        parser.error(f"--events: must be 200 to {COUNT}")
    if not 3 <= given.lease <= 60:
        parser.error("--lease: must be 3 to 60 seconds")
    if not 1 <= given.slots <= 1000 or not 0 <= given.latency <= 5:
        parser.error("--slots must be 1 to 1000, --latency 0 to 5 seconds")
    return Options(given.events, given.slots, given.lease, given.latency, given.state_dir.absolute(), given.keep)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit status.

    Args:
        arguments: Those of the command line; None takes the program's own.
    """
    options = _options(arguments)
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    console = Console()
    with Board(console) as board, ExitStack() as stack:
        try:
            _own(options.state_dir, stack)
            ledger = Demo(options, board, stack).run()
        except KeyboardInterrupt:
            board.say("interrupted; ends what it started")
            return 130
        except (DemoError, EmbeddedPostgresError, psycopg.Error) as error:
            board.say(f"failed: {error}")
            return 1
        finally:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # the end of the processes is not to be cut off
        for problem in ledger.problems:
            board.show(f"The ledger does not add up. {problem}")
        board.show("The ledger adds up: both records agree." if ledger.adds_up else f"Logs: {options.state_dir / 'run'}")
        return 0 if ledger.adds_up else 1


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _own(folder: Path, stack: ExitStack) -> None:
    """Make the state folder ours for the time of the run, and remove the logs of the last one.

    Raises:
        DemoError: Another run uses it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = stack.enter_context((folder / "lock").open("w"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DemoError(f"another demo runs in {folder}; wait for its end or give another --state-dir") from None
    shutil.rmtree(folder / "run", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
