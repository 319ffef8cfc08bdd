"""Concurrency limits with real worker processes: a ledger without constraints shows what ran at a time."""

from __future__ import annotations

from tests.rig.waiting import eventually
from tests.worker.track import PATIENCE, StartLimited, Track


def test_four_workers_share_one_limit(track: Track, limited_worker: StartLimited) -> None:
    """I7: never more at a time than the limit, and as many as it allows."""
    track.apply(limits={"concurrency": 3})
    for each in [limited_worker("--slots", "5") for _ in range(4)]:
        each.wait_ready(PATIENCE)
    track.fill("work", 90, 0.05)
    track.wait_gone()
    assert track.peak("work") == 3


def test_a_limit_comes_falls_and_rises_while_jobs_run(track: Track, limited_worker: StartLimited) -> None:
    """I7: leases that are out count from the first moment, a lowered limit takes effect as slots free, a raised one at once."""
    for each in [limited_worker("--slots", "8") for _ in range(2)]:
        each.wait_ready(PATIENCE)
    track.fill("work", 1000, 0.1)
    eventually(lambda: track.peak("work") > 8, PATIENCE, what="an unlimited start")
    track.apply(limits={"concurrency": 4})
    eventually(lambda: track.running() <= 4, PATIENCE, what="the limit")
    for most in (4, 2, 6):
        track.apply(limits={"concurrency": most})
        eventually(lambda most=most: track.running() == most, PATIENCE, what=f"{most} at a time")  # type: ignore[misc]
        track.query("truncate public.runs")
        eventually(lambda: track.value("select count(*) from public.runs where what = 'start'") >= 15, PATIENCE, what="some runs")
        # Runs that began before the ledger was emptied end with it: they only make the sum smaller.
        assert track.peak("work") <= most
    track.apply()
    eventually(lambda: track.running() > 6, PATIENCE, what="no limit")
    track.wait_gone()


def test_a_task_at_its_limit_holds_nobody_up(track: Track, limited_worker: StartLimited) -> None:
    """CJ-10, FQ-19: many jobs of it stand before the others, which go on at once; it never exceeds its limit."""
    track.apply(tasks=[{"name": "work", "concurrencyLimit": 2}])
    track.fill("work", 3000, 0.3)
    track.fill("other", 400)
    for each in [limited_worker("--slots", "6") for _ in range(2)]:
        each.wait_ready(PATIENCE)
    track.wait_gone("other")
    assert track.live("work") > 2500
    assert track.peak("work") == 2
    track.query("delete from tailrace.job where token is null")
    track.wait_gone()


def test_limits_hold_for_every_way_a_run_ends(track: Track, limited_worker: StartLimited) -> None:
    """Snoozes, failures, retries, groups, keys, last attempts and jobs that were lost before: all under both limits."""
    track.apply(limits={"concurrency": 5}, tasks=[{"name": "stumble", "concurrencyLimit": 2}])
    track.fill("stumble", 12, 0.02)
    track.fill("work", 10, 0.02, serial_group="one")
    track.fill("stumble", 4, 0.02, serial_group="two")
    track.fill("work", 10, 0.02, max_attempts=1)
    track.fill("work", 3, 0.02, lost=1)
    for each in [limited_worker("--slots", "4") for _ in range(3)]:
        each.wait_ready(PATIENCE)
    track.wait_gone()
    assert track.peak("stumble") <= 2
    assert track.peak("stumble", "work") <= 5
    ends = """select what, sum(n)::int from (select what, n from tailrace.tally union all select what, n from tailrace.total) e
      group by 1"""
    assert dict(track.query(ends)) == {"succeeded": 39}


def test_a_killed_worker_gives_its_slots_back_with_its_lease(track: Track, limited_worker: StartLimited) -> None:
    """BF-08, I7: its slots are taken until its lease is taken over, then they are free; nobody runs beside its jobs meanwhile."""
    track.apply(limits={"concurrency": 2})
    track.fill("work", 2, 60.0)
    victim = limited_worker("--slots", "4", lease=3).wait_ready(PATIENCE)
    eventually(lambda: track.running() == 2, PATIENCE, what="two jobs")
    name = track.value("select id from tailrace.worker")
    track.fill("other", 6, 0.01)
    limited_worker("--slots", "4", lease=3).wait_ready(PATIENCE)
    victim.kill9()
    track.wait_gone("other")
    until = "select until from tailrace.worker where id = %s"
    assert track.value("select min(at) from public.runs where task = 'other'") >= track.value(until, [name])
    assert track.peak("other") <= 2
    assert track.value("select bool_and(lost = 1) from tailrace.job where task = 'work'")
    track.query("delete from tailrace.job where token is null")
