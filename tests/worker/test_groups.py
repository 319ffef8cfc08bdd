"""Serial groups with real workers: one at a time, in order, and none of them waits for another."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.rig.waiting import eventually
from tests.worker.scene import LEASE, SLACK, Line, Scene, let_pass

SLOW = {"strategy": "fixed", "base": 2.0, "cap": 2.0, "jitter": 0}


@pytest.fixture(autouse=True)
def grouped(scene: Scene) -> None:
    scene.app = "tests.worker.group_apps:app"


def join(scene: Scene, task: str, group: str, *, options: dict[str, Any] | None = None, **payload: Any) -> int:
    """Enqueue a member of a group."""
    return scene.enqueue(task, options={"serial_group": group, **(options or {})}, **payload)


def never_two_at_once(lines: list[Line], *, killed: frozenset[int] = frozenset()) -> None:
    """Check that no member started while another of its group ran in a living process."""
    running: dict[str | None, tuple[int, int]] = {}
    for line in (member for member in lines if member.note is not None):
        if line.what == "start":
            other = running.get(line.note)
            assert other is None or other[1] in killed, (line, other)
            running[line.note] = (line.job, line.pid)
        elif line.what == "end" and running.get(line.note, (0, 0))[0] == line.job:
            del running[line.note]


def order(scene: Scene, group: str) -> list[int]:
    """Jobs of a group as they started."""
    return [line.job for line in scene.lines("start") if line.note == group]


def test_two_workers_and_three_groups_both_get_a_job_at_once(scene: Scene) -> None:
    """GW-03: claiming takes nobody's turn."""
    for group in "abc":
        join(scene, "held", group, gate="go")
        join(scene, "step", group)
    workers = [scene.worker("--slots", "1") for _ in range(2)]
    eventually(lambda: {line.pid for line in scene.lines("start")} == {w.pid for w in workers}, 10, what="a job in each worker")
    assert len(scene.lines("start")) == 2
    scene.open("go")
    scene.wait_gone()
    never_two_at_once(scene.lines())


def test_a_job_longer_than_every_time_out_stays_alone(scene: Scene) -> None:
    """BF-06: a group is freed by the end of its member, never by time."""
    first = join(scene, "held", "g", gate="go")
    second = join(scene, "step", "g")
    scene.worker("--slots", "2")
    scene.worker("--slots", "2")
    scene.wait_line("start", first)
    let_pass(2.5 * LEASE)
    assert order(scene, "g") == [first]
    assert scene.database.value("select state from tailrace.jobs where id = %s", [second]) == "blocked"
    assert scene.database.value("select blocked from tailrace.queue_stats('faults')") == 1
    opened = scene.open("go")
    assert scene.wait_line("start", second).at - opened < SLACK
    scene.wait_gone()
    assert scene.database.value("select count(*) from tailrace.job_group") == 0


def test_many_groups_in_order_each_once(scene: Scene) -> None:
    """I8: a thousand groups of three, two workers, and jobs without a group among them."""
    workers = [scene.worker("--slots", "20") for _ in range(2)]
    ids = defaultdict(list)
    for ident, group in scene.database.query(
        """insert into tailrace.job (queue, task, payload, serial_group)
           select 'faults', 'step', '{}', 'g' || (n % 1000) from generate_series(1, 3000) n returning id, serial_group"""
    ):
        ids[group].append(ident)
    free = scene.fill("quick", 500)
    scene.wait_gone()
    lines = scene.lines()
    never_two_at_once(lines)
    started = defaultdict(list)
    for line in lines:
        if line.what == "start":
            started[line.note].append(line.job)
    assert sorted(started.pop(None)) == sorted(free)
    assert started == ids
    assert {line.pid for line in lines if line.what == "start"} == {w.pid for w in workers}
    assert scene.count("succeeded") == 3500


