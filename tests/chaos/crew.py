"""The load under which faults happen: workers that are started again when they end, and a producer that never stops.

Both run on threads of their own. Slots and a known run time decide the throughput, so that it can be compared on a busy
machine too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg

from tests.rig.processes import WorkerProcess
from tests.rig.servers import RigDatabase

SECONDS_A_JOB = 0.2
BACKLOG = 300
LOOK_SECONDS = 0.1


class Feeder:
    """Keeps a backlog of `work`, by the public function, and remembers what was committed."""

    def __init__(self, database: RigDatabase) -> None:
        """Prepare; `start` begins.

        Args:
            database: Where to enqueue.
        """
        self.database = database
        self.backlog = BACKLOG
        self.ids: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Enqueue nothing more."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(20)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self.database.connect(application_name="feeder", connect_timeout=5) as conn:
                    while not self._stop.wait(LOOK_SECONDS):
                        self._fill(conn)
            except psycopg.Error:  # the server is away: that is the fault
                self._stop.wait(LOOK_SECONDS)

    def _fill(self, conn: psycopg.Connection[tuple[object, ...]]) -> None:
        statement = """select e.id from generate_series(1, %(backlog)s - (
                           select count(*) from (select from tailrace.job where token is null and task = 'work'
                                                 and run_at <= now() limit %(backlog)s) w)) g,
                         lateral tailrace.enqueue('chaos', 'work', jsonb_build_object('seconds', %(seconds)s + 0 * g)) e"""
        rows = conn.execute(statement, {"backlog": self.backlog, "seconds": SECONDS_A_JOB}).fetchall()
        self.ids.extend(int(str(ident)) for (ident,) in rows)


class Crew:
    """Workers that are replaced when they end, as a platform does it."""

    def __init__(self, start: Callable[[], WorkerProcess], size: int) -> None:
        """Prepare; `start` begins.

        Args:
            start: Starts one worker.
            size: How many there are.
        """
        self._start, self._size = start, size
        self.workers: list[WorkerProcess] = []
        self.deaths: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crew", daemon=True)

    def start(self) -> None:
        """Start them and wait until they claim."""
        self.workers = [self._start() for _ in range(self._size)]
        for worker in self.workers:
            worker.wait_ready(60)
        self._thread.start()

    def stop(self) -> None:
        """Replace nobody any more."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(20)

    def of(self, pid: int) -> WorkerProcess:
        """Return the worker with a process id."""
        return next(worker for worker in self.workers if worker.pid == pid)

    @property
    def living(self) -> list[WorkerProcess]:
        """Those that run."""
        return [worker for worker in self.workers if worker.running]

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            for worker in self.workers:
                if worker.pid not in self.deaths and not worker.running:
                    self.deaths[worker.pid] = time.time()
                    self.workers = [*self.workers, self._start()]
