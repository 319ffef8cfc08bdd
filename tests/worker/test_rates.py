"""Rate limits with real worker processes: what started when, by the server's clock."""

from __future__ import annotations

from tests.rig.waiting import eventually
from tests.worker.track import PATIENCE, StartLimited, Track

STARTS = "select extract(epoch from at - %s)::float8 from public.runs where what = 'start' order by at"


def _starts(track: Track, since: object) -> list[float]:
    return [seconds for (seconds,) in track.query(STARTS, [since])]


def test_never_more_start_than_the_rate_allows(track: Track, limited_worker: StartLimited) -> None:
    """At no moment more than burst + rate x time, with workers that join meanwhile; and little less than that."""
    rate, burst, jobs = 40, 10, 200
    track.apply(limits={"rates": [{"name": "all", "jobs": rate, "periodSeconds": 1, "burst": burst}]})
    limited_worker("--slots", "8").wait_ready(PATIENCE)
    since = track.value("select clock_timestamp()")
    track.fill("work", jobs)
    joined = [limited_worker("--slots", "8") for _ in range(3)]
    track.wait_gone()
    starts = _starts(track, since)
    assert len(starts) == jobs
    for number, seconds in enumerate(starts, 1):
        assert number <= burst + rate * seconds
    assert starts[-1] - starts[0] < 4 * (jobs - burst) / rate
    assert all(each.running for each in joined)


def test_a_slow_rate_is_waited_for_and_holds_nobody_up(track: Track, limited_worker: StartLimited) -> None:
    """FQ-19, CJ-10: a task that has used its rate up waits without being asked for each moment; other tasks go on."""
    track.apply(limits={"rates": [{"name": "slow", "jobs": 1, "periodSeconds": 3, "burst": 2, "tasks": ["work"]}]})
    track.fill("work", 100)
    track.fill("other", 300)
    worker = limited_worker("--slots", "4").wait_ready(PATIENCE)
    track.wait_gone("other")
    eventually(lambda: track.live("work") <= 97, PATIENCE, what="a unit by time")
    seconds = track.value("select extract(epoch from clock_timestamp() - min(at)) from public.runs")
    assert track.live("work") >= 100 - 3 - float(seconds) / 3
    claims = sum(worker.metric("tailrace_worker_polls_total", queue="limited", result=kind) for kind in ("jobs", "empty"))
    first = track.value("select extract(epoch from max(at) - min(at)) from public.runs")
    assert claims < 300 + 25 * float(first)
    track.query("delete from tailrace.job where token is null")


def test_a_job_that_was_handed_back_gives_its_unit_back(track: Track, limited_worker: StartLimited) -> None:
    """A worker that is told to stop starts nothing more: what it had taken and not started costs the rate nothing."""
    track.apply(limits={"rates": [{"name": "all", "jobs": 1, "periodSeconds": 3600, "burst": 6}]})
    first = limited_worker("--slots", "4").wait_ready(PATIENCE)
    track.fill("work", 4, 0.5)
    track.wait_gone()
    first.terminate()
    assert first.wait(20) == 0
    track.fill("other", 4)
    limited_worker("--slots", "4").wait_ready(PATIENCE)
    eventually(lambda: track.live("other") == 2, PATIENCE, what="the units that were left")
    assert track.value("select tokens < 1 from tailrace.rate")
