"""The story of the demo, step by step: enqueue, two workers, a kill, dead letters, a requeue, and the balance.

`demo` is its command line. `processes` starts what runs beside it, `records` and `deliveries` are read for the `ledger`.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg

from examples.webhooks import producer
from examples.webhooks.board import Board, ledger_rows
from examples.webhooks.deliveries import count_accepted, read_deliveries
from examples.webhooks.events import read_events
from examples.webhooks.ledger import Ledger, Observed, reconcile
from examples.webhooks.processes import Child, DemoError, run_cli, start_receiver, start_worker, wait_for
from examples.webhooks.records import QUEUE, Sight, Witness
from tailrace_cli.embedded import EmbeddedPostgres

_DATABASE = "webhooks_demo"
_ABANDONED = 20
_KILL_AT = 0.4  # of the deliveries
_PHASE_SECONDS = 120.0
_SHOWN_LINES = 4


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for.

    Attributes:
        events: How many events, 200 to 2,000.
        slots: Jobs that each worker runs at a time.
        lease: Seconds until a silent worker counts as dead.
        latency: Seconds that the receiver takes for a delivery.
        state_dir: Where server and logs are kept.
        keep: Whether the server goes on afterwards.
    """

    events: int
    slots: int
    lease: float
    latency: float
    state_dir: Path
    keep: bool


