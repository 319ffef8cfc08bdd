"""Outcomes on their way: nothing is forgotten, nothing is written for a lease that was lost, leases end with their last job."""

from __future__ import annotations

from typing import Any

from tailrace_worker import results
from tailrace_worker.failures import outcome
from tailrace_worker.finish import BUSY_SECONDS, Outbox


def success(outbox: Outbox, token: int, *ids: int) -> None:
    """What a lane does."""
    outbox.done.setdefault(token, []).extend(ids)
    outbox.count += len(ids)


def failed(ident: int, token: int = 1, **more: Any) -> dict[str, Any]:
    return outcome(ident, token, "error", **more)


def test_a_lease_ends_with_the_flush_of_its_last_job() -> None:
    outbox = Outbox()
    outbox.took(1, 3)
    success(outbox, 1, 10, 11)
    assert outbox.take(0.0).leases == []
    assert outbox.held == {1: 1}
    success(outbox, 1, 12)
    flush = outbox.take(0.0)
    assert flush.leases == [1]
    assert flush.done == {1: [12]}
    assert outbox.held == {}
    assert not outbox.empty
    outbox.answered(flush)
    assert outbox.unwritten == 2  # the first flush is still on its way


def test_the_lease_of_a_settled_job_is_left_to_the_database() -> None:
    """One of the outcomes may stay, busy; then the lease must stay too."""
    outbox = Outbox()
    outbox.took(1, 2)
    success(outbox, 1, 10)
    outbox.add(failed(11))
    flush = outbox.take(0.0)
    assert flush.leases == []
    assert flush.size == 2


def test_a_flush_that_failed_comes_back_whole() -> None:
    """FQ-21: what could not be written is tried again."""
    outbox = Outbox()
    outbox.took(1, 2)
    outbox.took(2, 1)
    success(outbox, 1, 10)
    outbox.add(failed(20, 2))
    outbox.save(20, 2, "{}")
    flush = outbox.take(0.0)
    success(outbox, 1, 11)
    outbox.restore(flush, doubtful=True)
    again = outbox.take(0.0)
    assert again.done == {1: [11, 10]}
    assert [(o["id"], o["saved"]) for o in again.outcomes] == [(20, {})]
    assert again.leases == [1]
    assert again.doubtful
    assert not outbox.take(0.0).doubtful


def test_a_saved_state_goes_with_the_outcome_of_its_run() -> None:
    """Not before: until then the row may belong to the handler's own transaction."""
    outbox = Outbox()
    outbox.took(1, 3)
    outbox.save(1, 1, '{"n": 1}')
    outbox.save(2, 1, "{}")
    success(outbox, 1, 2)
    assert outbox.take(0.0).outcomes == []
    outbox.save(1, 1, '{"n": 2}')
    outbox.add(failed(1))
    outbox.add(failed(3))
    assert [o.get("saved") for o in outbox.take(0.0).outcomes] == [{"n": 2}, None]
    assert outbox.saved == {}


def test_nothing_is_written_for_a_lost_lease() -> None:
    """CJ-03, FQ-03: a worker that lost its lease writes nothing at all."""
    outbox = Outbox()
    outbox.took(1, 2)
    outbox.took(2, 1)
    success(outbox, 1, 10)
    outbox.add(failed(11, 1))
    success(outbox, 2, 20)
    outbox.lost.add(1)
    flush = outbox.take(0.0)
    assert flush.done == {2: [20]}
    assert flush.outcomes == []


def test_a_busy_outcome_is_tried_again_in_a_second_and_keeps_its_lease() -> None:
    outbox = Outbox()
    outbox.took(1, 1)
    outbox.add(failed(10))
    flush = outbox.take(5.0)
    outbox.answered(flush)
    outbox.busy(flush.outcomes, 5.0)
    assert not outbox.empty
    assert outbox.held == {1: 1}
    assert outbox.next_try() == 5.0 + BUSY_SECONDS
    assert outbox.take(5.5).size == 0
    flush = outbox.take(5.0 + BUSY_SECONDS)
    assert flush.size == 1
    outbox.answered(flush)
    assert outbox.empty


def test_a_claim_on_its_way_is_known_to_the_heartbeat() -> None:
    outbox = Outbox()
    outbox.expected.add(9)
    assert outbox.known() == [9]
    outbox.took(9, 4)
    assert outbox.known() == [9]
    assert not outbox.expected
    outbox.expected.add(8)
    outbox.took(8, 0)
    assert outbox.known() == [9]


def test_an_urgent_outcome_is_said_so_until_it_is_taken() -> None:
    outbox = Outbox()
    outbox.add(failed(1))
    assert not outbox.urgent
    outbox.add(failed(2), urgent=True)
    outbox.add(failed(3))
    assert outbox.urgent
    outbox.take(0.0)
    assert not outbox.urgent


def test_a_flush_splits_into_parts_that_can_fail_alone() -> None:
    outbox = Outbox()
    outbox.took(1, 2)
    success(outbox, 1, 10)
    outbox.add(failed(11))
    whole = results.as_outcomes(outbox.take(0.0), {10: "t"})
    assert sorted((o["kind"], o.get("task")) for o in whole.outcomes) == [("error", None), ("success", "t")]
    parts = list(results.parts(whole))
    assert [p.size for p in parts] == [1, 1]
