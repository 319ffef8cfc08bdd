"""The measured stretches: fill, drain, pick up, enqueue.

Scenarios put them together; what a process says comes from `children`, CPU and memory from `procfs`.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from bench import procfs
from bench.children import Child
from bench.report import quantile
from bench.server import Server
from bench.sides import CONTROL, Side, make_template

POLL_SECONDS = 0.005
FILL_CHUNK = 5000
IDLE_SECONDS = 2.0
"""How long a worker settles before latencies are taken."""


class RunError(RuntimeError):
    """A run did not come to its end: its figures would mean nothing."""


@dataclass(frozen=True, kw_only=True)
class Drained:
    """One drain; the clock runs from GO, connecting included, to the commit of the last finish."""

    jobs: int
    rate: float
    """Jobs a second."""
    start_ms: float
    """From GO to the first handler's report (reports come each 10 ms)."""
    pg_us: float
    """CPU time of PostgreSQL a job."""
    worker_us: float
    """CPU time of the workers a job."""
    rss_mb: float
    """Peak memory of the largest worker."""
    ran_twice: int
    """Handler calls above the number of jobs."""
    other_cores: float
    """CPU that neither the run nor the harness used: other work on the machine."""


@dataclass(frozen=True, kw_only=True)
class Pickups:
    """Latencies from the return of a producer's commit to the first line of the handler."""

    ms: tuple[float, ...]

    @property
    def p50(self) -> float:
        """Median, ms."""
        return quantile(self.ms, 0.5)

    @property
    def p99(self) -> float:
        """99th percentile, ms."""
        return quantile(self.ms, 0.99)


