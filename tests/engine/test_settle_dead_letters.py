"""Dead letters as runs write them: one per job, the newest of a key, and what was requeued."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.rows import Rows, error_of


def die(rows: Rows, ident: int, **more: Any) -> str:
    """Let a waiting job fail for good."""
    return rows.fail(ident, rows.claim(ident), "permanent", **more)


def letter(rows: Rows, ident: int) -> dict[str, Any]:
    """A dead letter that must be there."""
    found = rows.dead(ident)
    assert found is not None
    return found


def test_the_newest_payload_and_settings_of_a_key_are_kept(rows: Rows) -> None:
    """BF-11, BF-29: the older letter of the key is superseded: its payload stays, counters, notes and history move on."""
    first = rows.job(key="k", payload={"v": 1}, priority=1)
    die(rows, first)
    rows.conn.execute("update tailrace.dead_letter set notes = 'seen', first_failed_at = '2026-01-01' where job_id = %s", [first])
    second = rows.job(key="k", payload={"v": 2}, priority=2)
    assert die(rows, second) == "dead"

    old, new = letter(rows, first), letter(rows, second)
    assert (old["state"], old["resolution"], old["key"], old["payload"], old["notes"]) == (
        "resolved",
        "superseded",
        None,
        {"v": 1},
        None,
    )
    assert (new["state"], new["key"], new["payload"], new["priority"], new["notes"]) == ("dead", "k", {"v": 2}, 2, "seen")
    assert (new["total_attempts"], new["dead_count"]) == (2, 2)
    assert new["first_failed_at"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert [e["event"] for e in new["history"]] == ["superseded"]


def test_a_key_belongs_to_its_tenant_queue_and_task(rows: Rows) -> None:
    """BF-12: the same key elsewhere is another letter, and the end of one leaves the others alone."""
    ids = [rows.job(key="k"), rows.job(key="k", task="u"), rows.job(key="k", queue="p"), rows.job(key="k", tenant="a")]
    for ident in ids:
        die(rows, ident)
    assert [letter(rows, i)["state"] for i in ids] == ["dead"] * 4
    rows.requeue(ids[0])
    assert rows.settle({"id": ids[0], "token": rows.claim(ids[0]), "kind": "success"})[ids[0]] == "succeeded"
    assert [letter(rows, i)["state"] for i in ids] == ["resolved", "dead", "dead", "dead"]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_requeued_job_that_succeeds_resolves_its_letter(rows: Rows, key: str | None) -> None:
    """BF-23: with and without a key."""
    ident = rows.job(key=key)
    die(rows, ident)
    rows.requeue(ident)
    assert rows.settle({"id": ident, "token": rows.claim(ident), "kind": "success"})[ident] == "succeeded"
    found = letter(rows, ident)
    assert (found["state"], found["resolution"], rows.row(ident)) == ("resolved", "succeeded", None)
    assert rows.tally() == {"dead": 1, "requeued": 1, "succeeded": 1, "resolved": 1}


@pytest.mark.parametrize("key", [None, "k"])
def test_a_requeued_job_that_fails_again_is_the_same_letter(rows: Rows, key: str | None) -> None:
    """BF-22, BF-23, BF-28, BF-29: one row, attempts and landings counted apart, notes and first failure kept."""
    ident = rows.job(key=key, max_attempts=2)
    rows.fail(ident, rows.claim(ident))
    rows.fail(ident, rows.claim(ident))
    rows.conn.execute("update tailrace.dead_letter set notes = 'mine', first_failed_at = '2026-01-01' where job_id = %s", [ident])
    rows.requeue(ident)
    assert rows.row(ident)["attempts"] == 0  # type: ignore[index]
    assert die(rows, ident, error=error_of("Other")) == "dead"
    found = letter(rows, ident)
    assert (found["state"], found["reason"], found["notes"]) == ("dead", "permanent", "mine")
    assert (found["total_attempts"], found["dead_count"], found["requeued_count"]) == (3, 2, 1)
    assert found["first_failed_at"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert found["errors"][-1]["type"] == "Other"
    assert [e["event"] for e in found["history"]] == ["requeued", "failed"]
    assert rows.count("dead_letter") == 1


@pytest.mark.parametrize("kind", ["cancelled", "expired"])
def test_a_requeued_job_that_ends_otherwise_is_dead_again(rows: Rows, kind: str) -> None:
    """Counted as withdrawn; the reason of the last failure is kept (engine.md 9)."""
    ident = rows.job(key="k")
    die(rows, ident)
    rows.requeue(ident)
    assert rows.settle({"id": ident, "token": rows.claim(ident), "kind": kind})[ident] == kind
    found = letter(rows, ident)
    assert (found["state"], found["reason"], found["key"], found["dead_count"]) == ("dead", "permanent", "k", 1)
    assert found["history"][-1]["event"] == "withdrawn"
    assert rows.tally()["withdrawn"] == 1


def test_a_waiting_requeued_job_that_is_withdrawn_is_dead_again(rows: Rows) -> None:
    """end_waiting_v1: what cancel and purge call."""
    requeued, plain = rows.job(), rows.job()
    die(rows, requeued)
    rows.requeue(requeued)
    token, [running] = rows.running()
    assert rows.value("select tailrace.end_waiting_v1(%s, 'cancelled')", [[requeued, plain, running]]) == 2
    assert letter(rows, requeued)["state"] == "dead"
    assert (rows.row(plain), rows.row(running)["token"]) == (None, token)  # type: ignore[index]
    assert rows.tally()["cancelled"] == 2


def test_discard_does_not_lose_a_letter_that_exists(rows: Rows) -> None:
    ident = rows.job()
    die(rows, ident)
    rows.requeue(ident)
    assert die(rows, ident, discard=True) == "dead"
    assert letter(rows, ident)["dead_count"] == 2


def test_a_letter_deleted_meanwhile_is_written_anew(rows: Rows) -> None:
    again, done = rows.job(), rows.job()
    for ident in (again, done):
        die(rows, ident)
        rows.requeue(ident)
        rows.conn.execute("delete from tailrace.dead_letter where job_id = %s", [ident])
    assert die(rows, again) == "dead"
    assert rows.settle({"id": done, "token": rows.claim(done), "kind": "success"})[done] == "succeeded"
    assert (letter(rows, again)["dead_count"], rows.dead(done)) == (1, None)


def test_a_letter_that_somebody_holds_lets_the_batch_go_on(rows: Rows, other: Rows) -> None:
    """A note in an open transaction must not stop the finish: that row stays as it is, keeps its lease, and is done later."""
    held, free = rows.job(), rows.job()
    for ident in (held, free):
        die(rows, ident)
        rows.requeue(ident)
    other.conn.execute("update tailrace.dead_letter set notes = 'reading' where job_id = %s", [held])

    tokens = {i: rows.claim(i) for i in (held, free)}
    outcomes = [{"id": i, "token": t, "kind": "success"} for i, t in tokens.items()]
    assert rows.settle(*outcomes) == {held: "busy", free: "succeeded"}
    assert (rows.row(held)["token"], rows.leases()) == (tokens[held], {tokens[held]})  # type: ignore[index]

    other.conn.commit()
    assert rows.settle(outcomes[0]) == {held: "succeeded"}
    found = letter(rows, held)
    assert (found["state"], found["notes"], rows.leases()) == ("resolved", "reading", set())


def test_a_letter_to_supersede_that_somebody_holds_does_the_same(rows: Rows, other: Rows) -> None:
    first = rows.job(key="k")
    die(rows, first)
    other.conn.execute("update tailrace.dead_letter set notes = 'reading' where job_id = %s", [first])
    second, free = rows.job(key="k"), rows.job(key="other")
    token = rows.lease([second, free])
    outcomes = [{"id": i, "token": token, "kind": "permanent"} for i in (second, free)]
    assert rows.settle(*outcomes) == {second: "busy", free: "dead"}
    other.conn.rollback()
    assert rows.settle(outcomes[0]) == {second: "dead"}
    assert letter(rows, first)["resolution"] == "superseded"


def test_a_running_row_that_somebody_holds_is_busy_and_not_waited_for(rows: Rows, other: Rows) -> None:
    """An application's enqueue can leave a lock on a running row; neither the batch nor the worker waits for it."""
    token, [held, free] = rows.running(2)
    other.conn.execute("select from tailrace.job where id = %s for update", [held])
    outcomes = [{"id": i, "token": token, "kind": "permanent"} for i in (held, free)]
    assert rows.settle(*outcomes) == {held: "busy", free: "dead"}
    assert rows.leases() == {token}
    other.conn.rollback()
    assert rows.settle(*outcomes) == {held: "dead", free: "fenced"}
    assert rows.leases() == set()


