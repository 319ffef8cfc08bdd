"""Ids beyond 31 and 53 bits on every way that a job can take."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.rig.waiting import eventually
from tests.worker.scene import PATIENCE, SLACK, Scene

REPLACED = 100


@pytest.mark.parametrize("start", [2_147_483_640, 9_007_199_254_740_990])
def test_large_ids_are_exact_on_every_way(scene: Scene, start: int) -> None:
    """e5: run, fail, requeue, interrupt, hand back, lose the worker; a key that is enqueued often moves no narrow sequence."""
    scene.database.query("select setval(pg_get_serial_sequence('tailrace.job', 'id'), %s)", [start])
    quick = scene.fill("quick", 8)
    failing = [scene.enqueue("fails", gate="go", options={"max_attempts": 2}) for _ in range(3)]
    scene.open("go")
    first = scene.worker("--slots", "2", "--drain-timeout-seconds", "0.2")
    letters = "select coalesce(array_agg(job_id order by job_id), '{}') from tailrace.dead_letters where state = 'dead'"
    eventually(lambda: scene.database.value(letters) == failing, PATIENCE, what="the dead letters")
    running = [scene.enqueue("gated", gate="late") for _ in range(3)]
    for job in running[:2]:
        scene.wait_line("start", job)
    first.terminate()
    assert first.wait(SLACK) == 0
    assert [scene.row(job) for job in running] == [(False, 0, 0, 1), (False, 0, 0, 1), (False, 0, 0, 0)]
    assert [scene.database.value("select tailrace.requeue_dead_letter(%s)", [job]) for job in failing] == ["requeued"] * 3
    second = scene.worker("--slots", "3")
    eventually(
        lambda: {line.job for line in scene.lines("start") if line.pid == second.pid} >= set(running), PATIENCE, what="runs"
    )
    second.kill9()
    third = scene.worker("--slots", "3")
    scene.open("late")
    scene.wait_gone()
    eventually(lambda: scene.database.value(letters) == failing, PATIENCE, what="the dead letters again")
    assert sorted({line.job for line in scene.lines("start")}) == sorted([*quick, *failing, *running])
    assert min(quick) > start
    assert third.metric("tailrace_fenced_writes_total") == 0
    assert scene.count("succeeded") == len(quick) + len(running)
    replace = """select count(distinct e.id) from generate_series(1, %s) n,
                   lateral tailrace.enqueue('later', 't', jsonb_build_object('n', n), %s) e"""
    assert scene.database.value(replace, [REPLACED, Jsonb({"key": "k", "on_duplicate": "replace"})]) == 1
    narrow = """select c.relname::text from pg_sequence s join pg_class c on c.oid = s.seqrelid
                where c.relnamespace = 'tailrace'::regnamespace and s.seqtypid <> 'bigint'::regtype"""
    assert scene.database.query(narrow) == []