class Lab:
    """A server with a template for each client, and the processes that run against it."""

    def __init__(self, server: Server, *, cap_seconds: float = 300.0) -> None:
        """Take a running server.

        Args:
            server: where everything happens.
            cap_seconds: a drain that takes longer is an error.
        """
        self.server = server
        self._cap = cap_seconds
        self._templates: dict[str, str] = {}
        self._logs = tempfile.TemporaryDirectory(prefix="tailrace-bench-logs-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._logs.cleanup()

    def fresh(self, side: Side, *, case: str = "plain") -> str:
        """Create an empty database of a side, dropping the last one of this case; returns its name."""
        if side.client not in self._templates:
            self._templates[side.client] = make_template(self.server, side.client)
        name = self._name(side, case)
        self.server.recreate(name, template=self._templates[side.client])
        return name

    def discard(self, side: Side, *, case: str = "plain") -> None:
        """Drop a side's database, so that no vacuum of it comes into the next stretch."""
        self.server.drop(self._name(side, case))

    @staticmethod
    def _name(side: Side, case: str) -> str:
        return f"bench_{side.client}_{case}"

    def settle(self, database: str, *, vacuum: bool = True) -> None:
        """Bring statistics up to date (and vacuum), and write dirty pages, so that no run pays for the one before."""
        with self.server.connect(database) as connection:
            connection.execute("vacuum (analyze)" if vacuum else "analyze")
            connection.execute("checkpoint")

    def _environment(self, side: Side, database: str, *, latency: bool = False) -> dict[str, str]:
        dsn = self.server.dsn(database)
        return {**side.environment, "BENCH_DSN": dsn, "TAILRACE_DATABASE_URL": dsn, "BENCH_LATENCY": "1" if latency else "0"}

    def worker(self, side: Side, database: str, *, latency: bool = False) -> Child:
        """Start a worker process; it waits for GO once its imports are done."""
        log = Path(self._logs.name) / f"worker-{side.client}.log"
        return Child(side.worker, environment=self._environment(side, database, latency=latency), log=log)

    def producer(self, side: Side, database: str, mode: str, **arguments: object) -> Child:
        """Start a producer process; it waits for GO once connected and warm."""
        log = Path(self._logs.name) / f"producer-{side.client}.log"
        command = (sys.executable, "-m", "bench.producer", side.client, mode, json.dumps(arguments))
        return Child(command, environment=self._environment(side, database), log=log)

    def produce(self, side: Side, database: str, mode: str, **arguments: object) -> dict[str, Any]:
        """Run a producer to its end; returns what it says, with `pg_us` added."""
        with self.producer(side, database, mode, **arguments) as child:
            child.wait_ready()
            before = procfs.server_cpu_seconds(self.server.pid)
            child.go()
            result = child.finish()
            used = procfs.server_cpu_seconds(self.server.pid) - before
        return {**result, "pg_us": used / result["jobs"] * 1e6}

    def fill(self, side: Side, database: str, jobs: int) -> int:
        """Enqueue `jobs` by the side's bulk call; returns the id below the first of them."""
        with self.server.connect(database) as connection:
            floor = self._number(connection, f"{side.client}_last_id")
        self.produce(side, database, "bulk", jobs=jobs, chunk=FILL_CHUNK)
        return floor

    @staticmethod
    def _number(connection: psycopg.Connection[tuple[Any, ...]], query: str, *parameters: object) -> int:
        row = connection.execute(CONTROL[query], parameters, prepare=True).fetchone()
        if row is None:
            raise RunError(f"statement {query} returned no row")
        return int(row[0])

    def drain(self, side: Side, database: str, *, jobs: int, floor: int, workers: int = 1, linger: float = 0.0) -> Drained:
        """Drain `jobs` that stand above id `floor`, with fresh worker processes.

        Args:
            side: who works.
            database: where the jobs are.
            jobs: how many there are.
            floor: largest id that does not belong to them.
            workers: processes.
            linger: seconds that the workers stay idle afterwards, outside the clock.
        """
        with ExitStack() as stack:
            connection = stack.enter_context(self.server.connect(database))
            children = [stack.enter_context(self.worker(side, database)) for _ in range(workers)]
            for child in children:
                child.wait_ready()
            self._number(connection, f"{side.client}_left", floor)  # planned and warm before the clock runs
            meter = _Meter(self.server.pid, [child.pid for child in children])
            began = time.monotonic()
            for child in children:
                child.go()
            ended = self._await_end(connection, side, children, jobs=jobs, floor=floor, began=began)
            used = meter.read()
            drained = self._drained(children, jobs=jobs, began=began, ended=ended, used=used)
            time.sleep(linger)
        return drained

    def _await_end(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        side: Side,
        children: list[Child],
        *,
        jobs: int,
        floor: int,
        began: float,
    ) -> float:
        """Poll until every handler ran and no row is left; returns when that was true."""
        while True:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()  # the moment of the snapshot: the check's own duration is not the worker's
            ran = sum(child.count for child in children)
            if ran >= jobs and not self._number(connection, f"{side.client}_left", floor):
                return now
            if now - began > self._cap:
                raise RunError(f"{side.label}: {ran} of {jobs} jobs ran within {self._cap:.0f} s")
            for child in children:
                child.check()

    @staticmethod
    def _drained(children: list[Child], *, jobs: int, began: float, ended: float, used: "_Used") -> Drained:
        seconds = ended - began
        first = min((child.first_ns for child in children if child.first_ns), default=int(ended * 1e9))
        return Drained(
            jobs=jobs,
            rate=jobs / seconds,
            start_ms=(first / 1e9 - began) * 1e3,
            pg_us=used.server / jobs * 1e6,
            worker_us=used.processes / jobs * 1e6,
            rss_mb=max(procfs.peak_rss_mb(child.pid) for child in children),
            ran_twice=sum(child.count for child in children) - jobs,
            other_cores=used.other / seconds,
        )

    @contextmanager
    def idle_worker(self, side: Side, database: str) -> Iterator[Child]:
        """A worker that stamps each handler start and has had time to go idle."""
        with self.worker(side, database, latency=True) as child:
            child.wait_ready()
            child.go()
            time.sleep(IDLE_SECONDS)
            child.check()
            yield child

    def latencies(
        self,
        side: Side,
        database: str,
        worker: Child,
        mode: str,
        *,
        beside: threading.Thread | None = None,
        **arguments: object,
    ) -> Pickups:
        """Run a producer of mode ``paced`` or ``late`` against an idle worker.

        Args:
            side: who enqueues and works.
            database: where.
            worker: the idle worker.
            mode: of the producer.
            beside: other work, started when the producer is ready: its own start would disturb that.
            arguments: of the mode.

        Raises:
            RunError: jobs did not start within ten seconds of their commit.
        """
        worker.started.clear()
        with self.producer(side, database, mode, **arguments) as child:
            child.wait_ready()
            if beside:
                beside.start()
            child.go()
            child.finish()
            sent = child.sent
        deadline = time.monotonic() + 10.0
        while missing := sent.keys() - worker.started.keys():
            worker.check()
            if time.monotonic() > deadline:
                raise RunError(f"{side.label}: {len(missing)} of {len(sent)} jobs did not start within 10 s")
            time.sleep(0.01)
        return Pickups(ms=tuple((worker.started[seq] - after) / 1e6 for seq, (_, after) in sent.items()))


@dataclass(frozen=True, kw_only=True)
class _Used:
    server: float
    processes: float
    other: float


class _Meter:
    """CPU time used between its making and `read`."""

    def __init__(self, postmaster: int, pids: list[int]) -> None:
        self._postmaster, self._pids = postmaster, pids
        self._before = self._now()

    def _now(self) -> tuple[float, float, float]:
        processes = sum(procfs.process_cpu_seconds(pid) for pid in self._pids)
        return procfs.server_cpu_seconds(self._postmaster), processes, procfs.machine_cpu_seconds() - time.process_time()

    def read(self) -> _Used:
        server, processes, machine = (now - then for now, then in zip(self._now(), self._before, strict=True))
        return _Used(server=server, processes=processes, other=max(0.0, machine - server - processes))
