"""Serial groups under kill -9, frozen processes and drains: still never two of a group at once, and none is lost."""

from __future__ import annotations

from functools import partial

import pytest

from tests.rig.waiting import eventually
from tests.worker.scene import PATIENCE, Scene
from tests.worker.test_groups import grouped, join, never_two_at_once, order

__all__ = ["grouped"]


def ended_at_least(scene: Scene, n: int) -> bool:
    """Whether so many runs have ended."""
    return len(scene.lines("end")) >= n


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_never_two_at_once_with_eight_processes_and_kills(scene: Scene) -> None:
    """a4, GW-03, BF-06, I8: 40 groups of 25 in eight processes, of which some are killed in the middle."""
    scene.database.query(
        """insert into tailrace.job (queue, task, payload, serial_group, backoff, max_attempts)
           select 'faults', 'step', '{"seconds": 0.004}', 'g' || (n % 40), '{"strategy": "fixed", "base": 0.05, "jitter": 0}', 50
           from generate_series(1, 1000) n"""
    )
    workers = [scene.worker("--slots", "6", ready=False) for _ in range(8)]
    for worker in workers:
        worker.wait_ready(90)
    killed = set()
    for count, worker in ((100, workers[0]), (250, workers[1]), (400, workers[2])):
        eventually(partial(ended_at_least, scene, count), PATIENCE, what="some ends")
        killed.add(worker.pid)
        worker.kill9()
    scene.wait_gone(90)
    lines = scene.lines()
    never_two_at_once(lines, killed=frozenset(killed))
    assert len({line.job for line in lines if line.what == "end"}) == 1000
    assert scene.count("succeeded") == 1000
    assert scene.database.value("select count(*) from tailrace.lease") == 0
    assert scene.database.value("select count(*) from tailrace.job_group") == 0


def test_a_killed_members_group_goes_on_elsewhere(scene: Scene) -> None:
    first = join(scene, "held", "g", gate="go")
    second = join(scene, "step", "g")
    victim = scene.worker("--slots", "2")
    scene.wait_line("start", first)
    scene.worker("--slots", "2")
    victim.kill9()
    scene.wait_line("start", second)
    scene.open("go")
    scene.wait_gone()
    assert order(scene, "g") in ([first, second, first], [first, first, second])


def test_strict_order_holds_when_the_worker_dies(scene: Scene) -> None:
    first = join(scene, "strict_held", "g", gate="go")
    second = join(scene, "strict", "g")
    victim = scene.worker("--slots", "2")
    scene.wait_line("start", first)
    scene.open("go")
    victim.stop()
    victim.kill9()
    scene.worker("--slots", "2")
    scene.wait_gone()
    ran = order(scene, "g")
    assert ran[-1] == second
    assert set(ran[:-1]) == {first}


def test_a_frozen_worker_starts_nothing_more_of_a_group_it_has_lost(scene: Scene) -> None:
    first = join(scene, "held", "g", gate="go")
    rest = [join(scene, "step", "g") for _ in range(5)]
    frozen = scene.worker("--slots", "2")
    scene.wait_line("start", first)
    frozen.stop()
    scene.worker("--slots", "2")
    for job in rest:
        scene.wait_line("end", job)
    frozen.cont()
    scene.open("go")
    scene.wait_gone()
    assert all(line.pid != frozen.pid for job in rest for line in scene.lines("start", job))
    assert scene.count("succeeded") == 6


def test_a_drain_hands_the_rest_of_a_chain_back(scene: Scene) -> None:
    """Members that were taken ahead cost nothing and keep their order."""
    jobs = [join(scene, "step", "g", seconds=0.01) for _ in range(150)]
    first = scene.worker("--slots", "2")
    eventually(lambda: len(scene.lines("end")) >= 40, PATIENCE, what="some ends")
    first.terminate()
    assert first.wait(20) == 0
    assert scene.database.value("select count(*) from tailrace.job where token is not null or attempts > 0") == 0
    assert scene.database.value("select count(*) from tailrace.job_group") == 0
    scene.worker("--slots", "2")
    scene.wait_gone()
    assert order(scene, "g") == jobs
    never_two_at_once(scene.lines())
