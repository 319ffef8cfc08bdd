"""Members of serial groups that complete themselves, have successors, or run inside a middleware."""

from __future__ import annotations

import pytest

from tests.rig.waiting import eventually
from tests.worker.group_end_apps import EFFECTS
from tests.worker.scene import Scene
from tests.worker.test_groups import join, never_two_at_once, order


@pytest.fixture(autouse=True)
def grouped(scene: Scene) -> None:
    scene.app = "tests.worker.group_end_apps:app"
    scene.database.query(EFFECTS)


def effects(scene: Scene) -> list[tuple[int, int]]:
    """(job, attempt) of each effect."""
    return [(job, attempt) for job, attempt in scene.database.query("select job, attempt from public.effects order by 1, 2")]


def nothing_left(scene: Scene) -> None:
    """Check that no lease and no group is left behind."""
    left = "select (select count(*) from tailrace.lease) + (select count(*) from tailrace.job_group where token is not null)"
    eventually(lambda: scene.database.value(left) == 0, 10, what="no lease and no group")
    never_two_at_once(scene.lines())


# ---- complete_in -----------------------------------------------------------------------------------------------------
def test_members_that_complete_themselves_follow_each_other(scene: Scene) -> None:
    """FQ-03: the effect of each is there once, and its group goes on."""
    jobs = [join(scene, "pay", "g") for _ in range(20)]
    scene.worker("--slots", "4")
    scene.worker("--slots", "4")
    scene.wait_gone()
    assert order(scene, "g") == jobs
    assert effects(scene) == [(job, 1) for job in jobs]
    assert scene.count("succeeded") == 20
    nothing_left(scene)


def test_a_completion_that_is_rolled_back_is_tried_again_and_the_group_goes_on(scene: Scene) -> None:
    slow = {"backoff": {"strategy": "fixed", "base": 0.5, "cap": 0.5, "jitter": 0}}
    bad = join(scene, "pay", "g", how="undo", options=slow)
    late = join(scene, "pay", "g", how="raise")
    good = join(scene, "pay", "g")
    scene.worker("--slots", "4")
    scene.wait_gone()
    assert order(scene, "g") == [bad, late, good, bad]
    assert effects(scene) == [(bad, 2), (late, 1), (good, 1)]
    nothing_left(scene)


def test_in_strict_order_the_group_waits_for_a_completion_that_was_rolled_back(scene: Scene) -> None:
    bad = join(scene, "pay_strict", "g", how="undo")
    good = join(scene, "pay_strict", "g")
    scene.worker("--slots", "4")
    scene.wait_gone()
    assert order(scene, "g") == [bad, bad, good]
    assert effects(scene) == [(bad, 2), (good, 1)]
    nothing_left(scene)


def test_the_group_of_a_completion_that_is_not_committed_yet_is_kept(scene: Scene) -> None:
    """Nobody waits for that transaction; only its own group does."""
    first = join(scene, "leave_open", "g", gate="go")
    others = [join(scene, "step", name) for name in "hij"]
    scene.worker("--slots", "2")
    scene.wait_line("end", first)
    second = join(scene, "step", "g")
    for job in (*others, join(scene, "step", "h")):
        scene.wait_line("end", job)
    assert scene.lines("start", second) == []
    scene.open("go")
    scene.wait_line("end", second)
    scene.wait_gone()
    assert effects(scene) == [(first, 1)]
    nothing_left(scene)


def test_a_worker_killed_after_the_commit_frees_the_group(scene: Scene) -> None:
    """BF-08: the job is gone, its lease and its group are not: the reaper ends both."""
    first = join(scene, "pay", "g", how="kill")
    victim = scene.worker("--slots", "1")
    assert victim.wait(20) == -9
    second = join(scene, "step", "g")
    assert scene.database.value("select count(*) from tailrace.job_group where token is not null") == 1
    scene.worker("--slots", "1")
    scene.wait_line("end", second)
    scene.wait_gone()
    assert order(scene, "g") == [first, second]
    assert effects(scene) == [(first, 1)]
    nothing_left(scene)


# ---- keys ------------------------------------------------------------------------------------------------------------
def test_a_successor_joins_the_group_when_its_holder_has_ended(scene: Scene) -> None:
    """It is due from then on: what has been due for longer comes first."""
    after = {"key": "k", "on_duplicate": "after"}
    holder = join(scene, "held", "g", gate="go", options=after)
    scene.worker("--slots", "4")
    scene.wait_line("start", holder)
    successor = join(scene, "held", "g", gate="go", options=after)
    other = join(scene, "step", "g", options={"key": "k"})
    assert scene.row(successor, "key_slot") == (1,)
    state = "select state from tailrace.jobs where id = %s"
    assert [scene.database.value(state, [job]) for job in (successor, other)] == ["blocked", "blocked"]
    scene.open("go")
    scene.wait_gone()
    assert order(scene, "g") == [holder, other, successor]
    nothing_left(scene)


def test_members_with_keys_follow_each_other_in_order(scene: Scene) -> None:
    jobs = [join(scene, "step", "g", options={"key": f"k-{n}"}) for n in range(60)]
    scene.worker("--slots", "4")
    scene.worker("--slots", "4")
    scene.wait_gone()
    assert order(scene, "g") == jobs
    assert scene.count("succeeded") == 60
    nothing_left(scene)


def test_a_member_that_enqueues_its_own_key_is_followed(scene: Scene) -> None:
    join(scene, "chain", "g", left=15, options={"key": "chain"})
    scene.worker("--slots", "4")
    scene.worker("--slots", "4")
    eventually(lambda: scene.count("succeeded") == 16, 40, what="16 links")
    scene.wait_gone()
    assert len(order(scene, "g")) == 16
    nothing_left(scene)


# ---- middleware ------------------------------------------------------------------------------------------------------
def test_a_middleware_sees_the_group_and_ends_before_the_next_member_starts(scene: Scene) -> None:
    jobs = [join(scene, "bare", "g") for _ in range(5)]
    jobs += [join(scene, "step", "g") for _ in range(5)]
    scene.worker("--slots", "4")
    scene.wait_gone()
    seen = [(line.what, line.job) for line in scene.lines() if line.note == "g" and line.what in ("in", "out")]
    assert seen == [(what, job) for job in jobs for what in ("in", "out")]
    nothing_left(scene)


def test_a_member_with_a_middleware_that_is_cancelled_lets_the_next_one_start(scene: Scene) -> None:
    first = join(scene, "bare", "g", gate="never")
    second = join(scene, "step", "g")
    scene.worker("--slots", "4")
    scene.wait_line("in", first)
    scene.database.query("select tailrace.cancel(%s)", [first])
    scene.wait_line("end", second)
    scene.wait_gone()
    assert [line.job for line in scene.lines("out")] == [first, second]
    nothing_left(scene)