class Demo:
    """One run; `run` tells the story."""

    def __init__(self, options: Options, board: Board, stack: ExitStack) -> None:
        """Prepare a run.

        Args:
            options: What the command line asks for.
            board: Where to tell.
            stack: Gets the end of everything that is started.
        """
        self._options = options
        self._board = board
        self._stack = stack
        self._folder = options.state_dir
        self._environment: dict[str, str] = {}

    def run(self) -> Ledger:
        """Set up, run, and draw the balance.

        Raises:
            DemoError: A step failed.
        """
        self._set_up()
        begin = self._board.seconds
        self._enqueue()
        workers = self._start_workers()
        killed = self._kill_one(workers)
        survivors = [worker for worker in workers if worker is not killed]
        self._wait_until_settled(survivors)
        dead = self._list_dead_letters()
        requeued = self._heal_and_requeue(dead)
        self._wait_until_settled(survivors)
        seconds = self._board.seconds - begin
        for worker in survivors:
            status = worker.end()
            if status != 0:
                raise DemoError(f"{worker.name} ended with status {status} after SIGTERM. Its log: {worker.log_file}")
        observed = Observed(self._taken, self._witness.held, self._witness.taken_over, dead, requeued)
        ledger = reconcile(self._witness.final(), read_deliveries(self._record), observed)
        self._board.print_ledger(ledger_rows(ledger, abandoned=self._abandoned, seconds=seconds))
        return ledger

    # ---- the steps ---------------------------------------------------------------------------------------------------
    def _set_up(self) -> None:
        """Start the server and the receiver, and create the tables."""
        board, options = self._board, self._options
        postgres = EmbeddedPostgres(self._folder)
        board.say(f"starts PostgreSQL {postgres.version[0]}.{postgres.version[1]} in {self._folder}")
        self._stack.callback(self._end_server, postgres)
        postgres.start()
        with psycopg.connect(postgres.dsn, autocommit=True) as conn:
            conn.execute(f"drop database if exists {_DATABASE} with (force)")
            conn.execute(f"create database {_DATABASE}")
        self._dsn = postgres.dsn_of(_DATABASE)
        self._environment = {
            "TAILRACE_DATABASE_URL": self._dsn,
            "TAILRACE_LEASE_SECONDS": f"{options.lease:g}",
            "TAILRACE_REAPER_SECONDS": "1",
            "TAILRACE_METRICS_HOST": "127.0.0.1",
            "TAILRACE_METRICS_PORT": "0",
        }
        board.say("creates the tables: tailrace migrate")
        run_cli("migrate", environment=self._environment)
        self._receiver, self._record, self._address = start_receiver(
            self._run_folder(), latency=options.latency, stack=self._stack
        )
        board.say(f"the receiver listens on {self._address}: refuses 1 in 10 for a while, 1 in 100 for good")

    def _enqueue(self) -> None:
        """Take the events, and roll some back."""
        events = read_events(self._options.events)
        self._board.say(f"enqueues {len(events):,} deliveries, each in a transaction with a row of the shop")
        with psycopg.connect(self._dsn, autocommit=True, application_name="webhooks producer") as conn:
            producer.create_schema(conn)
            self._abandoned = producer.abandon(conn, events[:_ABANDONED], receiver=self._address)
            self._taken = producer.take_all(conn, events, receiver=self._address, after_each=self._count)

    def _count(self, taken: int) -> None:
        if taken % 50 == 0:
            self._board.move("enqueued", taken, self._options.events)

    def _start_workers(self) -> list[Child]:
        """Start two worker processes and wait until the database knows both."""
        self._board.say(
            f"starts 2 workers with {self._options.slots} slots each; "
            f"leases last {self._options.lease:g} s here, so that the recovery is quick (the default is 60 s)"
        )
        self._witness = Witness.connect(self._dsn)
        self._stack.callback(self._witness.connection.close)
        slots, environment = self._options.slots, self._environment
        names = ["worker-1", "worker-2"]
        workers = [
            start_worker(name, self._run_folder(), slots=slots, environment=environment, stack=self._stack) for name in names
        ]
        wait_for(lambda: self._witness.workers(names) == 2, seconds=30, what="both workers", watched=[*workers, self._receiver])
        return workers

    def _kill_one(self, workers: list[Child]) -> Child:
        """Kill a worker in the middle of its work: freeze it, see that it holds jobs, and end it."""
        threshold = int(self._options.events * _KILL_AT)
        watched = [*workers, self._receiver]
        wait_for(lambda: self._look()[0] >= threshold, seconds=_PHASE_SECONDS, what="deliveries", watched=watched)
        victim = wait_for(lambda: self._freeze_busy_one(workers), seconds=_PHASE_SECONDS, what="a busy worker", watched=watched)
        self._board.say(f"kills {victim.name} with SIGKILL (process {victim.pid}); it holds {len(self._witness.held)} jobs")
        victim.kill()
        return victim

    def _freeze_busy_one(self, workers: list[Child]) -> Child | None:
        for worker in workers:
            worker.freeze()
            held = self._witness.held_by(worker.name)
            if held:
                self._witness.victim = worker.name
                self._witness.held.update(held)
                return worker
            worker.thaw()
        return None

    def _wait_until_settled(self, survivors: Sequence[Child]) -> None:
        """Wait until no job waits or runs any more."""
        watched = [*survivors, self._receiver]
        wait_for(lambda: self._look()[1].live == 0, seconds=_PHASE_SECONDS, what="the end of all jobs", watched=watched)

    def _list_dead_letters(self) -> list[int]:
        """Show the dead letters as the command line shows them."""
        dead = self._witness.dead_letters()
        self._board.say(f"only dead letters are left: {len(dead)}")
        self._board.show("\n$ tailrace dead-letters list --queue webhooks")
        arguments = ("dead-letters", "list", "--queue", QUEUE)
        self._board.show(run_cli(*arguments, environment=self._environment) + "\n")
        return dead

    def _heal_and_requeue(self, dead: list[int]) -> list[int]:
        """Heal the receiver and put the dead letters back."""
        self._board.say("heals the receiver and requeues the dead letters")
        request = urllib.request.Request(f"{self._address}/admin/heal", data=b"", method="POST")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as response:
            response.read()
        if not dead:
            return []
        self._board.show("\n$ tailrace dead-letters requeue ID… --yes")
        arguments = ("dead-letters", "requeue", *(str(job) for job in dead), "--yes")
        lines = run_cli(*arguments, environment=self._environment).splitlines()
        more = [f"… and {len(lines) - _SHOWN_LINES} more"] if len(lines) > _SHOWN_LINES else []
        self._board.show("\n".join([*lines[:_SHOWN_LINES], *more, ""]))
        return dead

    # ---- inside ------------------------------------------------------------------------------------------------------
    def _look(self) -> tuple[int, Sight]:
        """Look at both records and show the figures; returns how many events were delivered, and the queue."""
        sight = self._witness.look()
        delivered = count_accepted(self._record)
        state = f"{sight.live:,} left, {sight.retrying} to retry, {sight.dead} dead"
        self._board.move("delivered", delivered, self._options.events, state)
        return delivered, sight

    def _run_folder(self) -> Path:
        folder = self._folder / "run"
        folder.mkdir(exist_ok=True)
        return folder

    def _end_server(self, postgres: EmbeddedPostgres) -> None:
        if self._options.keep and postgres.running:
            postgres.leave_running()
            self._board.show(f"The server goes on (process {postgres.pid}): psql '{postgres.dsn_of(_DATABASE)}'")
        else:
            postgres.close()
