"""What becomes of a run that did not simply succeed: one outcome at a time."""

from __future__ import annotations

import pytest

from tests.engine.rows import Rows, error_of

BACK = ["retried", "snoozed", "interrupted", "handback"]


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize(
    ("kind", "reason", "error_type"),
    [
        ("error", "max_attempts", "unknown"),
        ("timeout", "timeout", "timeout"),
        ("retry_after", "max_attempts", "unknown"),
    ],
)
def test_a_job_runs_as_often_as_it_may_and_is_then_dead(rows: Rows, most: int, kind: str, reason: str, error_type: str) -> None:
    """max_attempts counts runs; the row says how many there were; the dead letter exists when the failure commits.

    CJ-04, FQ-15, BF-18.
    """
    ident = rows.job(max_attempts=most)
    for run in range(1, most + 1):
        token = rows.claim(ident)
        row = rows.row(ident)
        assert row is not None
        assert row["attempts"] == run
        result = rows.fail(ident, token, kind)
        assert result == ("dead" if run == most else "retried")
        assert (rows.row(ident) is None) == (run == most)
        assert (rows.dead(ident) is not None) == (run == most)
    dead = rows.dead(ident)
    assert dead is not None
    assert (dead["total_attempts"], dead["dead_count"], dead["reason"], dead["error_type"]) == (most, 1, reason, error_type)
    assert len(dead["errors"]) == most
    assert rows.tally() == {"dead": 1}
    assert rows.leases() == set()


@pytest.mark.parametrize("kind", ["permanent", "corrupt"])
def test_a_permanent_error_is_dead_on_the_first_run(rows: Rows, kind: str) -> None:
    """BF-38, CJ-14: no retry, whatever is left of the attempts; a corrupt payload is a validation error."""
    token, [ident] = rows.running(max_attempts=5)
    assert rows.fail(ident, token, kind) == "dead"
    dead = rows.dead(ident)
    assert dead is not None
    assert (dead["reason"], dead["total_attempts"]) == ("permanent", 1)
    assert dead["error_type"] == ("validation" if kind == "corrupt" else "unknown")


def test_a_snooze_gives_the_attempt_back(rows: Rows) -> None:
    """A snooze costs nothing and is counted apart, also on the last attempt."""
    token, [ident] = rows.running(max_attempts=1)
    assert rows.settle({"id": ident, "token": token, "kind": "snooze", "delay": 30})[ident] == "snoozed"
    row = rows.row(ident)
    assert row is not None
    assert (row["attempts"], row["snoozes"], row["token"], row["errors"]) == (0, 1, None, None)
    assert 25 < row["wait"] <= 30


def test_an_interrupted_run_is_given_back_ten_times(rows: Rows) -> None:
    """The first waits nothing, later ones 5 s; the eleventh counts like an error and dies of it (engine.md 2.3)."""
    ident = rows.job(max_attempts=1)
    for n in range(10):
        token = rows.claim(ident)
        outcome = {"id": ident, "token": token, "kind": "interrupted", "max_interruptions": 10}
        assert rows.settle(outcome)[ident] == "interrupted"
        row = rows.row(ident)
        assert row is not None
        assert (row["attempts"], row["interrupted"]) == (0, n + 1)
        assert row["wait"] <= 0 if n == 0 else 3 < row["wait"] <= 5
    token = rows.claim(ident)
    assert rows.settle({"id": ident, "token": token, "kind": "interrupted", "max_interruptions": 10})[ident] == "dead"
    dead = rows.dead(ident)
    assert dead is not None
    assert dead["reason"] == "interrupted"


def test_an_interruption_too_many_with_attempts_left_is_retried_and_charged(rows: Rows) -> None:
    token, [ident] = rows.running(max_attempts=3, interrupted=10)
    assert rows.settle({"id": ident, "token": token, "kind": "interrupted"})[ident] == "retried"
    row = rows.row(ident)
    assert row is not None
    assert (row["attempts"], row["interrupted"]) == (1, 10)
    assert row["wait"] > 0


def test_a_job_handed_back_costs_nothing_and_keeps_its_place(rows: Rows) -> None:
    """FQ-05, GW-04: what never started has its attempt and its run_at as before."""
    token, [ident] = rows.running(run_at="2026-01-01T00:00:00Z", errors=[{"type": "Old"}])
    assert rows.fail(ident, token, "handback") == "handback"
    row = rows.row(ident)
    assert row is not None
    assert (row["attempts"], row["token"], row["errors"]) == (0, None, [{"type": "Old"}])
    assert row["run_at"].isoformat() == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize(("lost", "reason"), [(0, "max_attempts"), (1, "lease_expired")])
def test_a_row_that_came_back_exhausted_is_dead_without_a_run(rows: Rows, lost: int, reason: str) -> None:
    """BF-03: a claim met it exhausted; its last stored error is kept."""
    token, [ident] = rows.running(attempts=3, max_attempts=3, lost=lost, errors=[{"type": "Last"}])
    assert rows.settle({"id": ident, "token": token, "kind": "exhausted"})[ident] == "dead"
    dead = rows.dead(ident)
    assert dead is not None
    assert (dead["reason"], dead["errors"], dead["total_attempts"]) == (reason, [{"type": "Last"}], 3)


