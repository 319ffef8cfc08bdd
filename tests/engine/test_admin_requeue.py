"""A requeue puts the job back under its number, once, and never over a newer job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.db import Statement, run
from tailrace.errors import Conflict, NotFound
from tests.rig.servers import Connection, RigDatabase


def call(conn: Connection, expression: str, **params: Any) -> Any:
    return run(conn, Statement(f"select tailrace.{expression}", params, lambda rows: rows[0][0]))


def dead(conn: Connection, key: str | None = None, payload: str = '{"v": 1}') -> int:
    """Enqueue a job with all settings, and let it die as the engine does: exhausted, met by the walk."""
    job = conn.execute(
        "insert into tailrace.job"
        " (queue, task, payload, key, priority, attempts, max_attempts, timeout, meta, saved, errors, tenant)"
        " values ('q', 't', %s, %s, 7, 3, 3, '30 s', '{\"m\": 1}', '{\"s\": 1}', '[{\"type\": \"E\"}]', 'a') returning id",
        [payload, key],
    ).fetchall()[0][0]
    conn.execute("select tailrace.walk_v1(%s, 1)", [job - 1])
    assert conn.execute("select state from tailrace.dead_letter where job_id = %s", [job]).fetchone() == ("dead",)
    return int(job)


def letter(conn: Connection, job: int, columns: str) -> Any:
    row = conn.execute(f"select {columns} from tailrace.dead_letter where job_id = %s", [job]).fetchall()[0]
    return row[0] if len(row) == 1 else row


def test_the_job_comes_back_as_it_was_with_its_counters_anew(conn: Connection) -> None:
    """BF-24: settings unchanged; attempts, lost and interrupted start again; the number stays."""
    job = dead(conn, "k")
    conn.execute("insert into tailrace.cancel_request (job_id, requested_by) values (%s, 'of its life before')", [job])
    assert call(conn, "requeue_dead_letter(%(id)s)", id=job) == "requeued"
    row = conn.execute(
        "select id, tenant, queue, task, payload, key, priority, max_attempts, timeout, meta, saved, attempts, lost, interrupted,"
        " requeues, state, cancel_requested from tailrace.jobs"
    ).fetchall()
    assert row == [
        (job, "a", "q", "t", {"v": 1}, "k", 7, 3, 30.0, {"m": 1}, {"s": 1}, 0, 0, 0, 1, "unclaimable", False),
    ]
    assert letter(conn, job, "state, requeued_count, last_requeued_at is not null") == ("requeued", 1, True)
    assert [event["event"] for event in letter(conn, job, "history")] == ["requeued"]
    assert conn.execute("select verb, target, n from tailrace.audit").fetchall() == [("requeue", {"job_id": str(job)}, 1)]
    assert conn.execute("select n from tailrace.tally where what = 'requeued'").fetchall() == [(1,)]


def test_success_resolves_and_failure_makes_it_dead_again(conn: Connection) -> None:
    """BF-23, BF-29: with and without key; attempts and landings are separate counts."""
    for key in (None, "k"):
        job = dead(conn, key)
        for count in (1, 2):
            call(conn, "requeue_dead_letter(%(id)s)", id=job)
            conn.execute("update tailrace.job set attempts = 3 where id = %s", [job])
            conn.execute("select tailrace.walk_v1(%s, 1)", [job - 1])
            assert letter(conn, job, "state, dead_count, total_attempts, requeued_count") == (
                "dead",
                count + 1,
                3 * (count + 1),
                count,
            )
        call(conn, "requeue_dead_letter(%(id)s)", id=job)
        conn.execute(
            "insert into tailrace.lease (token, worker, queue, ids) values (%s, 'w', 'q', array[%s::bigint])", [job, job]
        )
        conn.execute("update tailrace.job set token = id, attempts = 1 where id = %s", [job])
        conn.execute(
            "select tailrace.settle_v1('w', jsonb_build_array(jsonb_build_object("
            "'id', %s::bigint, 'token', %s::bigint, 'kind', 'success')))",
            [job, job],
        )
        assert letter(conn, job, "state, resolution") == ("resolved", "succeeded")
        with pytest.raises(Conflict, match="is resolved"):
            call(conn, "requeue_dead_letter(%(id)s)", id=job)


def test_a_double_click_gives_one_job(conn: Connection, database: RigDatabase) -> None:
    """BF-19: concurrent requeues of an unkeyed row make one job; the others get a conflict."""
    job = dead(conn)

    def requeue(_: int) -> str:
        with database.connect() as own:
            try:
                return str(call(own, "requeue_dead_letter(%(id)s)", id=job))
            except Conflict as error:
                return str(error)

    with ThreadPoolExecutor(8) as pool:
        results = sorted(pool.map(requeue, range(8)))
    assert results[-1] == "requeued"
    assert all("is requeued (Its job lives; wait for its end)" in text for text in results[:-1])
    assert conn.execute("select count(*) from tailrace.job").fetchone() == (1,)


def test_a_newer_holder_of_the_key_is_kept(conn: Connection) -> None:
    """BF-20: the old payload never goes over the new one."""
    job = dead(conn, "k")
    conn.execute("insert into tailrace.job (tenant, queue, task, payload, key) values ('a', 'q', 't', '{\"v\": 2}', 'k')")
    with pytest.raises(Conflict, match="holds the key and waits") as caught:
        call(conn, "requeue_dead_letter(%(id)s)", id=job)
    assert caught.value.field == "key"
    assert conn.execute("select payload from tailrace.job").fetchall() == [({"v": 2},)]
    assert letter(conn, job, "state, requeued_count, history") == ("dead", 0, [])


def test_force_replaces_a_waiting_holder_and_keeps_its_payload(conn: Connection) -> None:
    job = dead(conn, "k")
    holder = conn.execute(
        "insert into tailrace.job (tenant, queue, task, payload, key) values ('a', 'q', 't', '{\"v\": 2}', 'k') returning id"
    ).fetchall()[0][0]
    assert call(conn, "requeue_dead_letter(%(id)s, true)", id=job) == "requeued"
    assert conn.execute("select id, payload from tailrace.job").fetchall() == [(job, {"v": 1})]
    assert letter(conn, job, "history")[0]["replaced"] == {"id": str(holder), "payload": {"v": 2}}
    assert conn.execute("select what from tailrace.tally where what = 'replaced'").fetchall() == [("replaced",)]


def test_force_does_not_touch_a_running_holder(conn: Connection) -> None:
    """BF-02: what runs is left alone, whatever the force."""
    job = dead(conn, "k")
    conn.execute(
        "insert into tailrace.job (tenant, queue, task, payload, key, token, attempts)"
        " values ('a', 'q', 't', '{\"v\": 2}', 'k', 7, 1)"
    )
    with pytest.raises(Conflict, match="holds the key and runs"):
        call(conn, "requeue_dead_letter(%(id)s, force => true)", id=job)
    assert letter(conn, job, "state") == "dead"


def test_a_forced_holder_that_was_requeued_itself_goes_back_to_the_dead(conn: Connection) -> None:
    """I5, I6: two dead jobs of one key: at any moment one is live or both have a dead letter that says so."""
    first = dead(conn, "k")
    call(conn, "requeue_dead_letter(%(id)s)", id=first)
    conn.execute("update tailrace.job set key = null where id = %s", [first])
    second = dead(conn, "k")
    conn.execute("update tailrace.job set key = 'k' where id = %s", [first])
    assert call(conn, "requeue_dead_letter(%(id)s, true)", id=second) == "requeued"
    assert letter(conn, first, "state") == "dead"
    assert letter(conn, second, "state") == "requeued"
    assert conn.execute("select id from tailrace.job").fetchall() == [(second,)]


def test_bookkeeping_and_job_are_one_transaction(conn: Connection) -> None:
    """BF-21: an error leaves both as they were."""
    job = dead(conn)
    conn.execute("alter table tailrace.audit add constraint none check (verb <> 'requeue')")
    with pytest.raises(Exception, match="none"):
        call(conn, "requeue_dead_letter(%(id)s)", id=job)
    assert conn.execute("select count(*) from tailrace.job").fetchone() == (0,)
    assert letter(conn, job, "state, requeued_count") == ("dead", 0)


def test_notes_are_kept(conn: Connection) -> None:
    """BF-22: a requeue erases nothing that people wrote."""
    job = dead(conn)
    conn.execute("update tailrace.dead_letter set notes = 'called the customer'")
    call(conn, "requeue_dead_letter(%(id)s)", id=job)
    assert letter(conn, job, "notes") == "called the customer"


@pytest.mark.parametrize("force", ["false", "true", "null"])
def test_an_unknown_dead_letter_is_not_found(conn: Connection, force: str) -> None:
    """BF-47: told by type, not by words."""
    with pytest.raises(NotFound):
        call(conn, f"requeue_dead_letter(4711, {force})")


def test_a_requeued_job_that_is_cancelled_is_dead_again(conn: Connection) -> None:
    job = dead(conn, "k")
    call(conn, "requeue_dead_letter(%(id)s)", id=job)
    assert call(conn, "cancel(%(id)s)", id=job) == "cancelled"
    assert letter(conn, job, "state, key, reason") == ("dead", "k", "max_attempts")
    assert [event["event"] for event in letter(conn, job, "history")] == ["requeued", "withdrawn"]