def test_priority_then_time_then_id_within_a_group(scene: Scene) -> None:
    """A delayed member neither starts early nor blocks the others."""
    late = join(scene, "step", "g", options={"delay": 60, "priority": 5})
    plain = [join(scene, "step", "g") for _ in range(2)]
    high = join(scene, "step", "g", options={"priority": 10})
    scene.worker("--slots", "4")
    scene.wait_line("end", plain[-1])
    assert scene.database.value("select state from tailrace.jobs where id = %s", [late]) == "scheduled"
    scene.database.query("select tailrace.reschedule(%s, clock_timestamp() + interval '0.5 s')", [late])
    scene.wait_gone()
    assert order(scene, "g") == [high, *plain, late]


def test_a_tenant_has_groups_of_its_own(scene: Scene) -> None:
    jobs = [join(scene, "held", "g", gate="go", options={"tenant": tenant}) for tenant in ("acme", "zeta", "")]
    same = join(scene, "held", "g", gate="go", options={"tenant": "acme"})
    scene.worker("--slots", "8")
    for job in jobs:
        scene.wait_line("start", job)
    assert not scene.lines("start", same)
    scene.open("go")
    scene.wait_gone()
    assert len(scene.lines("start", same)) == 1


def test_a_failing_member_does_not_hold_up_its_group(scene: Scene) -> None:
    bad = join(scene, "stumbling", "g", times=2, options={"backoff": SLOW})
    good = [join(scene, "step", "g") for _ in range(3)]
    scene.worker("--slots", "4")
    scene.wait_gone()
    assert order(scene, "g") == [bad, *good, bad, bad]
    never_two_at_once(scene.lines())


def test_strict_order_waits_for_the_retry(scene: Scene) -> None:
    bad = join(scene, "strict", "g", times=2, options={"backoff": {**SLOW, "base": 0.5, "cap": 0.5}})
    good = [join(scene, "strict", "g") for _ in range(3)]
    other = join(scene, "step", "other")
    scene.worker("--slots", "4")
    scene.worker("--slots", "4")
    scene.wait_gone()
    assert order(scene, "g") == [bad, bad, bad, *good]
    assert order(scene, "other") == [other]
    never_two_at_once(scene.lines())
    assert scene.database.value("select count(*) from tailrace.job_group where token is not null") == 0


def test_strict_order_goes_on_when_the_failed_member_is_cancelled(scene: Scene) -> None:
    bad = join(scene, "strict", "g", times=2, options={"backoff": {**SLOW, "base": 60, "cap": 60}})
    good = join(scene, "strict", "g")
    scene.worker("--slots", "4")
    eventually(lambda: scene.row(bad, "attempts, token is null") == (1, True), what="the failed run")
    assert scene.database.value("select state from tailrace.jobs where id = %s", [good]) == "blocked"
    scene.database.query("select tailrace.cancel(%s)", [bad])
    scene.wait_gone()
    assert order(scene, "g") == [bad, good]


def test_a_requeued_dead_letter_is_a_member_as_before(scene: Scene) -> None:
    dead = join(scene, "stumbling", "g", times=1, options={"max_attempts": 1})
    scene.worker("--slots", "4")
    eventually(lambda: scene.count("dead") == 1, what="the dead letter")
    holder = join(scene, "held", "g", gate="go")
    scene.wait_line("start", holder)
    scene.database.query("update tailrace.dead_letter set max_attempts = 3")
    scene.database.query("select tailrace.requeue_dead_letter(%s)", [dead])
    scene.database.query("update tailrace.job set payload = '{\"times\": 0}' where id = %s", [dead])
    eventually(lambda: scene.database.value("select state from tailrace.jobs where id = %s", [dead]) == "blocked", what="blocked")
    scene.open("go")
    scene.wait_gone()
    assert order(scene, "g") == [dead, holder, dead]
    assert scene.database.value("select state from tailrace.dead_letter") == "resolved"


def test_cancelling_the_running_member_lets_the_next_one_start(scene: Scene) -> None:
    first = join(scene, "held", "g", gate="never")
    second = join(scene, "step", "g")
    scene.worker("--slots", "2")
    scene.wait_line("start", first)
    scene.database.query("select tailrace.cancel(%s)", [first])
    scene.wait_line("end", second)
    scene.wait_gone()
    never_two_at_once(scene.lines())