def test_whatever_the_job_table_takes_the_letter_takes(rows: Rows) -> None:
    """BF-15: widths, Unicode, deep and odd payloads."""
    deep: Any = {"x": 1}
    for _ in range(200):
        deep = {"d": [deep]}
    ident = rows.job(
        tenant="ü" * 64,
        queue="q" * 128,
        task="日" * 66,
        key="k" * 512,
        payload={"a": deep, "é": "\\u0041\n", "n": 10**30, "": None},
        meta={"m": "x" * 8000},
        priority=-1000,
        max_attempts=2_147_483_647,
        timeout="366 days",
        trace="00-" + "a" * 49,
        expires_at="9999-12-31T23:59:59Z",
        backoff={"strategy": "fixed", "base": 1},
        attempts=2_147_483_646,
    )
    before = rows.row(ident)
    assert before is not None
    assert die(rows, ident) == "dead"
    found = letter(rows, ident)
    for name in ("tenant", "queue", "task", "key", "payload", "meta", "priority", "max_attempts", "timeout", "trace", "backoff"):
        assert found[name] == before[name], name
    assert found["total_attempts"] == 2_147_483_647


def test_failures_are_grouped_by_the_workers_fingerprint_or_by_task_and_reason(rows: Rows) -> None:
    token, [told, untold, twin, foreign] = rows.running(4)
    rows.fail(told, token, "permanent", fingerprint="abc")
    rows.fail(untold, token, "permanent")
    rows.fail(twin, token, "permanent")
    rows.conn.execute("update tailrace.job set task = 'u' where id = %s", [foreign])
    rows.fail(foreign, token, "permanent")
    prints = [letter(rows, i)["fingerprint"] for i in (told, untold, twin, foreign)]
    assert prints[0] == "abc"
    assert prints[1] == prints[2]
    assert len(set(prints)) == 3


def test_what_was_replaced_after_a_requeue_is_what_the_dead_letter_keeps(rows: Rows) -> None:
    """BF-11: a requeued job that an enqueue replaced and that ends without success leaves its newest payload."""
    token, (ident,) = rows.running(key="k", max_attempts=1)
    rows.fail(ident, token)
    rows.requeue(ident)
    options = {"key": "k", "on_duplicate": "replace", "max_attempts": 7, "priority": 3}
    rows.conn.execute("select tailrace.enqueue('q', 't', '{\"n\": 2}', %s::jsonb)", [json.dumps(options)])
    rows.conn.execute("select tailrace.cancel(%s)", [ident])
    letter = rows.dead(ident)
    assert letter is not None
    assert (letter["state"], letter["payload"], letter["max_attempts"], letter["priority"]) == ("dead", {"n": 2}, 7, 3)
