"""When the reaper takes nothing: outages, clock steps, first ticks; and proofs of death, which it does not wait for."""

from __future__ import annotations

import psycopg
import pytest

from tests.engine.rows import Rows, results


def tick(rows: Rows, *, last: float, steady: float) -> None:
    """Let the last tick, and the beginning of steady ones, lie so many seconds back (negative: ahead)."""
    rows.steady(steady)
    rows.conn.execute("update tailrace.maintenance set last_tick = clock_timestamp() - %s * interval '1 s'", [last])


def test_the_first_tick_takes_nothing(rows: Rows) -> None:
    rows.worker(until=-10)
    token, _ = rows.running()
    assert rows.reap()["steady"] is False
    assert rows.leases() == {token}


@pytest.mark.parametrize(
    ("last", "steady", "taken"),
    [(20, 3600, 1), (44, 3600, 0), (46, 3600, 0), (-5, 3600, 0), (14, 50, 0), (14, 61, 1), (14, -3600, 0)],
)
def test_ticks_must_have_been_steady_for_a_lease(rows: Rows, last: float, steady: float, taken: int) -> None:
    """f2: after a gap of more than three intervals, or when the clock has gone back, living workers come first.

    The interval is 15 s, the lease 60 s.
    """
    rows.worker(until=-10)
    rows.running()
    tick(rows, last=last, steady=steady)
    assert rows.reap(interval=15)["leases"] == taken


def test_after_a_late_tick_only_those_are_taken_that_were_dead_before(rows: Rows) -> None:
    """f2: an outage shorter than three intervals can outlast what was left of a lease; its worker has one interval to beat."""
    rows.worker("dead long ago", until=-41)
    rows.worker("cut off with the server", until=-1)
    gone, _ = rows.running(worker="dead long ago")
    waiting, _ = rows.running(worker="cut off with the server")
    tick(rows, last=40, steady=3600)
    assert rows.reap(batch=1)["leases"] == 1
    assert rows.leases() == {waiting}
    assert rows.reap(batch=1, after=gone)["leases"] == 0
    assert rows.reap()["leases"] == 1


def test_a_gap_begins_a_new_count_of_steady_ticks(rows: Rows) -> None:
    """The next tick in time does not take either, until a lease has passed since the gap."""
    rows.worker(until=-10)
    rows.running()
    tick(rows, last=100, steady=3600)
    assert rows.reap()["leases"] == 0
    assert rows.reap()["leases"] == 0
    rows.conn.execute("update tailrace.maintenance set steady_since = steady_since - interval '61 s'")
    assert rows.reap()["leases"] == 1


def test_a_short_lease_needs_a_short_steady_time(rows: Rows) -> None:
    rows.worker(until=-1, lease_seconds=3)
    rows.running()
    tick(rows, last=1, steady=4)
    assert rows.reap(interval=1)["leases"] == 1


def test_an_until_far_ahead_counts_as_one_lease(rows: Rows) -> None:
    """f2: the clock was set back by an hour; a dead worker must not keep its jobs for that hour."""
    rows.steady()
    rows.worker(until=3600)
    rows.worker("sane", until=100)
    rows.running()
    assert rows.reap()["leases"] == 0
    left: dict[str, float] = dict(
        rows.conn.execute("select id, extract(epoch from until - clock_timestamp())::float8 from tailrace.worker").fetchall()
    )
    assert 55 < left["w"] <= 60
    assert 95 < left["sane"] <= 100


@pytest.mark.parametrize(("interval", "batch"), [(0.5, 100), (0, 100), (15, 0)])
def test_absurd_settings_are_refused(rows: Rows, interval: float, batch: int) -> None:
    """BF-42."""
    with pytest.raises(psycopg.Error) as refusal:
        rows.reap(interval=interval, batch=batch)
    assert refusal.value.sqlstate == "TR002"