@pytest.mark.parametrize(("kind", "result"), [("cancelled", "cancelled"), ("expired", "expired"), ("success", "succeeded")])
def test_other_ends_remove_the_row_and_are_counted(rows: Rows, kind: str, result: str) -> None:
    token, [ident] = rows.running()
    assert rows.settle({"id": ident, "token": token, "kind": kind})[ident] == result
    assert (rows.row(ident), rows.dead(ident), rows.leases()) == (None, None, set())
    assert rows.tally() == {result: 1}


@pytest.mark.parametrize("kind", ["error", "snooze", "interrupted", "timeout", "retry_after"])
def test_a_cancel_request_ends_what_would_go_back(rows: Rows, kind: str) -> None:
    """BF-02: a cancel during the run takes effect when the run fails, and leaves no dead letter."""
    token, [ident] = rows.running()
    rows.conn.execute("insert into tailrace.cancel_request (job_id, requested_by) values (%s, 'me')", [ident])
    assert rows.fail(ident, token, kind) == "cancelled"
    assert (rows.row(ident), rows.dead(ident), rows.count("cancel_request")) == (None, None, 0)
    assert rows.tally() == {"cancelled": 1}


def test_a_cancel_request_leaves_a_hand_back_and_a_real_death_alone(rows: Rows) -> None:
    """BF-02: an exhausted run has really failed; a job handed back is cancelled when it is claimed again."""
    token, [back, dying] = rows.running(2, max_attempts=1)
    for ident in (back, dying):
        rows.conn.execute("insert into tailrace.cancel_request (job_id, requested_by) values (%s, 'me')", [ident])
    assert rows.fail(back, token, "handback") == "handback"
    assert rows.fail(dying, token) == "dead"
    assert rows.count("cancel_request") == 1


@pytest.mark.parametrize("kind", ["error", "success", "snooze", "handback", "cancelled", "permanent"])
def test_a_write_without_its_token_changes_nothing(rows: Rows, kind: str) -> None:
    """FQ-03, CJ-03, GW-01: another token holds the job, or it is gone: fenced, and neither row nor dead letter changes."""
    token, [ident] = rows.running()
    before = rows.row(ident)
    outcomes = [{"id": ident, "token": token + 1, "kind": kind}, {"id": 424242, "token": 1, "kind": kind}]
    assert rows.settle(*outcomes) == {ident: "fenced", 424242: "fenced"}
    after = rows.row(ident)
    assert before is not None
    assert after is not None
    assert {**before, "wait": 0} == {**after, "wait": 0}
    assert (rows.count("dead_letter"), rows.tally(), rows.leases()) == (0, {}, {token})


def test_discard_drops_what_is_exhausted(rows: Rows) -> None:
    """The policy Discard: counted as dropped, no dead letter."""
    token, [ident] = rows.running(max_attempts=1)
    assert rows.fail(ident, token, discard=True) == "dropped"
    assert (rows.row(ident), rows.dead(ident), rows.tally()) == (None, None, {"dropped": 1})


def test_a_handlers_state_is_kept_by_what_goes_back_and_by_the_dead_letter(rows: Rows) -> None:
    token, [first, second] = rows.running(2, max_attempts=2, saved={"page": 1})
    rows.fail(first, token, saved={"page": 2})
    rows.fail(second, token, "snooze")
    assert [rows.row(i)["saved"] for i in (first, second)] == [{"page": 2}, {"page": 1}]  # type: ignore[index]
    token = rows.claim(first)
    rows.fail(first, token, saved={"page": 3})
    assert rows.dead(first)["saved"] == {"page": 3}  # type: ignore[index]


def test_the_newest_ten_errors_are_kept(rows: Rows) -> None:
    """FQ-16: the history, oldest first, ten at most."""
    ident = rows.job(max_attempts=100)
    for n in range(12):
        assert rows.fail(ident, rows.claim(ident), error=error_of(f"E{n}")) == "retried"
    row = rows.row(ident)
    assert row is not None
    assert [e["type"] for e in row["errors"]] == [f"E{n}" for n in range(2, 12)]


def test_a_delay_is_kept_within_what_a_run_time_can_be(rows: Rows) -> None:
    """CJ-08, f1: an absurd wait becomes ten years instead of a refused row; a negative one becomes now."""
    token, [far, past] = rows.running(2)
    assert rows.fail(far, token, delay=1e300) == "retried"
    assert rows.fail(past, token, delay=-50) == "retried"
    assert 9 * 365 * 86_400 < rows.row(far)["wait"] < 11 * 365 * 86_400  # type: ignore[index]
    assert -5 < rows.row(past)["wait"] <= 0  # type: ignore[index]


def test_ids_beyond_32_and_53_bits_are_exact(rows: Rows) -> None:
    """e5: job ids past 2^31 and 2^53, tokens of 63 bits."""
    for start in (2_147_483_640, 9_007_199_254_740_990):
        rows.conn.execute("select setval(pg_get_serial_sequence('tailrace.job', 'id'), %s)", [start])
        ids = [rows.job(attempts=1, max_attempts=2) for _ in range(10)]
        token = rows.lease(ids, token=9_223_372_036_854_775_000 + start % 7)
        assert set(rows.settle(*({"id": i, "token": token, "kind": "permanent"} for i in ids)).values()) == {"dead"}
        assert all(rows.dead(i) is not None for i in ids)
