"""Limits under faults: a worker that cannot be certain of its lease, a server that restarts, processes that die."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from psycopg.types.json import Jsonb

from tests.rig.processes import StartWorker
from tests.rig.proxy import TcpProxy
from tests.rig.servers import Server
from tests.rig.waiting import eventually
from tests.worker.scene import LEASE, PATIENCE, SLACK, Line, Scene


def limit(scene: Scene, **settings: Any) -> None:
    """Give the queue settings."""
    scene.database.query("select tailrace.apply_queue('faults', %s, 'cli')", [Jsonb(settings)])


def started(scene: Scene, n: int) -> bool:
    """Whether more than so many runs have begun."""
    return len(scene.lines("start")) > n


def most_at_once(lines: list[Line], dead: dict[int, float] | None = None) -> int:
    """The most runs at a time; those of killed processes ended when they were killed."""
    moments = [(line.at, 1 if line.what == "start" else -1) for line in lines if line.what in ("start", "end", "cancelled")]
    over = {(line.job, line.attempt) for line in lines if line.what in ("end", "cancelled")}
    for line in lines:
        if line.what == "start" and (line.job, line.attempt) not in over and dead and line.pid in dead:
            moments.append((dead[line.pid], -1))
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


def test_a_limited_job_is_cancelled_when_its_lease_is_not_certain(scene: Scene, tcp_proxy: TcpProxy) -> None:
    """FQ-03, I7: before another worker may use its slot, it has been told to stop; a job without a limit goes on."""
    limit(scene, tasks=[{"name": "gated", "concurrencyLimit": 1}])
    job, free = scene.enqueue("gated", gate="never"), scene.enqueue("deaf", gate="go")
    cut = scene.worker("--slots", "3", dsn=tcp_proxy.dsn)
    scene.wait_line("start", job)
    scene.wait_line("start", free)
    tcp_proxy.pause()
    told = scene.wait_line("cancelled", job, timeout=LEASE + SLACK)
    assert told.note == "lease_lost"
    assert not scene.lines("cancelled", free)
    for _ in range(2):  # both jobs were lost, and a worker takes one such job at a time
        scene.worker("--slots", "3")
    again = scene.wait_line("start", job, n=2)
    assert told.at < again.at
    scene.open("go")
    tcp_proxy.resume()
    assert cut.running
    scene.open("never")
    scene.wait_gone()
    assert most_at_once(scene.lines(job=job)) == 1


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_restarts_of_the_server_keep_the_limit(
    private_server: Server, worker_process: StartWorker, tmp_path: Path, how: Literal["fast", "immediate"]
) -> None:
    """CJ-06, I7: slots are what the job rows say, so a crash frees none and leaves none taken."""
    scene = Scene(private_server.migrated(), worker_process, tmp_path / "scene")
    limit(scene, limits={"concurrency": 3})
    held = scene.enqueue("gated", gate="go")
    for _ in range(2):
        scene.worker("--slots", "4", lease=30)
    scene.wait_line("start", held)
    jobs = [held]
    for _ in range(2):
        jobs += scene.fill("quick", 150)
        enough = partial(started, scene, len(jobs) - 120)
        eventually(enough, PATIENCE, what="some work")
        private_server.postgres.stop(how)
        private_server.postgres.start()
    eventually(lambda: scene.live() == 1, PATIENCE, what="all but the one that runs")
    assert scene.database.value("select free from tailrace.limits where kind = 'concurrency'") == 2
    scene.open("go")
    scene.wait_gone()
    scene.ran_once(jobs)


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_four_processes_and_kills_share_one_limit(scene: Scene) -> None:
    """I7, BF-08, GW-02: processes die with slots in their hands; the limit holds, and every slot comes back."""
    limit(scene, limits={"concurrency": 4})
    gates = [f"g{n}" for n in range(6)]
    scene.fill("quick", 400)
    for gate in gates:
        scene.enqueue("gated", gate=gate, options={"priority": 5})
    workers = [scene.worker("--slots", "4", ready=False) for _ in range(4)]
    for worker in workers:
        worker.wait_ready(60)
    dead: dict[int, float] = {}
    for victim in workers[:2]:
        eventually(lambda: any(line.pid not in dead for line in scene.lines("start")), PATIENCE, what="runs")
        victim.kill9()
        dead[victim.pid] = scene.open(f"killed-{victim.pid}")
    for gate in gates:
        scene.open(gate)
    scene.wait_gone(60)
    gated = {found.job for found in scene.lines("end")}  # the quick ones write no end
    assert most_at_once([line for line in scene.lines() if line.job in gated], dead) <= 4
    assert scene.database.value("select free from tailrace.limits") == 4


def test_a_drain_frees_slots_and_costs_nothing(scene: Scene) -> None:
    """FQ-05: what was claimed and not started goes back unharmed, and its slot with it."""
    limit(scene, limits={"concurrency": 2})
    first = scene.enqueue("gated", gate="go")
    leaving = scene.worker("--slots", "4")
    scene.wait_line("start", first)
    more = scene.fill("quick", 40)
    leaving.terminate()
    scene.open("go")
    assert leaving.wait(20) == 0
    scene.worker("--slots", "4")
    scene.wait_gone()
    scene.ran_once([first, *more])