# ---- proof of death ---------------------------------------------------------------------------------------------------
def test_a_proof_of_death_takes_over_at_once(rows: Rows) -> None:
    """FQ-02: no steady ticks needed, the first loss runs again without delay, the reason is kept; others are untouched."""
    rows.worker(until=50)
    rows.worker("living")
    kept, _ = rows.running(worker="living")
    _, [first, again, spent] = rows.running(3, max_attempts=3)
    rows.conn.execute("update tailrace.job set lost = 1 where id = %s", [again])
    rows.conn.execute("update tailrace.job set attempts = 3 where id = %s", [spent])
    report = rows.value("select tailrace.worker_died_v1('w', 'OOMKilled')")
    assert (report["known"], report["leases"], results(report)) == (True, 1, {"lost": 2, "dead": 1})
    assert rows.row(first)["wait"] <= 0  # type: ignore[index]
    assert rows.row(again)["wait"] > 5  # type: ignore[index]
    assert "OOMKilled" in rows.dead(spent)["errors"][-1]["message"]  # type: ignore[index]
    assert rows.value("select death from tailrace.worker where id = 'w'") == "OOMKilled"
    assert rows.leases() == {kept}


def test_a_death_during_a_drain_is_an_interruption(rows: Rows) -> None:
    rows.worker(until=50, state="draining")
    _, [ident] = rows.running(max_attempts=1)
    assert results(rows.value("select tailrace.worker_died_v1('w', 'killed')")) == {"interrupted": 1}
    assert rows.row(ident)["attempts"] == 0  # type: ignore[index]


def test_an_unknown_dead_worker_is_no_error(rows: Rows) -> None:
    assert rows.value("select tailrace.worker_died_v1('nobody', 'x')")["known"] is False


def test_a_job_lost_by_proof_wakes_the_workers(rows: Rows) -> None:
    rows.conn.execute(f"listen {rows.value('select tailrace.signal_channel_v1()')}")
    rows.worker()
    rows.running()
    rows.value("select tailrace.worker_died_v1('w', 'killed')")
    assert [n.payload for n in rows.conn.notifies(timeout=5, stop_after=1)] == ["q"]


# ---- by hand ----------------------------------------------------------------------------------------------------------
def release(rows: Rows, tokens: list[int], *, force: bool) -> dict[int, str]:
    """Release leases and return the results by token."""
    return dict(rows.conn.execute("select token, result from tailrace.release_leases_v1(%s, %s)", [tokens, force]).fetchall())


def test_a_live_lease_is_released_by_force_only(rows: Rows) -> None:
    """BF-05: it counts as a lost one; no job row is removed by it; who did it is written down."""
    rows.worker()
    rows.worker("dead", until=-1)
    live, [ident, spent] = rows.running(2, max_attempts=2)
    rows.conn.execute("update tailrace.job set attempts = 2 where id = %s", [spent])
    stale, _ = rows.running(worker="dead")
    assert release(rows, [live, stale, 77], force=False) == {live: "live", stale: "released", 77: "missing"}
    assert rows.row(ident)["token"] == live  # type: ignore[index]
    assert release(rows, [live], force=True) == {live: "released"}
    row = rows.row(ident)
    assert row is not None
    assert (row["lost"], row["attempts"], row["token"]) == (1, 1, None)
    assert row["wait"] > 3
    assert rows.dead(spent)["reason"] == "lease_expired"  # type: ignore[index]
    written = rows.conn.execute("select who = session_user, verb, n from tailrace.audit order by id").fetchall()
    assert written == [(True, "leases.release", 1), (True, "leases.release", 1)]


def test_a_lease_whose_job_is_held_is_busy(rows: Rows, other: Rows) -> None:
    rows.worker(until=-1)
    token, [ident] = rows.running()
    other.conn.execute("select from tailrace.job where id = %s for update", [ident])
    assert release(rows, [token], force=False) == {token: "busy"}
    other.conn.rollback()
    assert release(rows, [token], force=False) == {token: "released"}


def test_a_worker_whose_live_lease_was_taken_is_told_to_look(rows: Rows) -> None:
    rows.conn.execute(f"listen {rows.value('select tailrace.signal_channel_v1()')}")
    rows.worker()
    token, _ = rows.running()
    release(rows, [token], force=True)
    assert [n.payload for n in rows.conn.notifies(timeout=5, stop_after=1)] == ["q?"]
