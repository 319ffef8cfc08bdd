"""`tailrace worker --until-empty`: runs what is due, leaves the rest, and ends by itself."""

from __future__ import annotations

import pytest

from tests.rig.waiting import eventually
from tests.worker.scene import PATIENCE, SLACK, Scene


def test_an_empty_queue_ends_it_at_once(scene: Scene) -> None:
    worker = scene.worker("--until-empty")
    assert worker.wait(SLACK) == 0
    assert [line.what for line in scene.lines()] == ["opened", "closed"]
    assert scene.database.value("select count(*) from tailrace.worker") == 0


@pytest.mark.parametrize("slots", ["1", "10"])
def test_it_runs_everything_that_is_due(scene: Scene, slots: str) -> None:
    jobs = [*scene.fill("quick", 700), *scene.fill("quick", 20, priority=7), *scene.fill("quick", 20, priority=-7)]
    worker = scene.worker("--until-empty", "--slots", slots, ready=False)
    assert worker.wait(PATIENCE) == 0
    scene.ran_once(jobs)
    assert scene.database.value("select count(*) from tailrace.lease") == 0


def test_it_waits_for_what_runs_and_for_what_that_enqueues(scene: Scene) -> None:
    job = scene.enqueue("gated", gate="go")
    worker = scene.worker("--until-empty", "--slots", "2")
    scene.wait_line("start", job)
    assert worker.running
    late = scene.enqueue("quick")
    scene.wait_line("start", late)
    scene.open("go")
    assert worker.wait(SLACK) == 0
    scene.ran_once([job, late])


def test_a_failed_job_that_waits_for_its_retry_is_left(scene: Scene) -> None:
    scene.open("go")
    job = scene.enqueue("fails", gate="go", options={"backoff": {"strategy": "fixed", "base": 3600, "cap": 3600}})
    assert scene.worker("--until-empty", ready=False).wait(PATIENCE) == 0
    assert scene.row(job) == (False, 1, 0, 0)


def test_it_leaves_what_is_not_due_not_known_or_held(scene: Scene) -> None:
    """FQ-13: none of them is touched."""
    future = scene.enqueue("quick", options={"delay": 3600})
    unknown = scene.enqueue("of-a-newer-release")
    scene.database.query("select tailrace.hold_queue('faults')")
    held = scene.enqueue("quick")
    assert scene.worker("--until-empty", ready=False).wait(PATIENCE) == 0
    assert scene.row(held) == (False, 0, 0, 0)
    scene.database.query("select tailrace.resume_queue('faults')")
    assert scene.worker("--until-empty", ready=False).wait(PATIENCE) == 0
    assert scene.row(held) is None
    assert scene.row(future) == scene.row(unknown) == (False, 0, 0, 0)


def test_jobs_that_were_lost_before_are_run_too(scene: Scene) -> None:
    """CJ-05: they are claimed alone, one after the other."""
    jobs = scene.fill("quick", 5)
    scene.database.query("update tailrace.job set lost = 1, attempts = 1")
    assert scene.worker("--until-empty", ready=False).wait(PATIENCE) == 0
    assert sorted((line.job, line.attempt) for line in scene.lines("start")) == [(job, 2) for job in jobs]


def test_several_queues_end_together(scene: Scene) -> None:
    jobs = scene.fill("quick", 30)
    scene.database.query(
        "insert into tailrace.job (queue, task, payload) select 'other', 'quick', '{}' from generate_series(1, 30)"
    )
    worker = scene.worker("--until-empty", "--queue", "faults=2", "--queue", "other", ready=False)
    assert worker.wait(PATIENCE) == 0
    assert scene.live() == 0
    assert len(scene.lines("start")) == 30 + len(jobs)


def test_a_signal_ends_it_before(scene: Scene) -> None:
    scene.fill("gated", 3, gate="go")
    worker = scene.worker("--until-empty", "--slots", "1")
    eventually(lambda: scene.lines("start"), what="a running job")
    worker.terminate()
    worker.wait_event("worker_draining")
    scene.open("go")
    assert worker.wait(SLACK) == 0
    assert scene.live() == 2


def test_a_cordoned_worker_ends_though_jobs_are_due(scene: Scene) -> None:
    """It may claim nothing any more, so it waits for what it runs and leaves the rest to others."""
    running = scene.enqueue("gated", gate="go")
    worker = scene.worker("--until-empty", "--slots", "1")
    scene.wait_line("start", running)
    left = scene.fill("quick", 3)
    scene.database.query("update tailrace.worker set state = 'cordoned'")
    eventually(lambda: "cordoned" in worker.get("/readyz")[1], what="the order")
    assert worker.running
    scene.open("go")
    assert worker.wait(SLACK) == 0
    assert scene.row(running) is None
    assert [scene.row(job) for job in left] == [(False, 0, 0, 0)] * 3
