"""The heartbeat: one update of one row, and what it tells the worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from tests.engine.rows import Rows
from tests.rig.waiting import eventually

FIRST = {"lease_seconds": 30, "version": "1.2", "queues": ["q", "p"], "tasks": ["t"], "slots": 4, "pod": "pod-1"}


def beat(rows: Rows, known: list[int] | None = None, changes: dict[str, Any] | None = None, worker: str = "w") -> dict[str, Any]:
    """Beat once."""
    return dict(
        rows.value("select tailrace.beat_v1(%s, %s, %s)", [worker, known or [], None if changes is None else Jsonb(changes)])
    )


def left(rows: Rows) -> float:
    """Seconds until the worker's lease ends, by the database's clock."""
    return float(rows.value("select extract(epoch from until - clock_timestamp()) from tailrace.worker where id = 'w'"))


def test_a_beat_extends_the_lease_by_the_databases_clock(rows: Rows) -> None:
    """FQ-10, CJ-16, f2, f3: from now, not from the start of the transaction, and no worker's clock is asked."""
    beat(rows, changes=FIRST)
    with rows.conn.transaction():
        eventually(lambda: rows.value("select clock_timestamp() - now() > interval '0.3 s'"), what="an old transaction")
        before = rows.value("select clock_timestamp()")
        beat(rows)
        until = rows.value("select until from tailrace.worker where id = 'w'")
        assert before + timedelta(seconds=30) <= until
        assert left(rows) <= 30
    beat(rows, changes={"lease_seconds": 90})
    assert 60 < left(rows) <= 90


def test_the_row_is_written_and_written_again_when_it_is_gone(rows: Rows) -> None:
    """FQ-01: a starting worker touches its own row only; a row that somebody removed comes back with the next beat."""
    token, ids = rows.running(worker="other")
    for _ in range(2):
        beat(rows, changes=FIRST)
        stored = rows.conn.execute(
            "select version, queues, tasks, slots, pod, state, lease_seconds from tailrace.worker"
        ).fetchall()
        assert stored == [("1.2", ["q", "p"], ["t"], 4, "pod-1", "working", 30.0)]
        rows.conn.execute("delete from tailrace.worker")
    beat(rows)
    assert left(rows) > 31
    assert (rows.leases(), rows.row(ids[0])["token"]) == ({token}, token)  # type: ignore[index]


def test_a_beat_is_a_hot_update_of_one_row(rows: Rows) -> None:
    """Its cost follows no backlog and it writes no index."""
    beat(rows, changes=FIRST)
    rows.worker("another")
    with rows.conn.transaction():
        for _ in range(20):
            beat(rows, changes=FIRST)
        counted = rows.conn.execute(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_xact_user_tables where relname = 'worker'"
        ).fetchone()
    assert counted is not None
    assert counted[0] == 20
    assert counted[1] >= 19


def test_leases_that_the_worker_does_not_know_are_told(rows: Rows) -> None:
    """A claim that was committed and whose answer was lost is adopted or handed back."""
    beat(rows, changes=FIRST)
    known, _ = rows.running(2)
    lost, ids = rows.running(3, queue="p")
    rows.running(worker="other")
    told = beat(rows, [known])
    assert told["unknown"] == [{"token": lost, "queue": "p", "ids": ids}]
    assert told["missing"] == []


def test_leases_that_were_taken_away_are_told(rows: Rows) -> None:
    """CJ-19: a token without a lease is lost; the worker cancels and writes nothing more."""
    beat(rows, changes=FIRST)
    token, ids = rows.running()
    gone, _ = rows.running()
    rows.value("select count(*) from tailrace.release_leases_v1(%s, true)", [[gone]])
    told = beat(rows, [token, gone])
    assert told["missing"] == [gone]
    assert rows.row(ids[0])["token"] == token  # type: ignore[index]


def test_cancel_requests_of_running_jobs_are_told(rows: Rows) -> None:
    """Those of its own live jobs, not those of others or of jobs that have ended."""
    beat(rows, changes=FIRST)
    token, [mine, calm, ended] = rows.running(3)
    _, [foreign] = rows.running(worker="other")
    rows.settle({"id": ended, "token": token, "kind": "success"})
    for ident in (mine, foreign, ended, 12345):
        rows.conn.execute("insert into tailrace.cancel_request (job_id, requested_by) values (%s, 'me')", [ident])
    assert beat(rows, [token])["cancel"] == [mine]
    assert calm != mine


def test_the_state_of_its_queues_is_told(rows: Rows) -> None:
    rows.conn.execute(
        "insert into tailrace.queue (name, settings, held_until) values ('q', '{\"a\": 1}', now() + interval '1 h')"
    )
    beat(rows, changes=FIRST)
    rows.worker("second")
    rows.worker("dead", until=-1)
    told = beat(rows)["queues"]
    assert told == {
        "q": {"settings": {"a": 1}, "limits": 0, "held": True, "workers": 2},
        "p": {"settings": {}, "limits": 0, "held": False, "workers": 1},
    }
    rows.conn.execute("update tailrace.queue set held_until = now() - interval '1 s'")
    assert beat(rows)["queues"]["q"]["held"] is False
    rows.conn.execute("update tailrace.queue set held = true")
    assert beat(rows)["queues"]["q"]["held"] is True


def test_an_order_to_claim_nothing_is_not_undone_by_a_beat(rows: Rows) -> None:
    """The controller cordons; the worker's own drain goes further; neither goes back to working by a beat."""
    beat(rows, changes=FIRST)
    rows.conn.execute("update tailrace.worker set state = 'cordoned'")
    assert beat(rows, changes={**FIRST, "state": "working"})["state"] == "cordoned"
    assert beat(rows, changes={"state": "draining"})["state"] == "draining"
    assert beat(rows, changes=FIRST)["state"] == "draining"


def test_a_worker_that_was_declared_dead_and_beats_is_alive(rows: Rows) -> None:
    beat(rows, changes=FIRST)
    token, _ = rows.running()
    rows.value("select tailrace.worker_died_v1('w', 'OOMKilled')")
    assert rows.value("select death from tailrace.worker") == "OOMKilled"
    assert left(rows) <= 0
    assert beat(rows, [token])["missing"] == [token]
    assert rows.value("select death is null from tailrace.worker")
